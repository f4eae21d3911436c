"""A study as a document: what it asks, its tables, the paper's numbers, how it differs from the paper."""

from __future__ import annotations

from offramp.errors import MissingExtra
from offramp.report.grid import Grid, page
from offramp.study.claims import claims_table
from offramp.study.pictures import picture
from offramp.study.tables import tables
from offramp.study.views import Shown


def as_markdown(shown: Shown, geometry: bool = False, claims: bool = True) -> str:
    """The tables with a heading and what is to be said of them, and what the paper claims where that is asked for."""
    parts = [f"## {shown.study.name}", sentence(shown)]
    parts += [grid.markdown() for grid in (*tables(shown, geometry), *(_claims(shown) if claims else []))]
    return "\n\n".join([*parts, *([shown.study.note] if shown.study.note else [])]) + "\n"


def as_html(shown: Shown, geometry: bool = False) -> str:
    """A whole page, with the figure where matplotlib is there."""
    try:
        figures = [picture(shown).svg()]
    except MissingExtra:
        figures = []
    words = [sentence(shown), shown.study.note]
    return page(shown.study.name, words, [*tables(shown, geometry), *_claims(shown)], figures)


def _claims(shown: Shown) -> list[Grid]:
    found = claims_table([shown])
    return [] if found is None else [found]


def sentence(shown: Shown) -> str:
    """What the study asks and how it was measured."""
    study = shown.study
    printed = " The paper's own number in brackets." if any(map(shown.has_cell, study.paper_scores)) else ""
    exits = {"mean": " Mean over all exits.", "half": " Exit at half depth."}.get(str(study.exit), "")
    return (
        f"{study.title} Scale {shown.scale}, {shown.state()}; scores in percent, mean and standard deviation."
        f"{exits}{printed}"
    )
