"""Configuration: one frozen dataclass per stage; TOML in, TOML out, dotted overrides.

The string under a field is its help text. Defaults stand here once; a recipe says only what differs.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from types import MappingProxyType
from typing import Any

from offramp.errors import ConfigError, unknown_name

DEFAULT_RECIPE = "acl-multi-exit"


@dataclass(frozen=True)
class DataConfig:
    """TEXT -> TOKENS."""

    text: tuple[str, ...] = ()
    "Columns that hold the text, or the two texts of a pair. Empty: `text`, `sentence`, or `sentence1` + `sentence2`."
    label: str = "label"
    "Column that holds the label."
    labels: str = "one"
    (
        "What a text has: `one` label, or a `set` of them, which may be empty (docs/multi-label.md), or `tags`, one "
        "for each of its words (docs/sequence-labelling.md)."
    )
    label_separator: str = "|"
    "Between the labels of a `set` where a file holds them as one string."
    max_length: int = 256
    "Tokens a text is cut to, special tokens included; never more than the backbone takes."
    windows: int = 1
    "Windows of `max_length` tokens in which a longer text is read; what is beyond them is cut."
    overlap: int = 0
    "Tokens of a window that the next one reads again."
    cap: int = 0
    "At most this many training texts, drawn so that the shares of the labels stay. 0: all."
    class_cap: int = 0
    "At most this many training texts of each label. 0: all."
    validation: float = 0.1
    "Share of the training texts held out for early stopping when no validation file is given."
    sampler: str = "length"
    "`length`: texts of like length share a batch. `balanced`: `per_class` texts of each label drawn for a batch."
    per_class: int = 4
    "Texts of each label in a batch of the `balanced` sampler; raise it with `optimise.contrast_batch`."
    views: tuple[str, ...] = ("dropout", "dropout")
    "How `infonce` sees each text twice, one name per view: `dropout`, `feature-cutoff`, `token-cutoff`, `shuffle`."
    cutoff: float = 0.15
    "Share of the tokens or of the features that a cutoff view erases."


@dataclass(frozen=True)
class ProtocolConfig:
    """TEXT -> TOKENS, for an experiment: which texts are learnt from, and how they are made worse. All off."""

    split: str = "none"
    "Who is held out: `none`: as `data.validation` says; `scl`, `lacon`, `lacon-few`: as in these papers."
    classes: int = 0
    "Keep the texts of the first this many labels, in training, validation and test. 0: all labels."
    imbalance: float = 0.0
    "rho: training texts of the largest label per text of the smallest. 0: as the data are."
    minority: int = 32
    "Training texts of the smallest label where `imbalance` is set."
    label_noise: float = 0.0
    "Share of the training labels that are replaced by another label."
    word_dropout: float = 0.0
    "Probability of a word of a training text to be left out."
    word_swap: float = 0.0
    "Swaps of two words of a training text, as a share of its words."
    back_translation: str = ""
    "Two Marian models, `there,back`, names or folders, that translate training texts there and back. Empty: none."
    temperature: float = 0.7
    "Temperature at which back-translation samples: higher is noisier. 0: the likeliest word each time."
    copies: int = 0
    "Noisy copies of each training text beside the text itself (SCL: 3). 0: the texts themselves become noisy."
    seed: int = -1
    "Seed of who is drawn, who is held out and of the noise. -1: `optimise.seed`."


@dataclass(frozen=True)
class EncoderConfig:
    """TOKENS -> LAYER STATES."""

    backbone: str = "minilm-l6"
    "`minilm-l6`, a Hugging Face name, a folder, or a model folder of offramp, to go on from it."
    revision: str = ""
    "Commit, tag or branch of a Hugging Face name. Empty: the newest, or the alias's pinned one."
    attention: str = "sdpa"
    "Attention implementation: `sdpa` or `eager`."


@dataclass(frozen=True)
class ExitsConfig:
    """STATES -> REPRESENTATION, LOGITS AT EACH DEPTH."""

    kind: str = "mha"
    "`mha`, `residual`, `linear`, `match`, `fusion`, `leam` or `lsan`."
    last: str = "same"
    "The last exit: the `same` as the others, or `mha`, `residual`, `linear`, `match`, `fusion`, `leam` or `lsan`."
    size: int = 64
    "Width of an `mha` exit's representation (d_e), of a `residual` exit's attention, of an `lsan` exit's inner layers."
    heads: int = 4
    "Attention heads of an `mha` or `residual` exit."
    temperature: float = 0.1
    "Divides the cosine of a `match` or `fusion` exit, which makes it a logit."
    window: int = 5
    "Tokens a convolution of a `fusion` or `leam` exit looks at; odd."
    reads: str = "first"
    "What a `linear` or `match` exit reads of a text: the `first` token's state, or the `mean` of all."
    projection: str = "own"
    "Between that vector and the label embeddings: the exit's `own` (pooler, or LaCon's), `none`, or LaCon's `mlp`."
    labels: str = "random"
    "Label embeddings begin `random`, or from the text of the labels' `names`."
    dropout: float = 0.1
    "Dropout inside the exit."


@dataclass(frozen=True)
class ObjectiveConfig:
    """REPRESENTATION, LOGITS -> LOSS."""

    name: str = "acl"
    "`ce`, `scl`, `acl`, `acl-cl`, `icl`, `lcl`, `ler`, `lacon`, `infonce` or `distill`."
    temperature: float = 0.5
    "tau: divides the similarities."
    weight: float = 0.02
    "lambda: share of the contrastive term, the cross entropy has 1 - lambda; in `lacon`, the weight of its `ler`."
    heads: int = 1
    "Slices of the representation that `icl` and `lacon` contrast apart; should divide its width."
    parts: tuple[str, ...] = ("icl", "lcl", "ler")
    "What `lacon` sums: `icl`, `lcl` and `ler`, or some of them, for an ablation."
    denominator: str = "others"
    "Over whom the contrast normalises: `others` (SCL eq. 3) or `all`, self included (ACL eq. 1)."
    reduction: str = "sum"
    "Over the anchors: `sum` (as the papers print it) or `mean`."
    alike: int = 0
    "`scl`, `acl`, `acl-cl`: at most this many of one label in a batch are contrasted, spread over it. 0: all."
    label_smoothing: float = 0.0
    "Label smoothing of the cross entropy, where the objective has one."
    class_weights: str = "none"
    "`none`, or `balanced`: a label's weight in the cross entropy is inverse to its frequency."


@dataclass(frozen=True)
class AlignmentConfig:
    """ACL-Grad: drop the contrastive term where its gradient turns away from the cross entropy's."""

    scope: str = "none"
    "`none`; `exact`: the angle over all trainable parameters; `exit`: over the exit and its input only."
    threshold: float = 90.0
    "Degrees; a larger angle drops the term for this batch."
    aggregator: str = "drop"
    "How two gradients make a step: `drop` one beyond the threshold, or torchjd's `projection`, `mgda` or `upgrad`."


