"""Whether a task was learnt at all: a task that no variant learns says nothing of how they differ."""

from __future__ import annotations

from collections.abc import Collection
from statistics import mean

from offramp.report.significance import Spread
from offramp.study.pairs import shared, sweeps
from offramp.study.results import Found
from offramp.study.views import Shown


def unlearnt(shown: Shown, variants: Collection[str], exit: str | int = "") -> list[str]:
    """Tasks on which none of the variants is above always the same label by more than the deviation of its runs."""
    return [task for task in shown.tasks if not any(_learns(shown, name, task, exit) for name in variants)]


def _learns(shown: Shown, variant: str, task: str, exit: str | int) -> bool:
    """Whether its scores tell it from an answer that looks at no text; taken for granted where none is known."""
    own = [each for each in shown.of_variant(variant) if each.run.task == task]
    gaps = {shared(each.run): gap for each in own if (gap := _above_always(shown, each, exit)) is not None}
    if not gaps:
        return True
    found = Spread.of([mean(gaps[place] for place in sweep) for sweep in sweeps(gaps).values()])
    return found.mean > (found.deviation or 0.0)


def _above_always(shown: Shown, each: Found, exit: str | int) -> float | None:
    """A run's score less that of always the same label, in points; None where that is not known."""
    always = each.record["metrics"].get("always")
    return None if always is None or shown.study.columns else shown.score(each, exit=exit) - 100 * float(always)
