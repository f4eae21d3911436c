"""LOGITS SO FAR -> LEAVE OR STAY: what the selection texts settle: a policy's path, over the exits that pay.

Nothing here is promised to anybody: whatever is chosen on these texts is tested on others.

Letters in the shapes: P points of the path, E exits below the last, E' of them that are kept, N texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.policies.evidence import Evidence, Scoring
from offramp.policies.path import Floats, passing, path
from offramp.policies.terms import Terms


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What some texts meet at each point of a path."""

    left: NDArray[np.int64]  # (P, E' + 1), how many leave at each exit and at the last
    harms: NDArray[np.int64]  # (P,), of sets of labels those of the label that has the most
    costs: NDArray[np.float64]  # (P,), mean

    def cheapest(self, allowed: NDArray[np.bool_]) -> int:
        """Of these points; the safest of equals."""
        return int(np.argmin(np.where(allowed, self.costs, np.inf)))

    def safest(self, allowed: NDArray[np.bool_]) -> int:
        """The point with the least harm of these; the cheapest of equals."""
        harms = np.where(allowed, self.harms, np.inf)
        return self.cheapest(harms == harms.min())


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, the evidence on it, and what is asked."""

    scoring: Scoring
    evidence: Evidence
    terms: Terms

    def columns(self, exits: tuple[int, ...]) -> list[int]:
        """Places of these exits among all."""
        return [self.evidence.exits.index(depth) for depth in exits]

    def reads(self, exits: tuple[int, ...], points: Floats) -> NDArray[np.bool_]:
        """Which of these exits each point must read, (P, E'): all that have a threshold; for a state, all before."""
        finite = np.isfinite(points)
        if not self.scoring.stateful:
            return finite
        return np.asarray(np.maximum.accumulate(finite[:, ::-1], axis=1)[:, ::-1])

    def outcomes(self, exits: tuple[int, ...], points: Floats, texts: NDArray[np.int64]) -> Outcomes:
        """These texts under each point, (P, E'), of thresholds at these exits."""
        if self.evidence.starts is not None:
            parts = np.array_split(points, range(POINTS, len(points), POINTS))
            return _joined([self._of_words(exits, part, texts) for part in parts])
        rows = self.columns(exits)
        left = np.zeros((len(points), len(exits) + 1), dtype=np.int64)
        counted = self.evidence.counted[:, :, texts].astype(np.float32)  # (C, E, N)
        harms = np.zeros((len(points), len(counted)))  # (P, C)
        here = np.ones((len(points), len(texts)), dtype=bool)  # (P, N)
        for place, scores in enumerate(self.scoring.of(exits)[:, texts]):
            gone = here & passing(scores, points[:, place, None])
            left[:, place] = gone.sum(axis=1)
            harms += gone.astype(np.float32) @ counted[:, rows[place]].T
            here &= ~gone
        left[:, -1] = here.sum(axis=1)
        worst = harms.max(axis=1, initial=0).astype(np.int64)  # (P,)
        return Outcomes(left, worst, self._costs(exits, points, left, len(texts)))

    def _of_words(self, exits: tuple[int, ...], points: Floats, texts: NDArray[np.int64]) -> Outcomes:
        """The same where each word leaves by itself and texts are counted: see `Evidence`."""
        words = self.evidence.answers(texts)
        place = np.full((len(points), len(words)), len(exits), dtype=np.int16)  # (P, N), where each word leaves
        harmed = np.zeros(place.shape, dtype=bool)
        scores, harm = self.scoring.of(exits)[:, words], self.evidence.harm[self.columns(exits)][:, words]  # (E', N)
        for number in reversed(range(len(exits))):  # the first exit that a score reaches counts
            gone = passing(scores[number], points[:, number, None])
            place[gone] = number
            harmed = np.where(gone, harm[number], harmed)
        last = self.evidence.worst(place, texts)  # (P, texts)
        left = np.stack([(last == number).sum(axis=1) for number in range(len(exits) + 1)], axis=1)
        harms = self.evidence.worst(harmed, texts).sum(axis=1)  # (P,)
        return Outcomes(left, harms, self._costs(exits, points, left, len(texts)))

    def _costs(
        self, exits: tuple[int, ...], points: Floats, left: NDArray[np.int64], texts: int
    ) -> NDArray[np.float64]:
        """The mean cost of a text at each point, (P,)."""
        read = np.cumsum(self.reads(exits, points), axis=1)  # (P, E'), up to and with each exit
        # Whoever reaches the last exit has passed all others.
        read = np.pad(read, ((0, 0), (0, 1)), mode="edge" if exits else "constant")  # (P, E' + 1)
        costs = self.evidence.cost[[*self.columns(exits), -1]]
        costs = costs + self.terms.exit_cost * self.evidence.layer_cost * read
        return np.asarray((left * costs).sum(axis=1) / texts)

    def path(self, exits: tuple[int, ...], texts: NDArray[np.int64]) -> Floats:
        """The path over these exits, (P, E'); that of words is one of harmed words, and is tested by harmed texts."""
        rows = self.evidence.answers(texts)
        return path(self.scoring.of(exits)[:, rows], self.evidence.harm[self.columns(exits)][:, rows])

    def aim(self, outcomes: Outcomes, texts: int) -> int | None:
        """The point that the selection part alone would choose; None where all cost more than the budget."""
        if self.terms.budget is None:
            return outcomes.cheapest(outcomes.harms <= (self.terms.epsilon or 0) * texts)
        within = outcomes.costs <= self.terms.budget
        return outcomes.safest(within) if within.any() else None


@dataclass(frozen=True, slots=True)
class Draft:
    """A policy's path before it is certified."""

    case: Case
    exits: tuple[int, ...]
    points: Floats  # (P, E')
    outcomes: Outcomes  # on the selection part
    rank: tuple[float, float]  # smaller is better


POINTS = 64
"""Points of a path whose words are looked at together."""


def _joined(parts: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(*(np.concatenate([getattr(part, name) for part in parts]) for name in Outcomes.__slots__))


def draft(case: Case, selection: NDArray[np.int64]) -> Draft | None:
    """The path of a policy over the exits that pay; None where it cannot keep the budget."""
    exits = case.evidence.exits
    points = case.path(exits, selection)
    place = case.aim(case.outcomes(exits, points, selection), len(selection))
    if place is None:
        return None
    exits = _paying(case, exits, points[place], selection)
    points = case.path(exits, selection)
    outcomes = case.outcomes(exits, points, selection)
    place = case.aim(outcomes, len(selection))
    if place is None:
        return None
    harms, cost = float(outcomes.harms[place]), float(outcomes.costs[place])
    return Draft(case, exits, points, outcomes, (cost, harms) if case.terms.budget is None else (harms, cost))


def _paying(case: Case, exits: tuple[int, ...], point: Floats, texts: NDArray[np.int64]) -> tuple[int, ...]:
    """The exits that save more layers than it costs to read them, at this point, (E,), of the path.

    As long as the texts cost less without one of them and are not harmed more, the exit that costs most is dropped. A
    policy with a state is scored anew each time: an exit where nobody leaves may be what lets texts leave at the next.
    """
    read = case.reads(exits, point[None])[0]
    exits, point = tuple(depth for depth, kept in zip(exits, read, strict=True) if kept), point[read]
    while exits:
        now = case.outcomes(exits, point[None], texts)
        best, dropped = float(now.costs[0]), None
        for place in range(len(exits)):
            without = case.outcomes(exits[:place] + exits[place + 1 :], np.delete(point, place)[None], texts)
            if without.costs[0] <= best and without.harms[0] <= now.harms[0]:
                best, dropped = float(without.costs[0]), place
        if dropped is None:
            break
        exits, point = exits[:dropped] + exits[dropped + 1 :], np.delete(point, dropped)
    return exits
