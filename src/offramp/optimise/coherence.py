"""LOSS -> PARAMETERS: which settings of a run can go together."""

from __future__ import annotations

import warnings

from offramp.config import Config
from offramp.data.sampling import check_balanced
from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES
from offramp.optimise.aggregators import aggregator
from offramp.optimise.trackers import check_installed
from offramp.reading import SET, TAGS

ONE_TERM = ("ce", "icl", "lcl", "ler", "lacon")
"""Objectives without an auxiliary term, whose gradients have nothing to be aligned with."""

BY_NEARNESS = ("icl", "lcl", "ler", "lacon")
"""Objectives that train the representation and the label embeddings, and no classifier beside them."""


SET_METRICS = ("accuracy", "macro_f1", "micro_f1")
"""Scores that sets of labels have; of them, the accuracy is that of whole sets."""

TAG_METRICS = ("accuracy", "span_f1")
"""Scores that tags have; of them, the accuracy is that of words."""

BY_WORD = ("linear", "mha", "residual")
"""Exits that can read each word of a text."""


STAGED = ("two-stage", "grow")
"""Strategies with a second stage."""


class SharpTargets(UserWarning):
    """Soft targets that a temperature below 1 sharpens, and weighs next to nothing."""


def without_cross_entropy(config: Config) -> str:
    """The objective of this run that has no cross entropy, in which weights would count; empty where each has one."""
    asked = {"the objective": config.objective.name}
    if config.optimise.strategy in STAGED:
        asked["`stage2.objective`"] = config.stage2.objective
    deaf = (f"{who} {name}" for who, name in asked.items() if "class_weights" not in OBJECTIVES[name].hyper)
    return next(deaf, "")


def check_width(config: Config, last: int, below: int) -> None:
    """Refuse what the widths of the last exit's representation and of those below it do not allow."""
    staged = config.optimise.strategy in STAGED
    asked = [("objective", config.objective.name, config.objective.heads, last)]
    if staged:
        asked.append(("stage2", config.stage2.objective, config.stage2.heads, below))
    for stage, name, heads, width in asked:
        if name in ("icl", "lacon") and width % heads:
            raise ConfigError(f"`{stage}.heads` should divide the representation's width ({width}). Found {heads}.")
    field, name = ("stage2.objective", config.stage2.objective) if staged else ("objective.name", config.objective.name)
    if name == "acl-cl" and last != below:
        raise ConfigError(
            "`exits.last` should have representations as wide as those of the exits below for "
            f"`{field}` acl-cl, which contrasts the two. Found {last} and {below}. Use acl"
            f"{', with `stage2.soft`' if staged else ', or set `exits.last` to same'}."
        )


def check(config: Config) -> None:
    """Refuse settings that cannot go together."""
    name, scope, settings = config.objective.name, config.alignment.scope, config.optimise
    if scope != "none" and name in ONE_TERM:
        raise ConfigError(f"`alignment.scope` should be none with the objective {name}, which has one term only.")
    if config.alignment.aggregator != "drop" and scope != "exact":
        raise ConfigError(
            "`alignment.aggregator` should be drop where `alignment.scope` is not exact. "
            f"Found `{config.alignment.aggregator}` with the scope `{scope}`. Change the one or the other."
        )
    if OBJECTIVES[name].taught and settings.strategy in ("single", "two-stage"):
        raise ConfigError(
            f"The objective {name} should have a teacher. Found the strategy `{settings.strategy}`, whose last exit "
            "has none. Set `stage2.objective` to it, or `optimise.strategy` to joint or alternating."
        )
    if config.stage2.scope != "none" and config.stage2.objective in ONE_TERM:
        raise ConfigError(
            f"`stage2.scope` should be none with the objective {config.stage2.objective}, which has one term only."
        )
    below, staged = config.exits.kind, settings.strategy in STAGED
    last = below if config.exits.last == "same" else config.exits.last
    trained = [(name, last)] + [(config.stage2.objective if staged else name, below)] * (settings.strategy != "single")
    for asked, kind in trained:
        if asked in BY_NEARNESS and kind in ("leam", "lsan"):
            raise ConfigError(
                f"The objective {asked} should have an exit that answers with its label embeddings: match, fusion, "
                f"mha, residual or linear. Found `{kind}`, whose classifier would not be trained."
            )
    weighted, deaf = config.objective.class_weights, without_cross_entropy(config)
    if weighted != "none" and deaf:
        raise ConfigError(
            f"`objective.class_weights` should be none with {deaf}, which has no cross entropy. Found {weighted}."
        )
    _check_labels(config)
    _check_compress(config)
    _check_grow(config)
    _warn_of_sharp_targets(config)
    if config.data.windows > 1 and config.compress.method != "none":
        raise ConfigError(
            f"`data.windows` should be 1 with `compress.method` {config.compress.method}. Found {config.data.windows}."
        )
    aggregator(config.alignment.aggregator)  # says which extra is missing
    for tracker in settings.track:
        check_installed(tracker)
    views = OBJECTIVES[name].views
    if views > 1 and len(config.data.views) != views:
        raise ConfigError(
            f"`data.views` should name {views} views for the objective {name}. "
            f"Found {len(config.data.views)}: {', '.join(config.data.views) or 'none'}."
        )
    if 0 < settings.contrast_batch < settings.batch_size:
        raise ConfigError(
            f"`optimise.contrast_batch` should be 0 or at least `optimise.batch_size` ({settings.batch_size}). "
            f"Found {settings.contrast_batch}."
        )
    if config.data.sampler == "balanced":
        size, field = settings.batch_size, "optimise.batch_size"
        if settings.contrast_batch:
            size, field = settings.contrast_batch, "optimise.contrast_batch"
        check_balanced(config.data.per_class, size, field)
        if staged:
            check_balanced(config.data.per_class, config.stage2.batch_size, "stage2.batch_size")


