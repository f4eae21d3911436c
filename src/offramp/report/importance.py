"""DECISIONS -> NUMBERS, PICTURES: which settings of a search mattered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offramp.errors import DataError
from offramp.report.canvas import BLUE, plain, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def importance_bars(shares: Mapping[str, float], caption: str) -> str:
    """A bar per setting: its share of what made scores differ, the largest on top."""
    if not shares:
        raise DataError("A figure of importance should have a setting at least. Found none.")
    ordered = sorted(shares.items(), key=lambda item: item[1])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars = axes.barh([plain(name, 40) for name, _ in ordered], [share for _, share in ordered], color=BLUE)
        axes.bar_label(bars, labels=[f"{share:.2f}" for _, share in ordered], padding=3)
        axes.set(xlabel=plain(caption), xlim=(0, 1.1 * max(*shares.values(), 1e-9)))
        axes.tick_params(axis="y", length=0)

    return svg("importance", 0.8 + 0.3 * len(ordered), draw)
