"""What a study shows: the scores of its results as the study counts them, side by side and compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from offramp.report.metrics import NAMES
from offramp.report.significance import Comparison, Spread, against
from offramp.study.kinds import PaperScore, Study, Value, Variant
from offramp.study.pairs import Shared, differences, shared
from offramp.study.plan import Run, plan
from offramp.study.results import Found, found

LABELS = {**NAMES, "minor_f1": "F1 of the rarest label", "major_f1": "F1 of the most frequent label"}


class Column(NamedTuple):
    """A task, a value of the axis where there is one, and a score where several are shown."""

    task: str
    value: Value | None = None
    metric: str = ""


@dataclass(frozen=True)
class Shown:
    """A study at a scale with the results that are there."""

    study: Study
    scale: str
    runs: list[Run]
    results: list[Found]

    @classmethod
    def of(cls, study: Study, scale: str, folder: Path) -> Shown:
        """What lies in a folder of results."""
        runs = plan(study, scale)
        return cls(study, scale, runs, found(runs, folder))

    @property
    def variants(self) -> list[Variant]:
        """Those that take part, in the order of the rows."""
        names = {run.variant for run in self.runs}
        return [variant for variant in self.study.variants if variant.name in names]

    @property
    def columns(self) -> list[Column]:
        """Every task, with every value of the axis and every score that is shown."""
        places = dict.fromkeys((run.task, run.value) for run in self.runs)
        return [Column(*place, metric) for place in places for metric in self.study.columns or ("",)]

    @property
    def tasks(self) -> list[str]:
        """Every task."""
        return list(dict.fromkeys(run.task for run in self.runs))

    def of_variant(self, name: str) -> list[Found]:
        """The results of a variant."""
        return [each for each in self.results if each.run.variant == name]

    def score(self, each: Found, metric: str = "", exit: str | int = "") -> float:
        """The score of a result in percent: of the exit that the study shows, or one of several that it shows."""
        by_exit, chosen = each.by_exit, metric or next(iter(self.study.columns), "")
        exit = exit or self.study.exit_of(each.run.variant)
        if chosen:
            return 100 * float(each.record["metrics"][chosen])
        if exit == "mean" and by_exit:
            return 100 * sum(by_exit.values()) / len(by_exit)
        return 100 * by_exit.get(self.depth(each, exit), each.score)

    def depth(self, each: Found, exit: str | int = "") -> int:
        """The depth of the exit that the study shows; the last where it shows the mean of all."""
        exit, layers = exit or self.study.exit_of(each.run.variant), int(each.record["metrics"]["layers"])
        depth = max(1, layers // 2) if exit == "half" else exit
        return depth if isinstance(depth, int) and depth in each.by_exit else layers

    def always(self, column: Column) -> float | None:
        """The best score of always giving one label, in percent; None where no result tells it."""
        mine = [each for each in self.results if (each.run.task, each.run.value) == column[:2]]
        known = [100 * float(each.record["metrics"]["always"]) for each in mine if "always" in each.record["metrics"]]
        return None if column.metric or not known else sum(known) / len(known)

    @property
    def common(self) -> list[str]:
        """The tasks that every variant runs on, all of them where there is none."""
        of_variant = [{run.task for run in self.runs if run.variant == variant.name} for variant in self.variants]
        return [task for task in self.tasks if all(task in own for own in of_variant)] or self.tasks

    def has_cell(self, printed: PaperScore) -> bool:
        """Whether there is a cell that a number of the paper stands in, beside a number of ours or none."""
        row = any(variant.name == printed.variant for variant in self.variants)
        return row and Column(printed.task, printed.value, printed.metric) in self.columns

    def gigaflops(self, variant: str) -> float | None:
        """What a text costs at that exit: mean over the tasks and values that every variant with a result has some of,
        each of which counts alike; None where nothing is there.
        """
        costs = self._costs[variant]
        known = [mine for mine in self._costs.values() if mine]
        both = [place for place in costs if all(place in mine for mine in known)]
        return fmean(fmean(costs[place]) for place in both) / 1e9 if both else None

    @cached_property
    def _costs(self) -> dict[str, dict[tuple[str, Value | None], list[float]]]:
        """Of every variant, what the runs of each common task and value cost."""
        found: dict[str, dict[tuple[str, Value | None], list[float]]] = {}
        for variant in self.variants:
            mine = found.setdefault(variant.name, {})
            for each in self.of_variant(variant.name):
                if each.run.task in self.common:
                    cost = each.record["cost"]["flops"][str(self.depth(each))]
                    mine.setdefault((each.run.task, each.run.value), []).append(float(cost))
        return found

    def spread(self, variant: str, column: Column) -> Spread | None:
        """Mean and deviation over the seeds; None where nothing is there."""
        mine = [each for each in self.of_variant(variant) if (each.run.task, each.run.value) == column[:2]]
        return Spread.of([self.score(each, column.metric) for each in mine]) if mine else None

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Every variant against the baseline, paired over tasks and seeds, corrected for their number.

        Where every depth is shown, their mean is compared; a model of one exit has none.
        """
        base = self.study.baseline
        scores = {variant.name: self._scores(variant.name) for variant in self.variants if self._has_mean(variant.name)}
        if base not in scores:
            return {}
        draws = list(dict.fromkeys((run.task, run.seed) for run in self.runs))
        found = {name: differences(mine, scores[base]) for name, mine in scores.items() if name != base}
        return against([0.0] * len(draws), {name: [gap.get(draw) for draw in draws] for name, gap in found.items()})

    def _has_mean(self, variant: str) -> bool:
        own = self.of_variant(variant)
        return self.study.view != "layers" or not own or any(len(each.by_exit) > 1 for each in own)

    def _scores(self, variant: str) -> dict[Shared, float]:
        exit = "mean" if self.study.view == "layers" else ""
        return {shared(each.run): self.score(each, exit=exit) for each in self.of_variant(variant)}

    def versus(self) -> str:
        """With whom, and in what, the variants are compared."""
        what = "mean over exits, " if self.study.view == "layers" else ""
        what += "".join(f"{LABELS[metric]}, " for metric in self.study.columns[:1])
        return f"{what}against {self.study.variant(self.study.baseline).label}"

    def state(self) -> str:
        """How much of the study is there."""
        seeds = sorted({len({run.seed for run in self.runs if run.variant == v.name}) for v in self.variants})
        many = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
        unit = "seed" if many == "1" else "seeds"
        there, all_of_them = len(self.results), len(self.runs)
        return f"{many} {unit}" if there == all_of_them else f"{many} {unit}; {there} of {all_of_them} runs made so far"

    def head(self, task: str, metric: str = "") -> str:
        """A task with the name of its score."""
        return f"{task} ({LABELS[metric or next(run.metric for run in self.runs if run.task == task)]})"

    def axes(self) -> dict[str, list[Variant]]:
        """The variants by the name of what they sweep; the empty name where they sweep nothing."""
        scale = self.study.scale(self.scale)
        found: dict[str, list[Variant]] = {}
        for variant in self.variants:
            axis = self.study.axis_of(variant, scale)
            found.setdefault("" if axis is None else axis.name, []).append(variant)
        return found


def written(value: Value | None) -> str:
    """A value of an axis, for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def near(each: Found) -> float:
    """Share of the texts whose nearest label embedding is that of their label."""
    found = each.record["map"]
    return float(sum(found["near_label"]) / sum(found["of_label"]))