@dataclass(frozen=True)
class OptimiseConfig:
    """LOSS -> PARAMETERS."""

    strategy: str = "single"
    (
        "`single`: backbone and last exit. `two-stage`: then the other exits. `joint`: all at once. `alternating`: in "
        "turn. `grow`: only the other exits, below a fine-tuned classifier that stays as it is."
    )
    unit: str = "epoch"
    "`alternating`: the last exit and all exits take turns by `epoch` (ACL) or by `step` (BERxiT's code)."
    depth_weights: str = "equal"
    "`joint`, `alternating`: the exits' losses count `equal`, or in proportion to their `depth`."
    epochs: int = 15
    "Passes over the training texts."
    batch_size: int = 16
    "Texts in a batch."
    accumulation: int = 1
    "Batches whose gradients make one update."
    updates_per_epoch: int = 0
    "Accumulate more batches where an epoch would have more updates than about this many. 0: as `accumulation` says."
    contrast_batch: int = 0
    "Texts that are contrasted at once, held in memory `batch_size` at a time (gradient cache). 0: those of a batch."
    lr_backbone: float = 2e-5
    "Peak learning rate of the backbone."
    lr_exit: float = 2e-5
    "Peak learning rate of the exits."
    weight_decay: float = 0.01
    "AdamW's weight decay; biases and normalisations have none."
    warmup: float = 0.1
    "Share of the updates over which the learning rate rises; then it falls linearly to 0."
    clip: float = 1.0
    "Largest gradient norm. 0: no clipping."
    patience: int = 0
    "Stop after this many epochs without a better validation score. 0: never."
    metric: str = "accuracy"
    (
        "Validation score that chooses the best epoch: `accuracy`, `f1` (of the second of two labels), `macro_f1`, "
        "`mcc`, of label sets `micro_f1`, or of tags `span_f1`."
    )
    tolerance: float = 0.0
    "Standard errors of the validation score by which a later epoch may be worse and is kept: its rate has fallen."
    checkpoint_steps: int = 0
    "Updates between checkpoints within an epoch. 0: one at the end of each epoch."
    checkpoint_seconds: float = 0.0
    "Leave out the checkpoint at the end of an epoch where the last one is younger than this. 0: leave none out."
    precision: str = "no"
    "`no` or `bf16`: accelerate's mixed precision."
    track: tuple[str, ...] = ("tensorboard",)
    "Who is told a run's numbers besides its own log: `tensorboard`, `wandb`, `trackio`, or nobody."
    seed: int = 0
    "Seed of everything random."


