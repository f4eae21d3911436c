"""MODEL -> FAST MODEL: a policy run at many thresholds, each for real, to see what time and layers it takes.

Letters in the shapes: E exits below the last, N texts, U scores that differ.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from offramp.data.tokens import Tokens
from offramp.data.words import Words
from offramp.errors import ConfigError
from offramp.policies.fixed import Fixed
from offramp.policies.never import Never
from offramp.policies.replay import depths, scores
from offramp.policies.scored import Scored
from offramp.reading import answers
from offramp.runtime.engine import Engine, pool, run
from offramp.types import Decision, Policy

POINTS = 15  # thresholds of a sweep
ROUNDS = 3  # over all policies, of which the median is taken
MOST_TIMED = 256  # texts of a round: a mean over these is steady, more would only take longer

Make = Callable[[float | Mapping[int, float]], Scored]
"""A policy with these thresholds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A policy that was run."""

    decision: Decision  # on all texts
    seconds: float  # per text


@dataclass(frozen=True, slots=True)
class Sweep:
    """A policy from "everybody leaves at once" to "nobody leaves", and what it is compared with."""

    thresholds: list[float | None]  # rising; None: nobody leaves
    swept: list[Measured]  # by threshold
    full: Measured  # no exit is read but the last
    truncated: dict[int, Measured]  # every text leaves at this depth
    calibrated: Measured | None
    answers: dict[int, Tensor]  # by trained depth: the exit's classes, (N,), or of label sets (N, C)
    scores: dict[int, Tensor]  # by trained depth: the policy's score there, (N,); absent where it has none
    timed: int  # texts of a round
    rounds: int


def sweep(engine: Engine, tokens: Tokens, make: Make, calibrated: Policy | None, batch_size: int) -> Sweep:
    """The policy at thresholds that spread its mean depth, one threshold for all exits at a time."""
    judge = make(1.0)
    read = [depth for depth in engine.trained if judge.reads(depth)]
    exits = [depth for depth in read if depth < engine.depth]
    if not exits:
        raise ConfigError(
            "A model should have a trained exit below the last for its policy to be swept. Found none, so that there "
            "is nothing to sweep: train with a recipe that trains every exit, such as acl-multi-exit."
        )
    pooled = pool(engine, tokens, batch_size, sorted({*engine.trained, engine.depth}))
    known = scores(judge, pooled, read)  # (E, N), with the last exit where that was trained
    chosen = even_thresholds(known[: len(exits)], exits, engine.depth, judge.range[0])
    fixed = [depth for depth in engine.trained if depth < engine.depth]
    policies: list[Policy] = [make(dict.fromkeys(exits, math.inf if t is None else t)) for t in chosen]
    policies += [Never(), *(Fixed(depth) for depth in fixed), *([] if calibrated is None else [calibrated])]
    some = _some(tokens, MOST_TIMED)
    ran = measure(engine, tokens, some, policies, batch_size)
    rest = ran[len(chosen) :]
    return Sweep(
        thresholds=chosen,
        swept=ran[: len(chosen)],
        full=rest[0],
        truncated=dict(zip(fixed, rest[1:], strict=False)),
        calibrated=None if calibrated is None else rest[-1],
        answers={depth: answers(pooled.outputs[depth].logits, judge.sets) for depth in engine.trained},
        scores=dict(zip(read, known, strict=True)),
        timed=len(some),
        rounds=ROUNDS,
    )


def measure(
    engine: Engine, tokens: Tokens, timed: Tokens, policies: Sequence[Policy], batch_size: int
) -> list[Measured]:
    """Every policy on all texts, which warms up too, and its time per text on some of them.

    Each round goes through all policies, every other one backwards, and the median is taken: a slow moment meets
    neighbours alike, and one slow round counts for nothing.
    """
    decisions = [run(engine, tokens, policy, batch_size) for policy in policies]
    taken: list[list[float]] = [[] for _ in policies]
    for number in range(ROUNDS):
        places = range(len(policies))
        for place in reversed(places) if number % 2 else places:
            start = perf_counter()
            run(engine, timed, policies[place], batch_size)
            taken[place].append((perf_counter() - start) / len(timed))
    return [Measured(decision, median(times)) for decision, times in zip(decisions, taken, strict=True)]


def even_thresholds(
    scores: Tensor, exits: Sequence[int], last: int, lowest: float, points: int = POINTS
) -> list[float | None]:
    """At most this many thresholds, rising, whose mean depths on texts with these scores, (E, N), are spread evenly.

    The first lets everybody leave as early as the policy can; the last, None, nobody. Each stands between two scores
    and not on one, so that rounding moves nobody across it. `lowest` is the least threshold the policy takes.
    """
    values = scores[scores.isfinite()].unique().tolist()  # U, rising

    def threshold(place: int) -> float:
        """The one that the scores from this place on reach."""
        if place == len(values):
            return math.inf
        return max(lowest, math.floor(values[0]) - 1.0) if place == 0 else _between(values[place - 1], values[place])

    def layers(place: int) -> int:
        """Run by all texts together."""
        return int(depths(scores, torch.full((len(exits),), threshold(place)), exits, last).sum())

    least, most = layers(0), layers(len(values))
    found: dict[int, float] = {}
    for point in range(points):
        wanted = least + (most - least) * point / (points - 1)
        # Depths never fall when a threshold rises.
        above = min(bisect_left(range(len(values) + 1), wanted, key=layers), len(values))
        place = min(above, max(0, above - 1), key=lambda near: abs(layers(near) - wanted))
        found.setdefault(layers(place), threshold(place))
    return [None if limit == math.inf else limit for limit in found.values()]


def _between(low: float, high: float) -> float:
    """A number between the two, with few digits."""
    middle = (low + high) / 2
    return next((short for digits in range(17) if low < (short := round(middle, digits)) < high), middle)


def _some(tokens: Tokens, most: int) -> Tokens:
    """At most so many of the texts, from all over."""
    if len(tokens) <= most:
        return tokens
    rows = np.linspace(0, len(tokens) - 1, most).round().astype(np.int64)  # (M,)
    lengths = tokens.lengths[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    # Places of their tokens among all.
    flat = np.repeat(tokens.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
    types = None if tokens.types is None else tokens.types[flat]
    words = None
    if tokens.words is not None:
        inside = tokens.words.of_texts(rows)
        counts = tokens.words.counts[rows]
        read = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(tokens.words.offsets)[rows])])
        words = Words(tokens.words.marks[flat], read, tokens.words.places[inside], counts)
    return Tokens(ids=tokens.ids[flat], offsets=offsets, pad=tokens.pad, types=types, words=words)
