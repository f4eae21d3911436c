"""Runs that are held against each other: those of two variants that share task, value and seed.

The values of one seed are no draws of their own: they share the weights at the start, the scored texts, and most of the
texts that are learnt from. So they are one pair, and its difference is the mean of theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import mean

from offramp.study.kinds import Value
from offramp.study.plan import Run

Shared = tuple[str, Value | None, int]
"""Task, value and seed."""

Draw = tuple[str, int]
"""Task and seed: what differs between two of these is left to chance."""


def shared(run: Run) -> Shared:
    """What another run must share with this one."""
    return run.task, run.value, run.seed


def sweeps(places: Iterable[Shared]) -> dict[Draw, list[Shared]]:
    """The values of every task and seed, in the order of the plan."""
    found: dict[Draw, list[Shared]] = defaultdict(list)
    for place in places:
        found[place[0], place[2]].append(place)
    return dict(found)


def differences(first: Mapping[Shared, float], second: Mapping[Shared, float]) -> dict[Draw, float]:
    """First minus second for every task and seed, mean over the values that both have.

    >>> differences({("t", 1, 0): 5.0, ("t", 2, 0): 9.0, ("t", 1, 1): 7.0}, {("t", 1, 0): 4.0, ("t", 2, 0): 6.0})
    {('t', 0): 2.0}
    """
    both = sweeps(place for place in first if place in second)
    return {draw: mean(first[place] - second[place] for place in sweep) for draw, sweep in both.items()}
