"""DECISIONS -> NUMBERS, PICTURES: HTML of escaped text, tables, figures, sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from offramp.errors import MissingExtra
from offramp.report.canvas import plain
from offramp.report.captions import Caption


def text(value: object) -> str:
    """`value` as text in a page or in an attribute."""
    return escape(plain(value))


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], align: str, idle: Sequence[int] = ()
) -> str:
    """A table whose first column names its rows.

    `align` has a letter for each column: `l` words, `n` numbers. `idle` are the rows that do not count.
    """
    kinds = [' class="n"' if letter == "n" else "" for letter in align]
    top = "".join(f'<th scope="col"{kind}>{text(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = []
    for number, row in enumerate(rows):
        first = f'<th scope="row"{kinds[0]}>{text(row[0])}</th>'
        rest = "".join(f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        kind = ' class="idle"' if number in idle else ""
        body.append(f"<tr{kind}>{first}{rest}</tr>")
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table><caption>{text(caption)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def figure(name: str, caption: Caption, draw: Callable[[], str]) -> str:
    """A figure with its caption; the caption's numbers alone where matplotlib is missing."""
    try:
        drawn = draw()
    except MissingExtra:
        return f"<p>{text(caption.shows)}</p>"
    label = text(f"{name}. {caption.shows}")
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    words = f"{text(caption.read)} <strong>{text(caption.shows)}</strong>"
    return f"<figure>{drawn}<figcaption>{words}</figcaption></figure>"


def section(name: str, title: str, *parts: str, layout: str = "pair") -> str:
    """A headed section, or nothing where there is nothing to show."""
    found = [part for part in parts if part]
    if not found:
        return ""
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{text(title)}</h2>'
        f'<div class="{layout}">{"".join(found)}</div></section>'
    )


def details(summary: str, body: str) -> str:
    """Something folded away."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"