@dataclass(frozen=True)
class Stage2Config:
    """LOSS -> PARAMETERS, for the exits below the last when the backbone stands still (strategy `two-stage`)."""

    objective: str = "acl-cl"
    "What these exits learn: `ce`, `scl`, `acl`, `acl-cl`, `icl`, `lcl`, `lacon` or `distill`."
    temperature: float = 0.1
    "tau of the contrast; of `distill`, the temperature of the soft targets."
    weight: float = 0.5
    "lambda: share of the contrastive term, or of `distill`'s soft targets."
    heads: int = 1
    "Slices that `icl` and `lacon` contrast apart."
    denominator: str = "others"
    "Over whom the contrast normalises: `others` or `all`."
    reduction: str = "mean"
    "Over the anchors: `sum` or `mean`."
    alike: int = 0
    "At most this many of one label in a batch are contrasted, spread over it. 0: all."
    soft: float = 0.0
    "Share of the last exit's soft targets beside the labels, with any objective. 0: none."
    soft_temperature: float = 2.0
    "Temperature of these soft targets."
    scope: str = "none"
    "`none`, or `exact`: at each exit, drop the contrast where its gradient turns away (`alignment.threshold`)."
    epochs: int = 15
    "Passes over the training texts."
    batch_size: int = 64
    "Texts in a batch."
    updates_per_epoch: int = 0
    "Accumulate batches where an epoch would have more updates than about this many. 0: every batch is an update."
    lr: float = 1e-3
    "Peak learning rate."
    least_updates: int = 300
    "From few texts there are more epochs, until there are about this many updates. 0: no more."
    cache_gb: float = 20.0
    "Disk the frozen states may take, in GB; where they need more, they are computed again each epoch. 0: always so."
    keep_cache: bool = False
    "Leave the frozen states and what this stage began from: `--resume` then begins it anew with other settings."


@dataclass(frozen=True)
class CompressConfig:
    """A smaller model for every text: fewer layers or fewer attention heads (strategy `single`)."""

    method: str = "none"
    "`none`, `truncate`, `layerdrop`, `heads`, `distil`, `tiny` or `theseus`."
    layers: int = 0
    "Layers that stay, with all methods but `heads`. 0: half of them."
    heads: float = 0.5
    "`heads`: share of the attention heads that stay; each layer keeps one."
    drop: float = 0.5
    "`layerdrop`: how likely a layer is left out in training. `theseus`: how likely one is replaced at the start."
    teacher: str = ""
    "Model folder of the full model that `heads`, `distil`, `tiny` and `theseus` begin with. Empty: train it first."
    epochs: int = 3
    "Passes of the stage between: after the pruning of `heads`, over `tiny`'s layers, while `theseus` replaces."
    temperature: float = 2.0
    "`distil`, `tiny`: temperature of the teacher's soft targets."
    soft: float = 0.5
    "`distil`: share of the soft targets beside the labels."
    cosine: float = 1.0
    "`distil`: weight of the cosine distance to the teacher's last states."
    embedding: float = 1.0
    "`tiny`: weight of the distance to the teacher's embeddings."
    attention: float = 1.0
    "`tiny`: weight of the distance to the teacher's attention scores."
    hidden: float = 1.0
    "`tiny`: weight of the distance to the teacher's states."


@dataclass(frozen=True)
class PolicyConfig:
    """LOGITS SO FAR -> LEAVE OR STAY."""

    name: str = "never"
    (
        "`never`, `fixed`, `confidence`, `entropy`, `margin`, `energy`, `anchor`, `patience`, `patient-confidence`, "
        "`vote`, `learned` or `prior`."
    )
    threshold: float = 0.9
    "Score from which a text leaves at an exit; what the score is, and how high it can be, is the policy's own."
    depth: int = 0
    "`fixed`: the depth at which every text leaves. 0: the last."
    patience: int = 2
    "`patient-confidence`: how many exits in a row should be sure."


