"""DECISIONS -> NUMBERS, PICTURES: the figures, each a pure function that returns SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from offramp.config import AlignmentConfig
from offramp.errors import DataError
from offramp.report import marks
from offramp.report.canvas import BLUE, FAINT, GREEN, INK, ORANGE, WIDTH, plain, short, svg
from offramp.report.history import History
from offramp.report.metrics import NAMES, Evaluation, ExitScore
from offramp.report.set_metrics import SetExitScore
from offramp.report.tag_metrics import Evaluated, TagEvaluation, TagExitScore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COUNTED = 15  # classes up to which a confusion matrix prints its counts
MOST_TICKS = 26  # labels along one side of a confusion matrix
MOST_STRIPS = 80  # stretches of a run along a heat strip


def loss_curve(history: History) -> str:
    """Loss of every update of as many texts as the others, with its running median; below it each part of the loss."""
    steps = history.full_steps
    panels = {"loss": marks.finite((record.step, record.loss) for record in steps)}
    names = sorted({name for record in steps for name in record.parts})
    for name in names if len(names) > 1 else ():
        found = marks.finite((record.step, record.parts[name]) for record in steps if name in record.parts)
        if found:
            panels[plain(name, 16)] = found
    _need(panels["loss"], "an update with a loss")

    def draw(figure: Figure) -> None:
        ratios = [2.0] + [1.0] * (len(panels) - 1)
        rows = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        for axes, (name, points), colour in zip(rows, panels.items(), [BLUE] + [GREEN] * len(panels), strict=False):
            marks.line(axes, marks.thin(points), colour, "single updates", faint=True)
            marks.line(axes, marks.running_median(points), colour, "running median")
            axes.set_ylabel(name)
            axes.grid(axis="y")
        rows[0].legend(loc="upper right")
        rows[-1].set_xlabel("update")

    return svg(f"loss-{history.phase}", 2.5 + 0.9 * (len(panels) - 1), draw)


def angle_curve(history: History, threshold: float | None = AlignmentConfig.threshold) -> str:
    """Angle between the two gradients at every update, its running median, and the share of terms kept.

    Without a threshold, no angle drops the term: an aggregator made the step of the two.
    """
    points = marks.finite((record.step, record.angle) for record in history.steps if record.angle is not None)
    _need(points, "an update with a gradient angle")
    kept = {record.step for record in history.steps if record.kept is not None and record.kept >= 0.5}
    share = history.kept_share

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shown = marks.thin(points)
        marks.scatter(axes, [point for point in shown if point[0] in kept], BLUE, f"kept ({share:.1%})")
        marks.scatter(axes, [point for point in shown if point[0] not in kept], ORANGE, f"dropped ({1 - share:.1%})")
        marks.line(axes, marks.running_median(points), INK, "running median")
        if threshold is not None:
            axes.axhline(threshold, color=INK, linewidth=0.9, linestyle=marks.DASH, label=f"threshold {threshold:g}°")
        axes.set(xlabel="update", ylabel="gradient angle (degrees)")
        axes.grid(axis="y")
        marks.legend_above(axes, columns=2)

    return svg(f"angle-{history.phase}", 3.0, draw)


def cosine_strips(history: History) -> str:
    """Cosine between the two gradients, a strip for each group of parameters, as the data flows; time runs right.

    A cell is the median over a stretch of the run, grey where there was no cosine.
    """
    cosines = history.cosines
    _need(list(cosines), "an update with a finite cosine of a group of parameters")
    first, last = history.steps[0].step, history.steps[-1].step
    edges = np.linspace(first, last + 1, min(MOST_STRIPS, last + 1 - first) + 1)  # (S + 1,)
    cells = np.full((len(cosines), len(edges) - 1), np.nan)  # (G, S)
    for row, points in enumerate(cosines.values()):
        places = np.searchsorted(edges, [step for step, _ in points], side="right") - 1  # (N,)
        values = np.asarray([value for _, value in points])  # (N,)
        for place in np.unique(places):
            cells[row, place] = np.median(values[places == place])
    most = max(0.1, math.ceil(10 * float(np.nanmax(np.abs(cells)))) / 10)
    names = [plain(name, 16) for name in cosines]

    def draw(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgb

        axes = figure.subplots()
        ends = [(*to_rgb(ORANGE), 1.0), (*to_rgb(ORANGE), 0.0), (*to_rgb(BLUE), 0.0), (*to_rgb(BLUE), 1.0)]
        places = (0.0, 0.5, 0.5, 1.0)
        steps = LinearSegmentedColormap.from_list("cosine", list(zip(places, ends, strict=True)), N=21)
        colours = steps.with_extremes(bad=(*to_rgb(FAINT), 0.45))
        extent = (first - 0.5, last + 0.5, len(names) - 0.5, -0.5)
        image = axes.imshow(
            cells, cmap=colours, vmin=-most, vmax=most, interpolation="none", aspect="auto", extent=extent
        )
        axes.set_yticks(range(len(names)), names, fontsize=8.5 if len(names) <= MOST_COUNTED else 6.5)
        axes.set_xlabel("update")
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(True)
        bar = figure.colorbar(image, ax=axes, location="top", aspect=40, pad=0.02)
        bar.set_ticks([-most, 0.0, most], labels=[f"−{most:g} conflict", "0", f"agreement {most:g}"])
        for label, side in zip(bar.ax.get_xticklabels(), ("left", "center", "right"), strict=True):
            label.set(ha=side)
        bar.set_label("cosine of the two gradients")
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2)

    return svg(f"cosines-{history.phase}", 1.3 + 0.2 * len(names), draw)


def validation_curve(history: History) -> str:
    """Score of every epoch, the best one ringed; below it the mean training loss.

    Where several exits were scored, the line is their mean, in a band from the lowest to the highest of them.
    """
    scored = marks.finite((record.epoch, record.score) for record in history.epochs)
    losses = marks.finite((record.epoch, record.loss) for record in history.epochs)
    _need(scored, "an epoch with a score")
    metric, best = history.epochs[0].metric, history.best
    band = [(r.epoch, min(r.by_exit.values()), max(r.by_exit.values())) for r in history.epochs if len(r.by_exit) > 1]

    def draw(figure: Figure) -> None:
        rows = figure.subplots(2 if losses else 1, sharex=True, squeeze=False, height_ratios=[2, 1][: 1 + bool(losses)])
        top, bottom = rows[0, 0], rows[-1, 0]
        marks.line(top, scored, BLUE, "mean of the exits" if band else "", marker="o")
        if band:
            marks.band(top, band, BLUE, "lowest to highest exit")
        if best is not None:
            marks.hollow(top, [(best.epoch, best.score)], ORANGE, f"kept: {best.score:.3f}", size=10)
        if band:
            marks.legend_above(top, columns=2)
        elif best is not None:
            top.legend(loc="lower right")
        top.set_ylabel(NAMES.get(metric, plain(metric, 20)))
        if losses:
            marks.line(bottom, losses, FAINT, marker="o")
            bottom.set_ylabel("training loss")
        for axes in (top, bottom):
            axes.grid(axis="y")
            axes.margins(y=0.15)
        marks.at_most_one(top)
        marks.whole_ticks(bottom, len(history.epochs))
        bottom.set_xlabel("epoch")

    return svg(f"validation-{history.phase}", 3.2 if losses else 2.5, draw)


def exit_scores(evaluation: Evaluated) -> str:
    """The layer-score curve: scores of each exit against its depth, and the mean accuracy over the trained exits.

    Exits that were not trained are hollow and grey.
    """
    exits = evaluation.by_exit
    _need(exits, "an exit with scores")
    third = "mcc" if isinstance(evaluation, Evaluation) else "micro_f1"
    kinds = [("accuracy", BLUE, "o"), ("macro_f1", ORANGE, "s"), (third, GREEN, "^")]
    if isinstance(evaluation, TagEvaluation):
        kinds = [("accuracy", BLUE, "o"), ("span_f1", ORANGE, "s")]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name, colour, marker in kinds:
            trained = _exit_points(exits, name, trained=True)
            if trained:
                marks.line(axes, trained, colour, NAMES[name], marker=marker)
        for name, _, marker in kinds:
            idle = _exit_points(exits, name, trained=False)
            if idle:
                marks.hollow(axes, idle, FAINT, "not trained (hollow)" if marker == "o" else "", marker)
        answered = [exit.accuracy for exit in exits if exit.trained]
        if len(answered) > 1:
            mean = sum(answered) / len(answered)
            axes.axhline(mean, color=BLUE, linewidth=0.9, linestyle=marks.DASH, label=f"mean accuracy {mean:.3f}")
        if sum(count > 0 for count in evaluation.depths.values()) > 1:
            here = (evaluation.mean_depth, evaluation.accuracy)
            marks.hollow(axes, [here], BLUE, "accuracy under the policy", "D", size=8)
        axes.set(xlabel="depth", ylabel="score", xlim=(0.5, evaluation.layers + 0.5))
        axes.grid(axis="y")
        axes.margins(y=0.12)
        marks.at_most_one(axes)
        marks.whole_ticks(axes, evaluation.layers)
        marks.legend_above(axes, columns=2)

    return svg("exits", 3.2, draw)


def depth_histogram(evaluation: Evaluated) -> str:
    """How many texts left at each depth, and the mean depth."""
    depths, counts = list(evaluation.depths), list(evaluation.depths.values())
    _need(depths, "a depth")

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars = axes.bar(depths, counts, color=BLUE, width=0.72)
        size = 8.0 if len(depths) <= 12 else 6.0
        axes.bar_label(bars, [short(count) if count else "" for count in counts], padding=2, fontsize=size, color=INK)
        mean = evaluation.mean_depth
        upper = axes.get_xaxis_transform()  # y from 0 to 1: the upper edge, where no bar is
        axes.plot([mean], [0.97], "v", color=ORANGE, transform=upper, label=f"mean depth {mean:.2f}")
        axes.set(xlabel="depth", ylabel="texts", xlim=(0.4, len(depths) + 0.6))
        axes.margins(y=0.2)
        marks.whole_ticks(axes, len(depths))
        marks.legend_above(axes, columns=1)

    return svg("depths", 2.8, draw)


def confusion_matrix(evaluation: Evaluation) -> str:
    """Rows the true labels, columns the predicted ones; the colour is the share of the row."""
    counts = np.asarray(evaluation.confusion, dtype=np.int64)  # (C, C)
    _need(evaluation.labels, "a label")
    classes = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # (C, C)
    strength = np.sqrt(shares)  # so that a few texts in the wrong place are seen
    step = math.ceil(classes / MOST_TICKS)
    ticks = list(range(0, classes, step))
    names = [plain(evaluation.labels[tick], 22) for tick in ticks]
    size = 8.5 if classes <= MOST_COUNTED else 6.5

    def draw(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap, to_rgb

        axes = figure.subplots()
        colours = LinearSegmentedColormap.from_list("share", [(*to_rgb(BLUE), 0.0), (*to_rgb(BLUE), 1.0)])
        axes.imshow(strength, cmap=colours, vmin=0, vmax=1, interpolation="none")
        if classes <= MOST_COUNTED:
            for (row, column), count in np.ndenumerate(counts):
                colour = "#ffffff" if strength[row, column] > 0.6 else INK
                text = axes.text(column, row, short(int(count)), color=colour, fontsize=9 if classes <= 6 else 7)
                text.set(ha="center", va="center")
        axes.set_xticks(ticks, names, fontsize=size)
        if classes > 4 or max(map(len, names)) > 40 // classes:
            turn = {"rotation": 40, "va": "top"} if classes <= MOST_COUNTED else {"rotation": 90, "va": "center"}
            for label in axes.get_xticklabels():
                label.set(rotation_mode="anchor", ha="right", **turn)
        axes.set_yticks(ticks, names, fontsize=size)
        axes.set(xlabel="predicted label", ylabel="true label")
        axes.spines[:].set_visible(True)
        axes.tick_params(length=2)

    side = WIDTH if classes <= MOST_COUNTED else 1.5 * WIDTH
    return svg("confusion", side if classes > 3 else 0.8 * side, draw, width=side)


def _exit_points(exits: Sequence[ExitScore | SetExitScore | TagExitScore], name: str, trained: bool) -> marks.Points:
    return [(exit.depth, getattr(exit, name)) for exit in exits if exit.trained is trained]


def _need(found: Sequence[object], what: str) -> None:
    if not found:
        raise DataError(f"This figure needs at least {what}. Found none.")