def _warn_of_sharp_targets(config: Config) -> None:
    """Say that a temperature that suits a contrast is none for soft targets: they count with its square."""
    asked = {"objective": (config.objective.name, config.objective.temperature)}
    if config.optimise.strategy in STAGED:
        asked["stage2"] = config.stage2.objective, config.stage2.temperature
    for stage, (name, temperature) in asked.items():
        if name == "distill" and temperature < 1.0:
            warnings.warn(
                f"`{stage}.temperature` is {temperature:g}: soft targets are softened from 1 on, and weigh "
                f"{temperature**2:.2g} here. For the objective distill set it to 2, say.",
                SharpTargets,
                stacklevel=3,
            )


def _check_labels(config: Config) -> None:
    """Refuse what sets of labels and tags do not have, and what only they have."""
    metric = config.optimise.metric
    if metric == "span_f1" and config.data.labels != TAGS:
        raise ConfigError("`optimise.metric` should be span_f1 for tags of words only. Found labels of texts.")
    if config.data.labels == TAGS:
        _check_tags(config)
        return
    if config.data.labels != SET:
        if metric == "micro_f1":
            raise ConfigError(
                "`optimise.metric` should be micro_f1 for sets of labels only. Found one label: use accuracy."
            )
        return
    taking = ", ".join(name for name, kind in OBJECTIVES.items() if kind.takes_sets)
    for field, found in (("objective.name", config.objective.name), ("stage2.objective", config.stage2.objective)):
        if not OBJECTIVES[found].takes_sets:
            raise ConfigError(f"`{field}` should be one for sets of labels: {taking}. Found {found}.")
    if metric not in SET_METRICS:
        raise ConfigError(f"`optimise.metric` should be {' or '.join(SET_METRICS)} for sets of labels. Found {metric}.")
    plain: tuple[tuple[str, object, object], ...] = (
        ("data.class_cap", config.data.class_cap, 0),
        ("data.sampler", config.data.sampler, "length"),
        ("protocol.split", config.protocol.split, "none"),
        ("protocol.classes", config.protocol.classes, 0),
        ("protocol.imbalance", config.protocol.imbalance, 0.0),
        ("protocol.label_noise", config.protocol.label_noise, 0.0),
        ("objective.class_weights", config.objective.class_weights, "none"),
        ("objective.alike", config.objective.alike, 0),
        ("stage2.alike", config.stage2.alike, 0),
        ("compress.method", config.compress.method, "none"),
    )
    for field, value, wanted in plain:
        if value != wanted:
            raise ConfigError(f"`{field}` should be {wanted} for sets of labels. Found {value}.")
    if config.optimise.strategy == "grow":
        raise ConfigError("`optimise.strategy` should not be grow for sets of labels: the classifier gives one label.")


