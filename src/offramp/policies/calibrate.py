"""LOGITS SO FAR -> LEAVE OR STAY: thresholds from held-out texts, with a guarantee where one is asked for.

Learn-then-Test. The texts are divided at random into a selection part and a certification part, because thresholds
that are chosen and certified on the same texts flatter themselves.

    select     a path of thresholds from "nobody leaves" to the boldest (`path.py`); exits that do not pay are dropped
    certify    for each point of the path, k harms among the n texts of the other part; H: the risk is above epsilon;
               p = P[Bin(n, epsilon) <= k]; points are tested from the safest at level delta until one is not rejected
    choose     the cheapest point that was certified

    P[ risk of the chosen point > epsilon ] <= delta

over the draw of the certification texts, for any model, policy, path and number of points. What is tested is the policy
as it will run, with the exits that it will read. Where texts have sets of labels, k is that of the label with the most
harms, and H is true where any label's risk is above epsilon; where words have tags, k counts texts with a harmed word:
see `Evidence`.

Reference: A. Angelopoulos, S. Bates, E. Candes, M. Jordan, L. Lei, "Learn then Test: calibrating predictive algorithms
to achieve risk control", Annals of Applied Statistics 19 (2025), arXiv:2110.01052, with fixed sequence testing. The
sequence is learned, on texts of its own.

Letters in the shapes: P points of the path, E exits below the last, E' of them that are kept, N texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.errors import ConfigError
from offramp.policies.bounds import fixed_sequence, p_values, upper_bound
from offramp.policies.dial import Dial, DialPoint, spread
from offramp.policies.evidence import Evidence, Scores, Scoring
from offramp.policies.path import Floats, passing
from offramp.policies.selection import Case, Draft, Outcomes, draft
from offramp.policies.terms import Terms, divide

FINALISTS = 3
"""How many policies are certified, of those that are tried."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The thresholds that were chosen, and what the certification part says of them."""

    thresholds: Mapping[int, float]  # by depth, where texts may leave; none: nobody leaves
    exits: tuple[int, ...]  # that are read: those with a threshold, and those that the state of a policy needs
    terms: Terms
    tried: int  # policies that shared `delta`
    selection: int  # texts
    certification: int
    harms: int  # of sets of labels, those of the worst label
    bound: float  # on the risk, at level delta / tried
    cost: float  # mean, exits that were read included
    mean_depth: float
    within_budget: bool | None  # on the selection part; None where there is no budget
    accuracy_full: float | None = None  # of the last exit, where `Evidence.right` was given
    accuracy_early: float | None = None
    dial: Dial | None = None  # the path around the thresholds; None where nobody leaves

    @property
    def certified(self) -> bool:
        """Whether the risk is at most epsilon with the confidence asked for; without epsilon it is measured only."""
        return self.terms.epsilon is not None

    @property
    def measured(self) -> float:
        """The share of certification texts that were harmed."""
        return self.harms / self.certification


def calibrate(scores: Scores, evidence: Evidence, terms: Terms) -> Calibration:
    """Thresholds for one policy.

    `scores` are (E, N), or for a policy with a state a function that gives them when just some exits are read. Where
    nothing is certified but that nobody leaves, the thresholds are empty. With a budget it is the point with the least
    harm on the selection part whose mean cost keeps it; with both, the same among the certified points, or the cheapest
    of these if none keeps the budget (`within_budget` is then False).
    """
    return calibrate_best({"": scores}, evidence, terms)[1]


def calibrate_best(policies: Mapping[str, Scores], evidence: Evidence, terms: Terms) -> tuple[str, Calibration]:
    """The best of several policies with its thresholds.

    The selection part ranks them by cost at the tolerated risk; the best three are certified, each with its share of
    `delta`, and the cheapest point is kept. That is valid: which three, and in what order their points are tested, was
    settled before the certification part was looked at; each of the three certifies a point of too high a risk with
    probability delta / 3 at most, so by the union bound none of them does with probability 1 - delta. All certified
    points then keep the risk at once, and any choice among them does, also one made with the certification part itself.
    """
    if not policies:
        raise ConfigError("Calibration should have at least one policy. Found none.")
    count = min(FINALISTS, len(policies)) if terms.epsilon is not None else 1
    selection, certification = divide(evidence.texts, terms, count)
    cases = [(name, Case(Scoring(scores, evidence), evidence, terms)) for name, scores in policies.items()]
    drafts = {name: found for name, case in cases if (found := draft(case, selection)) is not None}
    if not drafts:
        least = evidence.cost[0] + terms.exit_cost * evidence.layer_cost if evidence.exits else evidence.cost[-1]
        raise ConfigError(
            f"The budget should be at least {least:.2f}, which is what it costs to leave at the first exit, or more "
            f"for a policy that lets nobody leave there. Found {terms.budget:g}."
        )
    finalists = sorted(drafts, key=lambda name: drafts[name].rank)[:count]
    kept = {name: _certified(drafts[name], len(selection), certification, count) for name in finalists}
    best = min(kept, key=lambda name: kept[name][0])
    return best, kept[best][1]


