"""The plan of a study: its runs, each with its configuration resolved and a key that tells it from any other.

A configuration is resolved in this order, the later over the earlier: the recipe, the scale's backbone, the variant's
tables, the scale's settings, the variant's at this scale, the task's, the value of the axis, the seed. The key is a
hash of what the run does, not of who asks for it: two studies that want the same run share its result.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import Any

from offramp.config import Config, changes_from, from_mapping, load_recipe, to_mapping
from offramp.data.tasks import TASKS
from offramp.errors import ConfigError
from offramp.study.kinds import Probe, Scale, Study, Value, Variant

FORMAT = 2  # of what a result holds, or of how training goes from the same settings; another makes every run new


@dataclass(frozen=True)
class Prior:
    """A fine-tuning that the backbone goes through before the run."""

    task: str
    config: Config
    data: str

    @cached_property
    def key(self) -> str:
        """What tells it from any other."""
        return _hash({"config": changes_from(Config(), self.config), "task": self.task, "data": self.data})


@dataclass(frozen=True)
class Run:
    """One training, and what is measured of it."""

    study: str
    scale: str
    variant: str
    task: str
    seed: int
    config: Config
    metric: str
    data: str = "real"
    value: Value | None = None
    test_cap: int = 0
    validation_cap: int = 0
    held_out: int = 0
    probe: Probe | None = None  # the angles that are measured after training
    map: str | int | None = None  # the exit whose map is recorded: last, half, mean (the middle one) or a depth
    before: Prior | None = None

    @property
    def name(self) -> str:
        """Of its file, without the suffix."""
        value = [] if self.value is None else [_slug(self.value)]
        return "--".join([self.variant, self.task, *value, f"s{self.seed}"])

    @property
    def place(self) -> str:
        """Of its file, below the results' folder."""
        return f"{self.study}/{self.scale}/{self.name}.json"

    @cached_property
    def key(self) -> str:
        """What tells it from any other: the settings where they differ from the defaults, so that a new field changes
        no old run; the task; which kind of data, as the data themselves are not read to make a plan.
        """
        return _hash(
            {
                "format": FORMAT,
                "config": changes_from(Config(), self.config),
                "task": self.task,
                "data": self.data,
                "metric": self.metric,
                "caps": [self.test_cap, self.validation_cap, *([self.held_out] if self.held_out else [])],
                "probe": None if self.probe is None else asdict(self.probe),
                "map": self.map,
                "before": None if self.before is None else self.before.key,
            }
        )


def plan(study: Study, scale: str) -> list[Run]:
    """Every run of a study at a scale, seed by seed, so that a study that is stopped has whole rows for some seeds."""
    chosen = study.scale(scale)
    variants = [variant for variant in study.variants if variant.takes_part(scale)]
    seeds = {seed for variant in variants for task in chosen.tasks for seed in variant.seeds(chosen, task)}
    runs = [
        _run(study, chosen, variant, task, value, seed)
        for seed in sorted(seeds)
        for task in chosen.tasks
        for variant in variants
        if seed in variant.seeds(chosen, task) and task in (variant.part(scale).tasks or chosen.tasks)
        for value in variant.part(scale).values or chosen.values or (None,)
    ]
    if not runs:
        raise ConfigError(f"{study.name} should have runs at the scale `{scale}`. Found none: see `only` and `tasks`.")
    twice = [name for name, count in Counter(run.name for run in runs).items() if count > 1]
    if twice:
        raise ConfigError(f"The runs of {study.name} should have different names. Found `{twice[0]}` twice.")
    return runs


def _run(study: Study, scale: Scale, variant: Variant, task: str, value: Value | None, seed: int) -> Run:
    axis = study.axis_of(variant, scale)
    swept = {} if axis is None or value is None else dict.fromkeys(axis.fields, value)
    where = f"{study.name}/{variant.name}.toml at the scale `{scale.name}`, task `{task}`"
    metric = study.metrics.get(task) or study.metric or TASKS[task].metric
    own = [variant.part(scale.name).settings, scale.tasks_set.get(task, {}), swept]
    config = _resolved(scale, variant.at(scale.name), metric, variant.tables, own, seed, where)
    before = None
    if variant.before is not None:
        first = variant.before
        own = [scale.tasks_set.get(first.task, {}), first.settings]
        recipe, metric_before = first.at(scale.name), TASKS[first.task].metric
        before = Prior(first.task, _resolved(scale, recipe, metric_before, {}, own, seed, where), scale.data)
    return Run(
        study=study.name,
        scale=scale.name,
        variant=variant.name,
        task=task,
        seed=seed,
        config=config,
        metric=metric,
        data=scale.data,
        value=value,
        test_cap=scale.test_cap,
        validation_cap=scale.validation_cap,
        held_out=scale.held_out,
        probe=_probe(study, scale, variant) if study.view == "angles" else None,
        map=study.exit_of(variant.name) if study.view == "map" else None,
        before=before,
    )


def _probe(study: Study, scale: Scale, variant: Variant) -> Probe:
    found = variant.probe or study.probe
    return replace(found, batches=scale.probe_batches) if scale.probe_batches else found


def _resolved(
    scale: Scale,
    recipe: str,
    metric: str,
    tables: Mapping[str, Mapping[str, Any]],
    own: list[Mapping[str, Any]],
    seed: int,
    where: str,
) -> Config:
    tree = to_mapping(_recipe(recipe))
    # The epoch is chosen by the score that is shown, unless somebody says otherwise.
    tree["optimise"]["metric"] = metric
    if scale.backbone:
        tree["encoder"]["backbone"] = scale.backbone
    for stage, values in tables.items():
        tree[stage] |= values
    for layer in (scale.settings, *own, {"optimise.seed": seed}):
        for key, value in layer.items():
            stage, _, name = key.partition(".")
            tree[stage][name] = value
    try:
        return from_mapping(tree)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


@cache
def _recipe(name: str) -> Config:
    return load_recipe(name)


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _slug(value: Value) -> str:
    """A value as a part of a file's name."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in text)
