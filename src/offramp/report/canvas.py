"""DECISIONS -> NUMBERS, PICTURES: the sheet every figure is drawn on.

One palette, one type size, SVG out, nothing global left changed.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offramp.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#6b7280"  # text and axes: a grey that reads on white and on near-black
BLUE, ORANGE, GREEN = "#3f7fc4", "#d97f2f", "#2f9a87"  # apart for colour-blind readers too
FAINT = "#9ca3af"  # what is there but does not count

FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # controls and what XML has no place for

WIDTH = 4.8  # inches: half a page, or the width of a phone

RC: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same layout on every machine
    "font.size": 8.5,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a label may hold dollars
    "xtick.color": INK,
    "ytick.color": INK,
}


def need_matplotlib() -> None:
    """Says which extra to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "plots") from None


@dataclass(frozen=True)
class Picture:
    """A figure that can be drawn, as SVG for a page or as PNG for a slide. Sizes in inches. Needs matplotlib."""

    name: str  # salts the ids inside an SVG, so that several can stand in one page
    height: float
    draw: Callable[[Figure], None]
    width: float = WIDTH

    def svg(self) -> str:
        """One `<svg>` element: the same bytes for the same data."""
        return svg(self.name, self.height, self.draw, self.width)

    def png(self, dots: int = 200) -> bytes:
        """A PNG file with so many dots per inch, on a transparent ground."""
        out = io.BytesIO()
        with _sheet(self.name, self.height, self.width) as figure:
            self.draw(figure)
            figure.savefig(out, format="png", dpi=dots, metadata={"Software": None})
        return out.getvalue()


def svg(name: str, height: float, draw: Callable[[Figure], None], width: float = WIDTH) -> str:
    """What `draw` draws, as one `<svg>` element: the same bytes for the same data.

    `name` salts the ids inside, so that several figures can stand in one page. Sizes in inches. Needs matplotlib.
    """
    out = io.StringIO()
    with _sheet(name, height, width) as figure:
        draw(figure)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    element = out.getvalue()
    element = element[element.index("<svg") :].strip()
    element = re.sub(r'<g id="[^"]*"', "<g", element)  # nobody refers to these, and every figure has the same
    return element.replace("'DejaVu Sans'", "system-ui")


@contextmanager
def _sheet(name: str, height: float, width: float) -> Iterator[Figure]:
    """An empty figure; while it is open, matplotlib has our settings."""
    need_matplotlib()
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        # The reader's machine has the fonts for the labels; matplotlib's own font need not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        matplotlib.rcdefaults()
        settings: Any = {**RC, "svg.hashsalt": name}
        matplotlib.rcParams.update(settings)
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def plain(value: object, most: int = 0) -> str:
    """`value` as text that XML can carry, cut to `most` characters if that is not 0."""
    text = FORBIDDEN.sub(" ", str(value))
    return text[: most - 1].rstrip() + "…" if 0 < most < len(text) else text


def short(count: int) -> str:
    """A count in at most four characters or so.

    >>> short(940), short(12_345), short(2_500_000)
    ('940', '12k', '2.5M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= 10_000 and count >= size:
            return f"{count / size:.2g}{unit}" if count < 100 * size else f"{count // size}{unit}"
    return str(count)
