"""DECISIONS -> NUMBERS, PICTURES: a table of results, as Markdown for a document and as HTML for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.report.canvas import plain
from offramp.report.markup import text
from offramp.report.significance import Spread
from offramp.report.style import CSS

NOTHING = "–"
MARKS = {"above": "▲", "below": "▼", "": ""}
"""Beside a row: whether it is significantly above or below the baseline."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of ours, and the paper's beside it."""

    shown: str
    paper: str = ""
    best: bool = False

    @classmethod
    def of(cls, spread: Spread | None, paper: str = "", digits: int = 1) -> Cell:
        """Mean and standard deviation."""
        if spread is None:
            return cls(NOTHING, paper)
        deviation = "" if spread.deviation is None else f" ± {spread.deviation:.{digits}f}"
        return cls(f"{spread.mean:.{digits}f}{deviation}", paper)


@dataclass(frozen=True, slots=True)
class Row:
    """A method and its numbers."""

    label: str
    cells: tuple[Cell, ...]
    mark: str = ""  # above, below, or neither

    @property
    def name(self) -> str:
        """The label with its mark."""
        return f"{self.label} {MARKS[self.mark]}".rstrip()


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with its heading and what is to be said below it."""

    title: str
    head: tuple[str, ...]  # of all columns, the rows' names included
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """The table as Markdown; the best of a column is bold, the paper's number stands in brackets."""
        lines = [f"**{_cut(self.title)}**", ""] if self.title else []
        lines += [_line(self.head), f"|{' --- |' * len(self.head)}"]
        lines += [_line([_cut(row.name), *(_markdown(cell) for cell in row.cells)]) for row in self.rows]
        return "\n".join([*lines, *(line for note in self.notes for line in ("", note))])

    def html(self) -> str:
        """The table as an HTML element."""
        first, *others = self.head
        top = f'<th scope="col">{text(first)}</th>'
        top += "".join(f'<th scope="col" class="n">{text(name)}</th>' for name in others)
        body = "".join(
            f'<tr><th scope="row">{text(row.name)}</th>{"".join(_html(cell) for cell in row.cells)}</tr>'
            for row in self.rows
        )
        notes = "".join(f"<p>{text(note)}</p>" for note in self.notes)
        return (
            f'<div class="table" tabindex="0" role="region" aria-label="{text(self.title or first)}"><table>'
            f"<caption>{text(self.title)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>{notes}"
        )


def with_best(rows: Sequence[Row], columns: Sequence[Sequence[float | None]]) -> tuple[Row, ...]:
    """The rows with the largest number of each column marked; `columns` hold the numbers, None where there is none."""
    tops = [max((value for value in column if value is not None), default=None) for column in columns]
    found = []
    for place, row in enumerate(rows):
        cells = list(row.cells)
        for number, (column, top) in enumerate(zip(columns, tops, strict=True)):
            best = top is not None and column[place] == top and sum(value is not None for value in column) > 1
            cells[number] = Cell(cells[number].shown, cells[number].paper, best)
        found.append(Row(row.label, tuple(cells), row.mark))
    return tuple(found)


def page(title: str, about: Sequence[str], grids: Sequence[Grid], figures: Sequence[str] = ()) -> str:
    """A whole HTML page that needs nothing else: sentences, tables, figures."""
    words = "".join(f"<p>{text(sentence)}</p>" for sentence in about if sentence)
    tables = "".join(f"<section>{grid.html()}</section>" for grid in grids)
    drawn = "".join(f"<section><figure>{figure}</figure></section>" for figure in figures)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{CSS}</style></head>"
        f"<body><main><h1>{text(title)}</h1>{words}{tables}{drawn}</main></body></html>\n"
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cut(value: str) -> str:
    """Text that cannot end a cell."""
    return plain(value).replace("|", "\\|")


def _markdown(cell: Cell) -> str:
    shown = f"**{cell.shown}**" if cell.best else cell.shown
    return f"{shown} ({cell.paper})" if cell.paper else shown


def _html(cell: Cell) -> str:
    shown = f"<strong>{text(cell.shown)}</strong>" if cell.best else text(cell.shown)
    return f'<td class="n">{shown}{f" <small>({text(cell.paper)})</small>" if cell.paper else ""}</td>'
