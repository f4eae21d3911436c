"""The losses of label sets as slow loops over Python floats: what `offramp.objectives` must equal.

Labels are Python sets of class numbers. Everything here is written from the formulas alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = Sequence[float]
Output = tuple[Sequence[Vector], Sequence[Vector], Sequence[Vector]]
"""What an exit says: the texts' representations, their logits, the label embeddings."""


def parts(
    name: str,
    output: Output,
    labels: Sequence[set[int]],
    teacher: Output | None = None,
    *,
    temperature: float = 0.5,
    denominator: str = "others",
    reduction: str = "sum",
    smoothing: float = 0.0,
) -> dict[str, float]:
    """The terms of the objective of this name."""
    texts, logits, classes = output
    how = (temperature, denominator, reduction)
    first = binary_cross_entropy(logits, labels, smoothing)
    alone: list[set[int]] = [*labels, *({k} for k in range(len(classes)))]
    if name == "ce":
        return {"ce": first}
    if name == "scl":
        return {"ce": first, "contrast": contrast(texts, labels, *how)}
    if name == "acl":
        return {"ce": first, "contrast": contrast([*texts, *classes], alone, *how)}
    assert teacher is not None
    if name == "acl-cl":
        both = [*texts, *classes, *teacher[0], *teacher[2]]
        return {"ce": first, "contrast": contrast(both, [*alone, *alone], *how)}
    return {"ce": first, "distill": soft_targets(logits, teacher[1], temperature)}


def binary_cross_entropy(logits: Sequence[Vector], labels: Sequence[set[int]], smoothing: float = 0.0) -> float:
    """The mean over the texts and the labels of -log of the probability of what is true."""
    terms = []
    for row, own in zip(logits, labels, strict=True):
        for k, value in enumerate(row):
            yes = (1.0 - smoothing) * (k in own) + smoothing / 2
            p = 1.0 / (1.0 + math.exp(-value))
            terms.append(-yes * math.log(p) - (1.0 - yes) * math.log(1.0 - p))
    return math.fsum(terms) / len(terms)


def jaccard(a: set[int], b: set[int]) -> float:
    """How much two sets have in common; an empty one nothing."""
    return len(a & b) / len(a | b) if a | b else 0.0


def contrast(
    vectors: Sequence[Vector], labels: Sequence[set[int]], temperature: float, denominator: str, reduction: str
) -> float:
    """Each vector against the others, those with which it shares labels weighted by how many."""
    unit = [_unit(vector) for vector in vectors]
    count = len(unit)
    anchors = []
    for i in range(count):
        shares = [jaccard(labels[i], labels[j]) if j != i else 0.0 for j in range(count)]
        if not any(shares):
            continue
        pool = [k for k in range(count) if denominator == "all" or k != i]
        normaliser = math.fsum(math.exp(_dot(unit[i], unit[k]) / temperature) for k in pool)
        logs = [w * math.log(math.exp(_dot(unit[i], unit[j]) / temperature) / normaliser) for j, w in enumerate(shares)]
        anchors.append(-math.fsum(logs) / math.fsum(shares))
    if reduction == "mean":
        return math.fsum(anchors) / len(anchors) if anchors else 0.0
    return math.fsum(anchors)


def soft_targets(logits: Sequence[Vector], teacher: Sequence[Vector], temperature: float) -> float:
    """T^2 KL(teacher || student) of each label's yes and no, mean over texts and labels."""
    terms = []
    for row, wanted in zip(logits, teacher, strict=True):
        for mine, theirs in zip(row, wanted, strict=True):
            p, q = (1.0 / (1.0 + math.exp(-value / temperature)) for value in (mine, theirs))
            terms.append(q * math.log(q / p) + (1.0 - q) * math.log((1.0 - q) / (1.0 - p)))
    return temperature**2 * math.fsum(terms) / len(terms)


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _unit(vector: Vector) -> list[float]:
    length = math.sqrt(_dot(vector, vector))
    return [x / length if length else 0.0 for x in vector]
