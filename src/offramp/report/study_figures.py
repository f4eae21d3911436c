"""DECISIONS -> NUMBERS, PICTURES: what a study shows: curves over depth or a field, angles, maps side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offramp.errors import DataError
from offramp.report import marks
from offramp.report.canvas import BLUE, GREEN, INK, ORANGE, WIDTH, Picture, plain
from offramp.report.exit_map import ExitMap, draw_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, "#b5527a", "#7a6fc0", "#8a7a2b", "#4b9fd5", "#c25b4e", "#5f8f3f", "#a07cc5")
MARKERS = "osD^vPX<>*"
ACROSS = 3  # panels beside each other
BIN = 3  # degrees in a bar; 90 is an edge
SQUEEZED = 1 / 3
"""Where one line leaves the others less than this share of a panel's height, it may run out of the panel."""


@dataclass(frozen=True)
class Point:
    """A mean, and the standard deviation where there is more than one run."""

    x: float
    y: float
    deviation: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One task: a line for each method, dots for those that have one place only, and the paper's own numbers."""

    title: str
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    dots: Mapping[str, Point] = field(default_factory=dict)
    paper: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    ticks: Sequence[str] = ()  # names of x = 0, 1, 2, ... ; empty: x is a number


def curves(name: str, panels: Sequence[Panel], xlabel: str, ylabel: str, joined: bool = True) -> Picture:
    """Scores against depth, a field, or tasks that are not `joined` by lines; the paper's numbers are hollow."""
    labels = list(dict.fromkeys(label for panel in panels for label in (*panel.lines, *panel.dots)))
    if not labels:
        raise DataError("This figure needs at least a result. Found none: run the study first.")
    styles = {label: (COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]) for k, label in enumerate(labels)}
    across = min(ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    legend = math.ceil(len(labels) / (2 if across == 1 else 4))

    def draw(figure: Figure) -> None:
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place < len(panels):
                _panel(axes, panels[place], styles, xlabel if place >= len(panels) - across else "", joined)
            else:
                axes.axis("off")
        for row in grid:
            row[0].set_ylabel(ylabel)
        handles = [_handle(*styles[label], label, joined) for label in labels]
        if any(panel.paper for panel in panels):
            handles.append(_handle(INK, "o", "the paper's", joined=False, hollow=True))
        figure.legend(handles=handles, loc="outside upper left", ncols=2 if across == 1 else 4)

    wide = WIDTH if across == 1 else 0.62 * WIDTH * across
    return Picture(name, 0.25 * legend + 2.6 * down, draw, wide)


def angle_histograms(name: str, panels: Mapping[str, Mapping[str, Sequence[int]]]) -> Picture:
    """Share of batches by degree, a panel for each moment and an outline for each method; 90 degrees is dashed."""
    shown = {title: {k: c for k, c in counted.items() if sum(c)} for title, counted in panels.items()}
    shown = {title: counted for title, counted in shown.items() if counted}
    if not shown:
        raise DataError("This figure needs at least a batch with a gradient angle. Found none: run the study first.")
    labels = list(dict.fromkeys(label for counted in shown.values() for label in counted))
    low = min(k for counted in shown.values() for counts in counted.values() for k, c in enumerate(counts) if c)
    high = max(k for counted in shown.values() for counts in counted.values() for k, c in enumerate(counts) if c)
    left, right = BIN * (min(low, 89) // BIN), BIN * (max(high, 90) // BIN + 1)

    def draw(figure: Figure) -> None:
        rows = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (title, counted) in zip(rows, shown.items(), strict=True):
            for label, counts in counted.items():
                colour = COLOURS[labels.index(label) % len(COLOURS)]
                total = sum(counts)
                shares = [100 * sum(counts[edge : edge + BIN]) / total for edge in range(left, right, BIN)]
                above = 100 * sum(counts[90:]) / total
                edges = range(left, right + 1, BIN)
                axes.stairs(shares, edges, color=colour, fill=True, alpha=0.18)
                axes.stairs(
                    shares, edges, color=colour, linewidth=1.3, label=f"{plain(label, 30)}: {above:.0f} % above 90°"
                )
            axes.axvline(90, color=INK, linewidth=0.9, linestyle=marks.DASH)
            axes.set_ylabel(f"batches in {BIN}° (%)")
            axes.set_title(title, loc="left", fontsize=8.5)
            axes.grid(axis="y")
            axes.legend(loc="upper right")
        rows[-1].set_xlabel("angle between the two gradients (degrees)")

    return Picture(name, 0.4 + 2.4 * len(shown), draw)


def maps(name: str, found: Mapping[str, ExitMap]) -> Picture:
    """The maps of several methods side by side."""
    if not found:
        raise DataError("This figure needs at least a map. Found none: run the study first.")
    across = min(2, len(found))
    down = math.ceil(len(found) / across)
    side = max(each.side for each in found.values()) / 72  # inches
    head = 0.3
    width, height = across * side, down * (side + head)

    def draw(figure: Figure) -> None:
        figure.set_layout_engine("none")
        for place, (title, each) in enumerate(found.items()):
            row, column = divmod(place, across)
            corner = (column * side / width, 1 - (row + 1) * (side + head) / height)
            axes: Any = figure.add_axes((*corner, each.side / 72 / width, each.side / 72 / height))
            draw_on(axes, each)
            figure.text(corner[0] + 0.01, corner[1] + (side + 0.1) / height, plain(title, 60), fontsize=9)

    return Picture(name, height, draw, width)


def _panel(axes: Axes, panel: Panel, styles: Mapping[str, tuple[str, str]], xlabel: str, joined: bool) -> None:
    places = [point.x for points in (*panel.lines.values(), panel.dots.values()) for point in points]
    step = 0.06 if panel.ticks else 0.0  # beside each other where x is a name
    for place, (label, points) in enumerate({**panel.lines, **{k: [v] for k, v in panel.dots.items()}}.items()):
        colour, marker = styles[label]
        shift = step * (place - (len(panel.lines) - 1) / 2)
        x, y = [point.x + shift for point in points], [point.y for point in points]
        line = "-" if joined and label in panel.lines else "none"
        axes.plot(x, y, linestyle=line, marker=marker, color=colour, markersize=4.5)
        spread = [point.deviation for point in points]
        if any(spread):
            axes.errorbar(x, y, spread, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.6)
        theirs = panel.paper.get(label, ())
        if theirs:
            marks.hollow(axes, [(p.x + shift, p.y) for p in theirs], colour, marker=marker)
    axes.set_title(plain(panel.title, 40), loc="left", fontsize=8.5)
    axes.set_xlabel(xlabel)
    axes.grid(axis="y")
    axes.margins(y=0.12)
    if joined and (sunk := _sunk(panel)) is not None:
        _leave_below(axes, sunk, panel, styles[sunk][0])
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), [plain(tick, 18) for tick in panel.ticks])
        if len(panel.ticks) > 4:
            axes.tick_params(axis="x", rotation=40)
    elif places and all(float(place).is_integer() for place in places) and max(places) <= 24:
        marks.whole_ticks(axes, int(max(places)))
    elif places and 0 < 20 * min(places) <= max(places):
        axes.set_xscale("log")
        # The ticks of a logarithmic axis are formulas, which are not drawn here.
        axes.set_xticks(sorted(set(places)), [f"{place:g}" for place in sorted(set(places))])
        axes.minorticks_off()


