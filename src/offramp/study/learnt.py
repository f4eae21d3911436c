"""Whether a task was learnt at all: a task that no variant learns says nothing of how they differ.

The yardstick is the Matthews correlation of the last exit, which is 0 for any answer that looks at no text. A task's
own metric is none: by F1, or by the accuracy of unequal labels, answers that have learnt something may score below one
that is always the same.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import mean
from typing import Any

from offramp.report.significance import Spread
from offramp.study.pairs import shared, sweeps
from offramp.study.views import Shown


def unlearnt(shown: Shown, variants: Collection[str]) -> list[str]:
    """Tasks on which no variant's correlation is above 0 by more than the deviation of its runs."""
    return [task for task in shown.tasks if not any(_learns(shown, name, task) for name in variants)]


def _learns(shown: Shown, variant: str, task: str) -> bool:
    """Whether its answers have to do with the texts; taken for granted where no correlation is known."""
    own = [each for each in shown.of_variant(variant) if each.run.task == task]
    known = {shared(each.run): 100 * float(each.record["metrics"]["mcc"]) for each in own if _has(each.record)}
    if not known:
        return True
    found = Spread.of([mean(known[place] for place in sweep) for sweep in sweeps(known).values()])
    return found.mean > (found.deviation or 0.0)


def _has(record: dict[str, Any]) -> bool:
    return record["metrics"].get("mcc") is not None
