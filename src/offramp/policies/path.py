"""LOGITS SO FAR -> LEAVE OR STAY: a path of thresholds, from nobody leaving to everybody leaving.

For a tolerated rate q, exit after exit, the threshold is the lowest that keeps the harm among those who leave within q:

    t_d(q) = min { t : harms(d, t) <= q texts(d, t) },     +inf where there is none

where texts(d, t) are those that reach exit d, its earlier exits having their t(q), and score t or more there. A bolder
rate never has a higher threshold: t_d is made the least over all rates up to q. With the highest rate, 1, everybody
leaves at the first exit.

Between two rates the thresholds may fall far, above all between "nobody leaves" and the lowest without any harm. There
the path goes in steps, each of which lets through one text in a hundred more at an exit: a test that walks along the
path and ends where the risk is too high then ends near it. With such steps nothing is gained by adding to the harms of
few texts, as in (harms + 1) / (texts + 1): what is too bold is seen a few steps later, on the other texts.

Letters in the shapes: P points of the path, Q rates, E exits, N texts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
RATES: NDArray[np.float64] = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 63)])
"""Tolerated rates of harm among those who leave at an exit."""
STEP = 0.01
"""The largest share of the texts by which a threshold moves from one point of the path to the next."""


def path(scores: Floats, harm: NDArray[np.bool_], rates: NDArray[np.float64] = RATES, step: float = STEP) -> Floats:
    """Thresholds from the safest to the boldest, (P, E): at the first point nobody leaves.

    `scores` and `harm` are (E, N), exits ascending, with every exit read.

    >>> scores = np.array([[0.2, 0.4, 0.8, 0.9]], dtype=np.float32)
    >>> path(scores, np.array([[True, False, False, False]]), step=0.5).T
    array([[inf, 0.6, 0.3, 0.2]], dtype=float32)
    """
    exits, texts = scores.shape
    cuts = np.stack([_cuts(row) for row in scores]) if exits else np.empty((0, texts + 1), np.float32)  # (E, N + 1)
    below = np.full((len(rates) + 1, exits), texts)  # (Q + 1, E), how many texts a threshold keeps back
    here = np.ones((len(rates), texts), dtype=bool)  # (Q, N), who reaches the exit
    for place in range(exits):
        below[1:, place] = np.minimum.accumulate(_kept_back(scores[place], harm[place], here, rates))
        here &= ~passing(scores[place], cuts[place, below[1:, place], None])
    found: Floats = cuts[np.arange(exits), _in_steps(below, max(1.0, step * texts))]
    differs = np.append(True, (found[1:] != found[:-1]).any(axis=1))
    return np.asarray(found[differs])


def passing(scores: Floats, thresholds: Floats) -> NDArray[np.bool_]:
    """Where a score reaches its threshold; nothing reaches an infinite one."""
    return (scores >= thresholds) & np.isfinite(thresholds)


def _cuts(scores: Floats) -> NDArray[np.float32]:
    """Thresholds that keep back 0, 1, ..., N texts, (N + 1,); texts of equal score stay together.

    They lie half-way between two scores: a score that rounds otherwise in another batch falls on the same side.
    """
    high = np.sort(scores)
    low = np.append(-np.inf, high)[np.searchsorted(high, high)]  # the next lower score that is another
    half = np.where(np.isfinite(low), low, high).astype(np.float64) / 2 + high.astype(np.float64) / 2
    middle = half.astype(np.float32)
    return np.append(np.where(middle > low, middle, high), np.inf).astype(np.float32)


def _kept_back(
    scores: Floats, harm: NDArray[np.bool_], here: NDArray[np.bool_], rates: NDArray[np.float64]
) -> NDArray[np.int64]:
    """How many texts the lowest threshold keeps back whose harm is within each rate, (Q,)."""
    order = np.argsort(-scores, kind="stable")  # the surest first
    ordered, there = scores[order], here[:, order]  # (N,), (Q, N)
    texts = np.cumsum(there, axis=1, dtype=np.int32)  # (Q, N), who leaves with the threshold at this score
    harms = np.cumsum(there & harm[order], axis=1, dtype=np.int32)
    fine = (harms <= rates[:, None] * texts) & (texts > 0)
    fine &= (ordered > np.append(ordered[1:], -np.inf)) & np.isfinite(ordered)  # not between equals
    kept = np.argmax(fine[:, ::-1], axis=1)
    return np.where(fine.any(axis=1), kept, len(scores))


def _in_steps(below: NDArray[np.int64], largest: float) -> NDArray[np.int64]:
    """The same path with points between those that are more than `largest` apart."""
    parts = [below[:1]]
    for start, end in pairwise(below):
        steps = max(1, int(np.ceil(np.abs(end - start).max(initial=0) / largest)))
        parts.append(np.rint(np.linspace(start, end, steps + 1)[1:]).astype(np.int64))
    return np.concatenate(parts)
