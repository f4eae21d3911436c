"""The tables of a study, by its view: scores, layers, angles, maps, and every variant against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from offramp.report.grid import NOTHING, Cell, Grid, Row, with_best
from offramp.report.significance import Spread
from offramp.study.kinds import PaperScore, Variant
from offramp.study.results import Found
from offramp.study.views import LABELS, Column, Shown, near, written

ALWAYS = "always the same label"


def tables(shown: Shown, geometry: bool = False) -> list[Grid]:
    """The tables of a study."""
    if geometry:
        return [geometry_table(shown)]
    view = shown.study.view
    found = TABLES[view](shown) if view in TABLES else score_tables(shown)
    elsewhere = paper_table(shown)
    return [*found, *([elsewhere] if elsewhere else []), *([comparison_table(shown)] if shown.comparisons else [])]


def score_tables(shown: Shown) -> list[Grid]:
    """A row per variant and a column per task; where something is swept, a table per task and a column per value."""
    if len({column.value for column in shown.columns}) == 1:
        heads = [shown.head(column.task, column.metric) for column in shown.columns]
        return [_scores(shown, "", shown.variants, shown.columns, heads)]
    found = []
    for axis, variants in shown.axes().items():
        names = {variant.name for variant in variants}
        for task in shown.tasks:
            mine = [run for run in shown.runs if run.task == task and run.variant in names]
            values = list(dict.fromkeys(run.value for run in mine))
            for metric in shown.study.columns or ("",):
                columns = [Column(task, value, metric) for value in values]
                title = f"{shown.head(task, metric)}, by {axis}"
                found.append(_scores(shown, title, variants, columns, [written(value) for value in values]))
    return found


def layer_tables(shown: Shown) -> list[Grid]:
    """A table per task: a row per variant, a column per depth."""
    found = []
    for task in shown.tasks:
        mine = [each for each in shown.results if each.run.task == task]
        depths = sorted({depth for each in mine for depth in each.by_exit})
        rows, numbers = [], []
        taking_part = {run.variant for run in shown.runs if run.task == task}
        for variant in (each for each in shown.variants if each.name in taking_part):
            own = [each for each in mine if each.run.variant == variant.name]
            spreads = [_mean(100, [each.by_exit for each in own], depth) for depth in depths]
            means = [spread.mean for spread in spreads if spread is not None]
            # A model of one exit has no mean over depths.
            whole = bool(means) and len(means) == len(depths)
            cells = [Cell.of(spread) for spread in spreads] + [
                Cell(f"{sum(means) / len(means):.1f}" if whole else NOTHING)
            ]
            rows.append(Row(variant.label, tuple(cells), _mark(shown, variant.name, [task])))
            numbers.append([None if spread is None else spread.mean for spread in spreads])
        best = with_best(rows, [list(column) for column in zip(*numbers, strict=True)])
        head = ("", *(f"depth {depth}" for depth in depths), "mean")
        found.append(Grid(shown.head(task), head, (*best, *_always(shown, [Column(task)] * (len(depths) + 1)))))
    return found


def angle_tables(shown: Shown) -> list[Grid]:
    """A row per variant: the angles of the trained model, and those met in training."""
    head = ("", "mean angle after training", "batches above 90° (%)", "in training above 90° (%)", "kept (%)", "score")
    rows = []
    for variant in shown.variants:
        own = shown.of_variant(variant.name)
        after, met = (
            [each.record.get("angles", {}).get(moment, {}) for each in own] for moment in ("after", "training")
        )
        shares = [_mean(100, after, "above"), _mean(100, met, "above"), _mean(100, met, "kept")]
        score = _cell(shown, variant.name, shown.columns[0])
        rows.append(Row(variant.label, (Cell.of(_mean(1, after, "mean")), *map(Cell.of, shares), score)))
    return [Grid("", head, (*rows, *_always(shown, shown.columns[:1], before=len(head) - 2)))]


def map_tables(shown: Shown) -> list[Grid]:
    """A row per variant and task: the score, who lies nearest to the right label embedding, and the geometry."""
    head = ("", "score", "nearest to their own label (%)", "alignment", "uniformity", "effective rank")
    rows = []
    for variant in shown.variants:
        for task in shown.tasks:
            own = [each for each in shown.of_variant(variant.name) if each.run.task == task]
            label = f"{variant.label}, {task}" if len(shown.tasks) > 1 else variant.label
            nearest = Spread.of([100 * near(each) for each in own]) if own else None
            cells = (_cell(shown, variant.name, Column(task)), Cell.of(nearest), *_geometry(own))
            rows.append(Row(label, cells))
    for task in shown.tasks:
        label = f"{ALWAYS}, {task}" if len(shown.tasks) > 1 else ALWAYS
        rows += _always(shown, [Column(task)], after=len(head) - 2, label=label)
    return [Grid("", head, tuple(rows))]


def geometry_table(shown: Shown) -> Grid:
    """A row per variant: how the representations of the last exit, or of the one on the map, lie, over all its runs."""
    rows = [Row(variant.label, tuple(_geometry(shown.of_variant(variant.name)))) for variant in shown.variants]
    note = "Alignment and uniformity: less is closer, and more spread out. Effective rank: directions in use."
    head = ("", "alignment", "uniformity", "effective rank")
    return Grid("Geometry of the representations", head, tuple(rows), (note,))


def comparison_table(shown: Shown) -> Grid:
    """Every variant against the baseline."""
    rows = []
    for name, each in shown.comparisons.items():
        found = NOTHING if not each.pairs else each.words()
        difference = NOTHING if not each.pairs else f"{each.difference:+.2f}"
        cells = (Cell(difference), Cell(str(each.pairs)), Cell(found))
        rows.append(Row(shown.study.variant(name).label, cells, _mark(shown, name, shown.tasks)))
    head = (shown.versus(), "points", "pairs", "paired Wilcoxon, Holm")
    several = len({run.value for run in shown.runs}) > 1
    over = "; their values are averaged, for they share most of their texts" if several else ""
    return Grid("", head, tuple(rows), (f"▲ significantly above, ▼ below; pairs share task and seed{over}.",))


def paper_table(shown: Shown) -> Grid | None:
    """What the paper prints of tasks, values and methods that have no cell of ours at this scale."""
    left = [each for each in shown.study.paper_scores if not shown.has_cell(each)]
    if not left:
        return None
    columns = list(dict.fromkeys(Column(each.task, each.value, each.metric) for each in left))
    rows = []
    for variant in shown.study.variants:
        mine = {Column(each.task, each.value, each.metric): each for each in left if each.variant == variant.name}
        cells = tuple(Cell(_printed(mine[column]) if column in mine else NOTHING) for column in columns)
        rows += [Row(variant.label, cells)] * bool(mine)
    heads = [" ".join(str(part) for part in (c.task, _value(c), LABELS.get(c.metric)) if part) for c in columns]
    return Grid("The paper's own, where ours are of other tasks, values or methods", ("", *heads), tuple(rows))


def _printed(score: PaperScore) -> str:
    """A number of the paper."""
    return f"{score.score:g}" + ("" if score.deviation is None else f" ± {score.deviation:g}")


def _value(column: Column) -> str:
    return "" if column.value is None else written(column.value)


TABLES: dict[str, Callable[[Shown], list[Grid]]] = {
    "scores": score_tables,
    "curve": score_tables,
    "layers": layer_tables,
    "angles": angle_tables,
    "map": map_tables,
}
"""Views to what makes their tables."""


def _scores(
    shown: Shown, title: str, variants: Sequence[Variant], columns: Sequence[Column], heads: Sequence[str]
) -> Grid:
    spreads = {v.name: [shown.spread(v.name, column) for column in columns] for v in variants}
    numbers = [[None if s is None else s.mean for s in spreads[v.name]] for v in variants]
    costs = [shown.gigaflops(v.name) for v in variants]
    costed = len({round(cost, 2) for cost in costs if cost is not None}) > 1  # of equal models there is nothing to tell
    rows = []
    for variant, means, cost in zip(variants, numbers, costs, strict=True):
        cells = [_cell(shown, variant.name, column) for column in columns]
        whole = [mean for mean in means if mean is not None]
        if len(columns) > 1:
            cells.append(Cell(f"{sum(whole) / len(whole):.1f}" if len(whole) == len(columns) else NOTHING))
        if costed:
            cells.append(Cell(NOTHING if cost is None else f"{cost:.2f}"))
        # Where there are several scores, only the first is tested.
        tested = [] if len(shown.study.columns) > 1 else [column.task for column in columns]
        rows.append(Row(variant.label, tuple(cells), _mark(shown, variant.name, tested)))
    best = with_best(rows, [list(column) for column in zip(*numbers, strict=True)])
    whose = "" if shown.common == shown.tasks else f" ({', '.join(shown.common)})"
    last = ["mean"] * (len(columns) > 1) + [f"GFLOPs per text{whose}"] * costed
    return Grid(title, ("", *heads, *last), (*best, *_always(shown, columns, after=len(last))))


def _always(shown: Shown, columns: Sequence[Column], before: int = 0, after: int = 0, label: str = ALWAYS) -> list[Row]:
    """A row for those who look at no text, with so many empty cells before its scores and after them."""
    found = [shown.always(column) for column in columns]
    if all(score is None for score in found):
        return []
    cells = [Cell(NOTHING if score is None else f"{score:.1f}") for score in found]
    return [Row(label, (*[Cell(NOTHING)] * before, *cells, *[Cell(NOTHING)] * after))]


def _cell(shown: Shown, variant: str, column: Column) -> Cell:
    printed = shown.study.printed(variant, *column)
    return Cell.of(shown.spread(variant, column), "" if printed is None else f"paper {_printed(printed)}")


def _mark(shown: Shown, variant: str, tasks: Collection[str]) -> str:
    """What the comparison found, which is made over all tasks together and marks no table of one of them."""
    found = shown.comparisons.get(variant)
    if found is None or not found.significant or not set(shown.tasks) <= set(tasks):
        return ""
    return "above" if found.side > 0 else "below"


def _geometry(own: Sequence[Found]) -> list[Cell]:
    records = [each.record["geometry"] for each in own]
    return [Cell.of(_mean(1, records, name), digits=2) for name in ("alignment", "uniformity", "effective_rank")]


def _mean(scale: float, records: Sequence[Mapping[Any, Any]], name: str | int) -> Spread | None:
    """Over the records that have the number."""
    values = [scale * float(record[name]) for record in records if record.get(name) is not None]
    return Spread.of(values) if values else None