@dataclass(frozen=True)
class Config:
    """A whole run: what a recipe names and a run writes beside its result."""

    recipe: str = "defaults"
    "Name of the recipe this configuration started from."
    about: str = ""
    "One sentence on the recipe."
    data: DataConfig = field(default_factory=DataConfig)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    exits: ExitsConfig = field(default_factory=ExitsConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    optimise: OptimiseConfig = field(default_factory=OptimiseConfig)
    stage2: Stage2Config = field(default_factory=Stage2Config)
    compress: CompressConfig = field(default_factory=CompressConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)


CHOICES: dict[str, tuple[str, ...]] = {
    "data.labels": ("one", "set", "tags"),
    "data.sampler": ("length", "balanced"),
    "protocol.split": ("none", "scl", "lacon", "lacon-few"),
    "encoder.attention": ("sdpa", "eager"),
    "data.views": ("dropout", "feature-cutoff", "token-cutoff", "shuffle"),
    "exits.kind": ("linear", "mha", "residual", "match", "fusion", "leam", "lsan"),
    "exits.reads": ("first", "mean"),
    "exits.projection": ("own", "none", "mlp"),
    "exits.last": ("same", "linear", "mha", "residual", "match", "fusion", "leam", "lsan"),
    "exits.labels": ("random", "names"),
    "objective.name": ("ce", "scl", "acl", "acl-cl", "icl", "lcl", "ler", "lacon", "infonce", "distill"),
    "objective.parts": ("icl", "lcl", "ler"),
    "objective.denominator": ("others", "all"),
    "objective.reduction": ("sum", "mean"),
    "objective.class_weights": ("none", "balanced"),
    "alignment.scope": ("none", "exact", "exit"),
    "alignment.aggregator": ("drop", "projection", "mgda", "upgrad"),
    "optimise.strategy": ("single", "two-stage", "joint", "alternating", "grow"),
    "optimise.unit": ("epoch", "step"),
    "optimise.depth_weights": ("equal", "depth"),
    "stage2.objective": ("ce", "scl", "acl", "acl-cl", "icl", "lcl", "lacon", "distill"),
    "stage2.denominator": ("others", "all"),
    "stage2.reduction": ("sum", "mean"),
    "stage2.scope": ("none", "exact"),
    "compress.method": ("none", "truncate", "layerdrop", "heads", "distil", "tiny", "theseus"),
    "optimise.metric": ("accuracy", "f1", "macro_f1", "mcc", "micro_f1", "span_f1"),
    "optimise.precision": ("no", "bf16"),
    "optimise.track": ("tensorboard", "wandb", "trackio"),
    "policy.name": (
        "never",
        "fixed",
        "confidence",
        "entropy",
        "margin",
        "energy",
        "anchor",
        "patience",
        "patient-confidence",
        "vote",
        "learned",
        "prior",
    ),
}
"""Fields that take one of a few names."""

RANGES: dict[str, tuple[float, float]] = {
    "data.max_length": (4, 1e6),
    "data.windows": (1, 1e4),
    "data.overlap": (0, 1e6),
    "data.cap": (0, 1e12),
    "data.class_cap": (0, 1e12),
    "data.validation": (0.0, 0.9),
    "data.per_class": (1, 1e6),
    "data.cutoff": (0.0, 0.9),
    "protocol.classes": (0, 1e6),
    "protocol.imbalance": (0.0, 1e6),
    "protocol.minority": (1, 1e9),
    "protocol.label_noise": (0.0, 1.0),
    "protocol.word_dropout": (0.0, 1.0),
    "protocol.word_swap": (0.0, 10.0),
    "protocol.temperature": (0.0, 10.0),
    "protocol.copies": (0, 100),
    "protocol.seed": (-1, 2**32 - 1),
    "exits.size": (1, 1e5),
    "exits.heads": (1, 1e3),
    "exits.temperature": (1e-4, 1e4),
    "exits.window": (1, 1e3),
    "exits.dropout": (0.0, 0.95),
    "objective.temperature": (1e-4, 1e4),
    "objective.weight": (0.0, 1.0),
    "objective.heads": (1, 1e3),
    "objective.alike": (0, 1e6),
    "objective.label_smoothing": (0.0, 0.99),
    "alignment.threshold": (0.0, 180.0),
    "optimise.epochs": (1, 1e6),
    "optimise.batch_size": (1, 1e6),
    "optimise.accumulation": (1, 1e6),
    "optimise.updates_per_epoch": (0, 1e9),
    "stage2.updates_per_epoch": (0, 1e9),
    "optimise.contrast_batch": (0, 1e9),
    "optimise.lr_backbone": (0.0, 10.0),
    "optimise.lr_exit": (0.0, 10.0),
    "optimise.weight_decay": (0.0, 10.0),
    "optimise.warmup": (0.0, 1.0),
    "optimise.clip": (0.0, 1e6),
    "optimise.patience": (0, 1e6),
    "optimise.tolerance": (0.0, 10.0),
    "optimise.checkpoint_steps": (0, 1e9),
    "optimise.checkpoint_seconds": (0.0, 1e9),
    "optimise.seed": (0, 2**32 - 1),
    "stage2.temperature": (1e-4, 1e4),
    "stage2.weight": (0.0, 1.0),
    "stage2.heads": (1, 1e3),
    "stage2.alike": (0, 1e6),
    "stage2.soft": (0.0, 1.0),
    "stage2.soft_temperature": (1e-4, 1e4),
    "stage2.epochs": (1, 1e6),
    "stage2.batch_size": (1, 1e6),
    "stage2.lr": (0.0, 10.0),
    "stage2.least_updates": (0, 1e9),
    "stage2.cache_gb": (0.0, 1e6),
    "compress.layers": (0, 1e3),
    "compress.heads": (0.0, 1.0),
    "compress.drop": (0.0, 1.0),
    "compress.epochs": (1, 1e6),
    "compress.temperature": (1e-4, 1e4),
    "compress.soft": (0.0, 1.0),
    "compress.cosine": (0.0, 1e6),
    "compress.embedding": (0.0, 1e6),
    "compress.attention": (0.0, 1e6),
    "compress.hidden": (0.0, 1e6),
    "policy.threshold": (-1e6, 1e6),  # each policy checks its own range
    "policy.depth": (0, 1e3),
    "policy.patience": (1, 1e3),
}
"""Smallest and largest value of a number, both allowed."""

_RECIPES = resources.files("offramp") / "recipes"


def recipes() -> dict[str, str]:
    """The names of the recipes that ship with offramp, each with its one sentence."""
    return {name: load_recipe(name).about for name in _recipe_names()}


def load_recipe(name: str) -> Config:
    """The configuration a recipe names: the defaults and what the recipe changes."""
    file = _RECIPES / f"{name}.toml"
    if not file.is_file():
        raise unknown_name("recipe", name, _recipe_names())
    return from_mapping({"recipe": name, **tomllib.loads(file.read_text("utf-8"))})


def override(config: Config, settings: Iterable[str]) -> Config:
    """`config` with dotted settings such as `optimise.epochs=3` applied in order."""
    tree = to_mapping(config)
    for setting in settings:
        key, equals, raw = setting.partition("=")
        if not equals:
            raise ConfigError(f"A setting should look like key=value. Found `{setting}`.")
        stage, _, name = key.strip().partition(".")
        _check_key(f"{stage}.{name}" if name else stage)
        # A blank may be meant: it can stand between labels.
        tree[stage][name] = _parse(raw.strip() or raw, _field_type(stage, name), key.strip())
    return from_mapping(tree)


def from_mapping(tree: Mapping[str, Any]) -> Config:
    """A checked configuration from nested mappings, such as TOML gives."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key in ("recipe", "about"):
            values[key] = str(value)
            continue
        _check_key(key)
        stage = _hints(Config)[key]
        if not isinstance(value, Mapping):
            raise ConfigError(f"`{key}` should be a table of fields. Found {value!r}.")
        fields: dict[str, Any] = {}
        for name, item in value.items():
            _check_key(f"{key}.{name}")
            fields[name] = _coerce(item, _field_type(key, name), f"{key}.{name}")
        values[key] = stage(**fields)
    return Config(**values)


def to_mapping(config: Config) -> dict[str, Any]:
    """`config` as nested plain dictionaries; tuples become lists."""
    tree = dataclasses.asdict(config)
    for fields in tree.values():
        if isinstance(fields, dict):
            fields |= {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
    return tree


def to_toml(config: Config) -> str:
    """`config` as TOML, every field written out."""
    lines: list[str] = []
    for key, value in to_mapping(config).items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_toml(item)}" for name, item in value.items())]
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def changes(config: Config) -> dict[str, Any]:
    """The dotted fields in which `config` differs from its recipe; from the defaults, where the recipe is unknown."""
    return changes_from(load_recipe(config.recipe) if config.recipe in _recipe_names() else Config(), config)


def changes_from(other: Config, config: Config) -> dict[str, Any]:
    """The dotted fields in which `config` differs from another one, whatever their recipes are called."""
    base = to_mapping(other)
    return {
        f"{stage}.{name}": value
        for stage, fields in to_mapping(config).items()
        if isinstance(fields, dict)
        for name, value in fields.items()
        if value != base[stage][name]
    }


@functools.cache
def describe() -> Mapping[str, tuple[Any, str]]:
    """Every dotted field with its default and its help text, which are read from this file."""
    found: dict[str, tuple[Any, str]] = {}
    for stage in (f for f in dataclasses.fields(Config) if f.name not in ("recipe", "about")):
        kind = _hints(Config)[stage.name]
        body = typing.cast(ast.ClassDef, ast.parse(inspect.getsource(kind)).body[0]).body
        for target, text in itertools.pairwise(body):
            if isinstance(target, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(target.target, ast.Name):
                name = target.target.id
                found[f"{stage.name}.{name}"] = (getattr(kind(), name), ast.literal_eval(text.value))
    return MappingProxyType(found)


def _recipe_names() -> list[str]:
    return sorted(entry.name.removesuffix(".toml") for entry in _RECIPES.iterdir() if entry.name.endswith(".toml"))


def _check_key(key: str) -> None:
    stage, _, name = key.partition(".")
    stages, fields = _keys()
    if stage not in stages:
        meant = get_close_matches(name or stage, list(fields.values()), n=1, cutoff=0.8)
        if meant and not (name and get_close_matches(stage, stages, n=1, cutoff=0.5)):
            near = " or ".join(repr(dotted) for dotted, last in fields.items() if last == meant[0])
            raise ConfigError(f"`{stage}` is not a known part of the configuration. Did you mean {near}?")
        raise unknown_name("part of the configuration", stage, stages)
    if name:
        if key not in fields:
            raise unknown_name("field", key, fields)
    elif "." in key:
        raise ConfigError(f"`{key}` should be followed by a field's name.")


@functools.cache
def _keys() -> tuple[list[str], dict[str, str]]:
    """The parts of a configuration, and its dotted fields with the last word of each."""
    stages = {name: kind for name, kind in _hints(Config).items() if name not in ("recipe", "about")}
    return list(stages), {f"{name}.{f.name}": f.name for name, kind in stages.items() for f in dataclasses.fields(kind)}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; evaluating them takes long, and they do not change."""
    return typing.get_type_hints(kind)


def _field_type(stage: str, name: str) -> Any:
    if not name:
        raise ConfigError(f"A setting should name a field, such as `{stage}.name=value`. Found `{stage}`.")
    return _hints(_hints(Config)[stage])[name]


def _parse(raw: str, kind: Any, key: str) -> Any:
    """The value of a setting written on a command line."""
    if kind is str:
        return raw.strip("\"'")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    if typing.get_origin(kind) is tuple and not isinstance(value, list):
        return tuple(part.strip() for part in raw.strip("[]").split(",") if part.strip())
    if value is None:
        raise ConfigError(f"`{key}` should be {_kind_name(kind)}. Found `{raw}`.")
    return value


def _coerce(value: Any, kind: Any, key: str) -> Any:
    """`value` as the field's type, checked against its choices and its range."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    elif kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    elif typing.get_origin(kind) is tuple and isinstance(value, (list, tuple)):
        value = tuple(str(item) for item in value)
    origin = typing.get_origin(kind) or kind
    if not isinstance(value, origin) or (kind is not bool and isinstance(value, bool)):
        raise ConfigError(f"`{key}` should be {_kind_name(kind)}. Found {value!r}.")
    for name in value if isinstance(value, tuple) else (value,):
        if key in CHOICES and name not in CHOICES[key]:
            raise unknown_name(f"value of `{key}`", name, CHOICES[key])
    if key in RANGES and not RANGES[key][0] <= value <= RANGES[key][1]:
        low, high = RANGES[key]
        raise ConfigError(f"`{key}` should be between {low:g} and {high:g}. Found {value}.")
    return value


def _kind_name(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
    return names.get(kind, "a list of words")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's escapes are JSON's, and one control character more.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)
