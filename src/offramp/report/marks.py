"""DECISIONS -> NUMBERS, PICTURES: the marks the figures share.

Also how many points are put into a series, a line and an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[float, float]]
DASH = (0, (4, 3))
MOST_POINTS = 600  # more would only make the file large

T = TypeVar("T")


def line(axes: Axes, points: Points, colour: str, label: str = "", marker: str = "", faint: bool = False) -> None:
    """A line through the points; a faint one stays out of the way of what is drawn over it."""
    alpha, width = (0.35, 0.7) if faint else (1.0, 1.6)
    x, y = zip(*points, strict=True)
    axes.plot(x, y, color=colour, label=label, marker=marker, markersize=4.5, alpha=alpha, linewidth=width)


def scatter(axes: Axes, points: Points, colour: str, label: str = "") -> None:
    """Faint points; none at all is fine."""
    x, y = [x for x, _ in points], [y for _, y in points]
    axes.plot(x, y, "o", color=colour, label=label, markersize=2.6, markeredgewidth=0.0, alpha=0.6)


def hollow(axes: Axes, points: Points, colour: str, label: str = "", marker: str = "o", size: float = 5.0) -> None:
    """Marks with an outline only."""
    x, y = zip(*points, strict=True)
    axes.plot(x, y, marker, color=colour, label=label, markersize=size, markerfacecolor="none", markeredgewidth=1.3)


def band(axes: Axes, spans: Sequence[tuple[float, float, float]], colour: str, label: str = "") -> None:
    """What lies between two lines: x, lower and upper y; one x alone is a bar."""
    x, low, high = zip(*spans, strict=True)
    if len(x) == 1:
        axes.vlines(x, low, high, color=colour, label=label, alpha=0.35, linewidth=3.0)
    else:
        axes.fill_between(x, low, high, color=colour, label=label, alpha=0.18, linewidth=0.0)


def whole_ticks(axes: Axes, most: int) -> None:
    """Whole numbers along x, all of 1..`most` where they have room."""
    step = max(1, math.ceil(most / 12))
    axes.set_xticks([1, *range(step, most + 1, step)] if step > 1 else range(1, most + 1))


def at_most_one(axes: Axes) -> None:
    """End the y axis of scores at 1, which none exceeds; marks that lie there stay whole."""
    if axes.get_ylim()[1] > 1:
        axes.set_ylim(top=1)
    for drawn in axes.lines:
        drawn.set_clip_on(False)


def legend_above(axes: Axes, columns: int) -> None:
    """A legend over the axes, where no data can be under it."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.2, borderpad=0.2)


def finite(points: Iterable[tuple[float, float]]) -> Points:
    """The points that can be drawn."""
    return [(x, y) for x, y in points if math.isfinite(y)]


def thin(items: list[T]) -> list[T]:
    """At most `MOST_POINTS` of the items, evenly spread; the last one stays."""
    if len(items) <= MOST_POINTS:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, MOST_POINTS).round().astype(int)]


def running_median(points: Points) -> Points:
    """The median over a fortieth of the points, and never fewer than five, around each; ends use what there is."""
    half = max(2, len(points) // 80)
    values = np.asarray([value for _, value in points])  # (N,)
    places = thin(list(range(len(points))))
    return [(points[i][0], float(np.median(values[max(0, i - half) : i + half + 1]))) for i in places]
