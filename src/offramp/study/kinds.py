"""What a study is made of: scales, variants, an axis, the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from offramp.config import Config
from offramp.errors import unknown_name

SCALES = ("smoke", "cpu", "paper")
VIEWS = {
    "scores": "a table of scores",
    "layers": "scores against depth",
    "curve": "scores against one field",
    "angles": "histograms of gradient angles",
    "map": "representations and label embeddings on a plane",
}
METRICS = ("accuracy", "f1", "macro_f1", "mcc")
BY_LABEL = ("minor_f1", "major_f1")  # of the rarest and of the most frequent label, under `protocol.imbalance`
EXITS = ("last", "half", "mean")
HOLDS = {
    "above": "the first is above the second",
    "not-below": "the first is not below the second",
    "within": "on no task is the mean of the first below that of the second by more than its standard deviation",
    "rising": "the first gains on the second from value to value, or from depth to depth",
    "falling": "the first loses on the second so",
}
ALONG = ("values", "depths")
MEASURES = ("score", "range", "conflicts", "near")
DATA = ("real", "drawn")
PROBES = ("scl", "acl", "infonce")
DRAWN = "drawn"
TABLES = tuple(f.name for f in fields(Config) if f.name not in ("recipe", "about"))
"""The parts of a configuration that a variant may change."""

Value = str | int | float
"""A value of the axis."""


@dataclass(frozen=True)
class Axis:
    """What a study sweeps: one field, or several that take the same value."""

    fields: tuple[str, ...]
    name: str  # for people


@dataclass(frozen=True)
class Probe:
    """Whose gradient is held against the cross entropy's after training, and over how many batches."""

    objective: str = ""  # empty: the run's own contrast, SCL's where it has none
    batches: int = 400


@dataclass(frozen=True)
class Before:
    """What the backbone is fine-tuned on first."""

    task: str
    recipe: str
    paper_recipe: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def at(self, scale: str) -> str:
        """The recipe at a scale."""
        return self.paper_recipe if scale == "paper" and self.paper_recipe else self.recipe


@dataclass(frozen=True)
class Part:
    """How a variant takes part at one scale, where that differs from the others."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    seeds: tuple[int, ...] = ()
    tasks_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by task, where it differs


@dataclass(frozen=True)
class Variant:
    """A row of a table, or a line of a figure."""

    name: str
    label: str
    recipe: str
    paper_recipe: str = ""
    about: str = ""
    order: int = 0
    only: tuple[str, ...] = ()  # scales; empty: all
    skip: tuple[str, ...] = ()  # scales
    tasks: tuple[str, ...] = ()  # empty: all of the scale
    values: tuple[Value, ...] = ()  # of the axis; empty: all of the scale
    exit: str | int = ""  # whose score is shown; empty: as the study says
    axis: Axis | None = None  # None: the study's
    probe: Probe | None = None  # None: the study's
    before: Before | None = None
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)  # by scale

    def takes_part(self, scale: str) -> bool:
        """Whether it takes part at this scale."""
        return scale not in self.skip and (not self.only or scale in self.only)

    def part(self, scale: str) -> Part:
        """How it takes part at this scale."""
        own = self.parts.get(scale, Part())
        return replace(own, tasks=own.tasks or self.tasks, values=own.values or self.values)

    def seeds(self, scale: Scale, task: str) -> tuple[int, ...]:
        """The seeds of its runs on a task at this scale."""
        part = self.part(scale.name)
        return part.tasks_seeds.get(task) or part.seeds or scale.seeds

    def at(self, scale: str) -> str:
        """The recipe at a scale."""
        return self.paper_recipe if scale == "paper" and self.paper_recipe else self.recipe


@dataclass(frozen=True)
class Scale:
    """How large a study is made."""

    name: str
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    values: tuple[Value, ...] = ()
    axis: Axis | None = None  # None: the study's
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks_set: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backbone: str = ""  # empty: the recipe's
    data: str = "real"
    test_cap: int = 0  # texts that are scored at most; 0: all
    validation_cap: int = 0  # texts of a validation file that choose the epoch at most; 0: all
    held_out: int = 0  # texts of the training file that are scored in the place of the test file's; 0: none
    probe_batches: int = 0  # batches whose angles are measured; 0: as many as the probe says


@dataclass(frozen=True)
class PaperScore:
    """A number that the paper prints, in percent."""

    variant: str
    task: str
    score: float
    value: Value | None = None
    deviation: float | None = None
    metric: str = ""  # where the study shows several


@dataclass(frozen=True)
class Claim:
    """What the paper says of two variants, and what of ours would show it."""

    says: str
    first: str
    second: str
    holds: str = "above"
    along: str = "values"  # where it rises or falls
    measure: str = "score"  # range: of the scores over the values; conflicts, near: percent of batches, of texts
    exit: str | int = ""  # empty: as the study shows
    metric: str = ""  # where the study shows several
    beyond: str = ""  # another metric, which is taken off: who gains more in the one than in the other
    own: bool = False  # what a study of a paper's table asks besides, and the paper does not say


@dataclass(frozen=True)
class Study:
    """A paper's table or figure, or a comparison of our own."""

    name: str
    about: str
    paper: str  # empty: ours
    place: str
    view: str
    scales: Mapping[str, Scale]
    variants: tuple[Variant, ...]  # in the order of the rows
    baseline: str = ""
    metric: str = ""  # empty: each task's own
    metrics: Mapping[str, str] = field(default_factory=dict)  # by task, where it differs
    columns: tuple[str, ...] = ()  # scores of one run that stand beside each other; empty: the metric alone
    exit: str | int = "last"  # whose score is shown: last, half, mean (of all trained ones) or a depth
    note: str = ""
    axis: Axis | None = None
    probe: Probe = field(default_factory=Probe)
    paper_scores: tuple[PaperScore, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def title(self) -> str:
        """What it asks, after its place in a paper."""
        return f"{self.paper}, {self.place}: {self.about}" if self.paper else self.about

    def scale(self, name: str) -> Scale:
        """The scale of this name."""
        if name not in self.scales:
            raise unknown_name("scale", name, self.scales)
        return self.scales[name]

    def variant(self, name: str) -> Variant:
        """The variant of this name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise unknown_name(f"variant of {self.name}", name, [variant.name for variant in self.variants])

    def axis_of(self, variant: Variant, scale: Scale) -> Axis | None:
        """What is swept there."""
        return variant.axis or scale.axis or self.axis

    def exit_of(self, variant: str) -> str | int:
        """Whose score is shown of this variant."""
        return self.variant(variant).exit or self.exit

    def printed(self, variant: str, task: str, value: Value | None = None, metric: str = "") -> PaperScore | None:
        """What the paper prints there."""
        for score in self.paper_scores:
            if (score.variant, score.task, score.value, score.metric) == (variant, task, value, metric):
                return score
        return None