def _certified(
    found: Draft, selection: int, certification: NDArray[np.int64], tried: int
) -> tuple[tuple[float, ...], Calibration]:
    """The point of a path that is kept, and what to compare it with those of other policies by."""
    case, terms = found.case, found.case.terms
    outcomes = case.outcomes(found.exits, found.points, certification)
    texts, level = len(certification), terms.delta / tried
    allowed = np.ones(len(found.points), dtype=bool)
    if terms.epsilon is not None:
        allowed[:] = False
        allowed[fixed_sequence(p_values(outcomes.harms, texts, terms.epsilon), level)] = True
    within = None if terms.budget is None else found.outcomes.costs <= terms.budget
    if within is not None and (allowed & within).any():
        chosen = found.outcomes.safest(allowed & within)
    else:
        chosen = outcomes.cheapest(allowed)
    point = found.points[chosen]  # (E',)
    read = case.reads(found.exits, point[None])[0]
    harms, cost = int(outcomes.harms[chosen]), float(outcomes.costs[chosen])
    met = None if within is None else bool(within[chosen])
    accuracy_full, accuracy_early = _accuracies(found, point, certification)
    order = (float(harms), cost) if met else (cost, float(harms))
    return (float(met is False), *order), Calibration(
        thresholds={depth: float(t) for depth, t in zip(found.exits, point, strict=True) if np.isfinite(t)},
        exits=tuple(depth for depth, kept in zip(found.exits, read, strict=True) if kept),
        terms=terms,
        tried=tried,
        selection=selection,
        certification=texts,
        harms=harms,
        bound=upper_bound(harms, texts, level),
        cost=cost,
        mean_depth=float(outcomes.left[chosen] @ [*found.exits, case.evidence.layers]) / texts,
        within_budget=met,
        accuracy_full=accuracy_full,
        accuracy_early=accuracy_early,
        dial=_dial(found, outcomes, allowed, chosen, certification) if np.isfinite(point).any() else None,
    )


def _dial(found: Draft, outcomes: Outcomes, allowed: NDArray[np.bool_], chosen: int, texts: NDArray[np.int64]) -> Dial:
    """The path around the chosen point, as the certification part measured it."""
    case, depths = found.case, outcomes.left @ [*found.exits, found.case.evidence.layers] / len(texts)  # (P,)
    places = spread(depths.tolist(), chosen)
    points = []
    for place in places:
        point, read = found.points[place], case.reads(found.exits, found.points[place][None])[0]
        points.append(
            DialPoint(
                thresholds={depth: float(t) for depth, t in zip(found.exits, point, strict=True) if np.isfinite(t)},
                exits=tuple(depth for depth, kept in zip(found.exits, read, strict=True) if kept),
                mean_depth=float(depths[place]),
                harms=int(outcomes.harms[place]),
                accuracy=_accuracies(found, point, texts)[1],
                certified=case.terms.epsilon is not None and bool(allowed[place]),
            )
        )
    right = case.evidence.right
    exits = [] if right is None else right[:, case.evidence.answers(texts)].mean(axis=1).tolist()  # (E + 1,)
    by_exit = dict(zip([*case.evidence.exits, case.evidence.layers], exits, strict=False))
    return Dial(tuple(points), places.index(chosen), len(texts), by_exit)


def _accuracies(found: Draft, point: Floats, texts: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Of the last exit and of the point, where it is known who is right."""
    case = found.case
    if case.evidence.right is None:
        return None, None
    rows = case.evidence.answers(texts)
    right = case.evidence.right[[*case.columns(found.exits), -1]][:, rows]  # (E' + 1, N)
    gone = passing(case.scoring.of(found.exits)[:, rows], point[:, None])  # (E', N)
    place = np.argmax(np.vstack([gone, np.ones(len(rows), dtype=bool)]), axis=0)  # (N,), the first
    return float(right[-1].mean()), float(right[place, np.arange(len(rows))].mean())
