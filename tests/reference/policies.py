"""The policies as slow loops over Python floats, one text at a time: what `offramp.policies` must equal.

An exit's output of one text is three lists: its representation, its logits, the label embeddings. `scores` takes those
of the exits that are read, from the shallowest to the deepest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = Sequence[float]
Output = tuple[Vector, Vector, Sequence[Vector]]
Head = tuple[Vector, float]
"""Weights and bias."""


def scores(
    name: str,
    outputs: Sequence[Output],
    *,
    patience: int = 2,
    heads: Sequence[Head] = (),
    tokens: Sequence[int] = (),
    priors: Sequence[tuple[Vector, float, float]] = (),
) -> list[float]:
    """The score of a text at each exit that is read.

    `heads` is one per exit, for `learned`; `priors` is the bucket weights, the weight of the length and the bias of
    each exit, for `prior`, and `tokens` the text without padding.
    """
    found: list[float] = []
    answers: list[int] = []
    tops: list[float] = []
    for place, (representation, logits, labels) in enumerate(outputs):
        answers.append(list(logits).index(max(logits)))
        tops.append(confidence(logits))
        if name == "confidence":
            found.append(tops[-1])
        elif name == "entropy":
            found.append(concentration(logits))
        elif name == "margin":
            found.append(margin(logits))
        elif name == "energy":
            top = max(logits)
            found.append(top + math.log(math.fsum(math.exp(value - top) for value in logits)))
        elif name == "anchor":
            found.append(ahead([cosine(representation, label) for label in labels], alone=2.0))
        elif name == "patience":
            held = 0
            while held <= place and answers[place - held] == answers[place]:
                held += 1
            found.append(float(held))
        elif name == "patient-confidence":
            found.append(min(tops[-patience:]) if len(tops) >= patience else -math.inf)
        elif name == "vote":
            found.append(answers.count(answers[-1]) / math.sqrt(len(answers)))
        elif name == "learned":
            read = [*representation, tops[-1], margin(logits), concentration(logits)]
            weights, bias = heads[place]
            found.append(logistic(math.fsum(w * x for w, x in zip(weights, read, strict=True)) + bias))
        elif name == "prior":
            buckets, slope, bias = priors[place]
            bag = math.fsum(buckets[token % len(buckets)] for token in tokens) / math.sqrt(len(tokens))
            found.append(logistic(bag + slope * math.log(len(tokens)) + bias))
        else:
            raise ValueError(name)
    return found


def depth(scores: Sequence[float], thresholds: Sequence[float], exits: Sequence[int], last: int) -> int:
    """The first exit whose score reaches its threshold, else the last."""
    for score, threshold, here in zip(scores, thresholds, exits, strict=True):
        if score >= threshold:
            return here
    return last


def probabilities(logits: Vector) -> list[float]:
    raised = [math.exp(value - max(logits)) for value in logits]
    return [value / math.fsum(raised) for value in raised]


def confidence(logits: Vector) -> float:
    return max(probabilities(logits))


def margin(logits: Vector) -> float:
    return ahead(probabilities(logits), alone=1.0)


def concentration(logits: Vector) -> float:
    if len(logits) == 1:
        return 1.0
    entropy = -math.fsum(p * math.log(p) for p in probabilities(logits) if p > 0.0)
    return 1.0 - entropy / math.log(len(logits))


def ahead(values: Vector, alone: float) -> float:
    """The largest less the second; `alone` where there is no second."""
    if len(values) == 1:
        return alone
    first, second = sorted(values, reverse=True)[:2]
    return first - second


def cosine(one: Vector, other: Vector) -> float:
    """0 where either has no direction."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))
