"""The picture of a study, by its view: curves, histograms of angles, maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offramp.report.canvas import Picture
from offramp.report.exit_map import ExitMap
from offramp.report.significance import Spread
from offramp.report.study_figures import Panel, Point, angle_histograms, curves, maps
from offramp.study.kinds import Value, Variant
from offramp.study.results import Found
from offramp.study.views import LABELS, Column, Shown, written

MOMENTS = {"after": "after training", "training": "while training"}


def picture(shown: Shown) -> Picture:
    """What the study's figure shows; a table is drawn as points."""
    view, name = shown.study.view, shown.study.name
    if view == "layers":
        return curves(name, [_layers(shown, task) for task in shown.tasks], "depth", "score (%)")
    if view == "angles":
        return angle_histograms(name, {title: _angles(shown, moment) for moment, title in MOMENTS.items()})
    if view == "map":
        return maps(name, _maps(shown))
    axes = shown.axes()
    if len({run.value for run in shown.runs}) == 1:
        return curves(name, [_columns(shown)], "", "score (%)", joined=False)
    panels = [
        _swept(shown, task, variants, axis if len(axes) > 1 else "")
        for axis, variants in axes.items()
        for task in shown.tasks
    ]
    return curves(name, panels, next(iter(axes)) if len(axes) == 1 else "value", "score (%)")


def _layers(shown: Shown, task: str) -> Panel:
    """Models with several exits are lines, those with one are dots at their depth."""
    lines: dict[str, list[Point]] = {}
    dots: dict[str, Point] = {}
    for variant in shown.variants:
        own = [each for each in shown.of_variant(variant.name) if each.run.task == task]
        depths = sorted({depth for each in own for depth in each.by_exit})
        points = [_point(depth, [100 * e.by_exit[depth] for e in own if depth in e.by_exit]) for depth in depths]
        if len(points) == 1:
            dots[variant.label] = points[0]
        elif points:
            lines[variant.label] = points
    return Panel(shown.head(task), lines, dots)


def _swept(shown: Shown, task: str, variants: Sequence[Variant], axis: str) -> Panel:
    """A line per variant over the values; values that are words stand in their order."""
    names = {variant.name for variant in variants}
    mine = [run for run in shown.runs if run.task == task and run.variant in names]
    values = list(dict.fromkeys(run.value for run in mine))
    numbers = all(isinstance(value, int | float) for value in values)

    def place(value: Value | None) -> float:
        return float(value) if numbers and isinstance(value, int | float) else float(values.index(value))

    lines: dict[str, list[Point]] = {}
    paper: dict[str, list[Point]] = {}
    for variant in variants:
        spreads = [(value, shown.spread(variant.name, Column(task, value))) for value in values]
        printed = [(value, shown.study.printed(variant.name, task, value)) for value in values]
        if points := [_spread(place(value), spread) for value, spread in spreads if spread is not None]:
            lines[variant.label] = points
        if points := [Point(place(value), theirs.score) for value, theirs in printed if theirs is not None]:
            paper[variant.label] = points
    title = f"{shown.head(task)}, {axis}" if axis else shown.head(task)
    return Panel(title, lines, {}, paper, () if numbers else [written(value) for value in values])


def _columns(shown: Shown) -> Panel:
    """Points over the columns of the table."""
    lines: dict[str, list[Point]] = {}
    paper: dict[str, list[Point]] = {}
    for variant in shown.variants:
        spreads = [(place, shown.spread(variant.name, column)) for place, column in enumerate(shown.columns)]
        printed = [(place, shown.study.printed(variant.name, *column)) for place, column in enumerate(shown.columns)]
        if points := [_spread(place, spread) for place, spread in spreads if spread is not None]:
            lines[variant.label] = points
        if points := [Point(place, theirs.score) for place, theirs in printed if theirs is not None]:
            paper[variant.label] = points
    names = [shown.head(*column[::2]) if column.metric else column.task for column in shown.columns]
    return Panel("", lines, {}, paper, names)


def _angles(shown: Shown, moment: str) -> dict[str, list[int]]:
    """The batches of all runs of a variant, by degree."""
    found: dict[str, list[int]] = {}
    for variant in shown.variants:
        counted = [each.record.get("angles", {}).get(moment) for each in shown.of_variant(variant.name)]
        columns = [each["counts"] for each in counted if each is not None]
        if columns:
            found[variant.label] = [sum(column) for column in zip(*columns, strict=True)]
    return found


def _maps(shown: Shown) -> dict[str, ExitMap]:
    """The map of the first seed of each variant and task."""
    found: dict[str, ExitMap] = {}
    for task in shown.tasks:
        for variant in shown.variants:
            own = [each for each in shown.of_variant(variant.name) if each.run.task == task]
            if own:
                found[_title(shown, own[0], variant)] = _map(own[0].record["map"])
    return found


def _title(shown: Shown, each: Found, variant: Variant) -> str:
    task = f", {each.run.task}" if len(shown.tasks) > 1 else ""
    metric = LABELS[each.run.metric]
    return f"{variant.label}{task}: {metric} {shown.score(each):.1f} %, exit {each.record['map']['depth']}"


def _map(record: Mapping[str, Any]) -> ExitMap:
    flat = {name: np.asarray(record[name], dtype=np.float32) for name in ("texts", "anchors")}
    return ExitMap(**{**record, **flat})


def _point(x: float, scores: Sequence[float]) -> Point:
    return _spread(x, Spread.of(scores))


def _spread(x: float, spread: Spread) -> Point:
    return Point(x, spread.mean, spread.deviation or 0.0)