def _check_tags(config: Config) -> None:
    """Refuse what is only known of texts."""
    kinds = {"exits.kind": config.exits.kind, "exits.last": config.exits.last}
    for field, kind in kinds.items():
        if kind not in (*BY_WORD, "same"):
            raise ConfigError(
                f"`{field}` should be {' or '.join(BY_WORD)} for tags, which is read word by word. Found {kind}."
            )
    if config.optimise.metric not in TAG_METRICS:
        raise ConfigError(
            f"`optimise.metric` should be {' or '.join(TAG_METRICS)} for tags. Found {config.optimise.metric}."
        )
    views = [name for name in (config.objective.name, config.stage2.objective) if OBJECTIVES[name].views > 1]
    if views:
        raise ConfigError(f"The objective should see each text once for tags. Found {views[0]}.")
    protocol = config.protocol
    plain: tuple[tuple[str, object, object], ...] = (
        ("data.class_cap", config.data.class_cap, 0),
        ("data.sampler", config.data.sampler, "length"),
        ("data.windows", config.data.windows, 1),
        ("protocol.split", protocol.split, "none"),
        ("protocol.classes", protocol.classes, 0),
        ("protocol.imbalance", protocol.imbalance, 0.0),
        ("protocol.label_noise", protocol.label_noise, 0.0),
        ("protocol.word_dropout", protocol.word_dropout, 0.0),
        ("protocol.word_swap", protocol.word_swap, 0.0),
        ("protocol.back_translation", protocol.back_translation, ""),
        ("compress.method", config.compress.method, "none"),
    )
    for field, value, wanted in plain:
        if value != wanted:
            raise ConfigError(f"`{field}` should be {'empty' if wanted == '' else wanted} for tags. Found {value}.")
    if config.optimise.strategy == "grow":
        raise ConfigError("`optimise.strategy` should not be grow for tags: the classifier gives a label to each text.")


def _check_grow(config: Config) -> None:
    """Refuse what cannot be done below a classifier that stays as it is."""
    if config.optimise.strategy != "grow":
        return
    last = config.exits.kind if config.exits.last == "same" else config.exits.last
    if last != "linear":
        raise ConfigError(
            "`exits.last` should be linear with the strategy grow: the last exit is the head of a Hugging Face "
            f"classifier. Found `{last}`."
        )
    if config.stage2.objective == "acl-cl" and config.exits.kind != "linear":
        raise ConfigError(
            "`stage2.objective` should not be acl-cl with the strategy grow, unless `exits.kind` is linear: vectors "
            "are contrasted with those of the last exit, which is linear. Use acl, with `stage2.soft`."
        )
    if config.exits.reads != "first":
        raise ConfigError(
            "`exits.reads` should be first with the strategy grow: so does the head of a Hugging Face classifier. "
            f"Found {config.exits.reads}."
        )
    if config.exits.projection != "own":
        raise ConfigError(
            "`exits.projection` should be own with the strategy grow: the head of a Hugging Face classifier has its "
            f"pooler. Found {config.exits.projection}."
        )
    if config.exits.labels == "names":
        raise ConfigError(
            "`exits.labels` should be random with the strategy grow: the last exit has its own. Found names."
        )


def _check_compress(config: Config) -> None:
    """Refuse what a method that makes a smaller model cannot do."""
    method, name = config.compress.method, config.objective.name
    if config.compress.teacher and method in ("none", "truncate", "layerdrop"):
        raise ConfigError(
            "`compress.teacher` should be empty where `compress.method` is none, truncate or layerdrop, which begin "
            f"with the backbone. Found `{config.compress.teacher}` with the method `{method}`."
        )
    if method != "none" and config.optimise.strategy != "single":
        raise ConfigError(
            f"`optimise.strategy` should be single with `compress.method` {method}, whose model has one exit. "
            f"Found `{config.optimise.strategy}`."
        )
    if method in ("distil", "tiny"):
        # The student's loss is not taken at the exit alone.
        for field, found, wanted in (
            ("alignment.scope", config.alignment.scope, "none"),
            ("optimise.contrast_batch", config.optimise.contrast_batch, 0),
        ):
            if found != wanted:
                raise ConfigError(f"`{field}` should be {wanted} with `compress.method` {method}. Found {found}.")
        if OBJECTIVES[name].views > 1:
            raise ConfigError(f"The objective should see each text once with `compress.method` {method}. Found {name}.")