def _sunk(panel: Panel) -> str | None:
    """The line so far below the others that what tells those apart could not be seen beside it."""
    everything = {**panel.lines, **{label: [point] for label, point in panel.dots.items()}}
    if len(everything) < 3 or not panel.lines or panel.paper:
        return None
    lowest = min(panel.lines, key=lambda label: min(point.y for point in panel.lines[label]))
    others = [point.y for label, points in everything.items() if label != lowest for point in points]
    deep = min(point.y for point in panel.lines[lowest])
    return lowest if max(others) - min(others) < SQUEEZED * (max(others) - deep) else None


def _leave_below(axes: Axes, sunk: str, panel: Panel, colour: str) -> None:
    """Give the height to the other lines, and say how far down this one goes."""
    rest = [*(points for label, points in panel.lines.items() if label != sunk), [*panel.dots.values()]]
    ends = [point.y + side * point.deviation for points in rest for point in points for side in (-1, 1)]
    room = 0.12 * (max(ends) - min(ends) or 1.0)
    # Room for the words below the lowest of the others.
    axes.set_ylim(min(ends) - 3 * room, max(max(ends), *(point.y for point in panel.lines[sunk])) + room)
    deep = min(point.y for point in panel.lines[sunk])
    told = f"{plain(sunk, 30)} goes down to {deep:.0f}"
    axes.text(0.02, 0.03, told, transform=axes.transAxes, color=colour, fontsize=7.5)


def _handle(colour: str, marker: str, label: str, joined: bool, hollow: bool = False) -> Any:
    from matplotlib.lines import Line2D

    face = "none" if hollow else colour
    style: dict[str, Any] = {"linestyle": "-" if joined and not hollow else "none", "markerfacecolor": face}
    return Line2D([], [], color=colour, marker=marker, markersize=4.5, label=plain(label, 40), **style)
