"""The papers' losses as slow loops over Python floats: what `offramp.objectives` must equal.

Vectors are lists of floats, labels are ints; nothing here knows of tensors. Equation numbers are the papers'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = Sequence[float]


def cross_entropy(
    logits: Sequence[Vector], labels: Sequence[int], weights: Vector | None = None, smoothing: float = 0.0
) -> float:
    """SCL eq. 2, for any number of classes.

    With class weights the mean is weighted by each text's own class, and so is each term of the sum over classes;
    smoothing takes the target from the one class towards the uniform distribution.
    """
    classes = len(logits[0])
    weights = weights or [1.0] * classes
    terms, total = [], 0.0
    for row, label in zip(logits, labels, strict=True):
        normaliser = math.fsum(math.exp(value) for value in row)
        for k in range(classes):
            target = smoothing / classes + (1.0 - smoothing if k == label else 0.0)
            terms.append(-weights[k] * target * math.log(math.exp(row[k]) / normaliser))
        total += weights[label]
    return math.fsum(terms) / total


def contrast(
    vectors: Sequence[Vector], labels: Sequence[int], temperature: float, denominator: str, reduction: str
) -> float:
    """SCL eq. 3 (`others`: k != i in the denominator) and ACL eq. 1 (`all`: every k).

    The formula divides by 0 for an anchor that has no positive; such an anchor is left out.
    """
    unit = [_unit(vector) for vector in vectors]
    count = len(unit)
    anchors = []
    for i in range(count):
        positives = [j for j in range(count) if j != i and labels[j] == labels[i]]
        if not positives:
            continue
        pool = [k for k in range(count) if denominator == "all" or k != i]
        normaliser = math.fsum(math.exp(_dot(unit[i], unit[k]) / temperature) for k in pool)
        logs = [math.log(math.exp(_dot(unit[i], unit[j]) / temperature) / normaliser) for j in positives]
        anchors.append(-math.fsum(logs) / len(positives))
    if reduction == "mean":
        return math.fsum(anchors) / len(anchors) if anchors else 0.0
    return math.fsum(anchors)


def scl(
    representation: Sequence[Vector],
    logits: Sequence[Vector],
    labels: Sequence[int],
    *,
    temperature: float,
    weight: float,
    denominator: str = "others",
    reduction: str = "sum",
    weights: Vector | None = None,
    smoothing: float = 0.0,
) -> float:
    """SCL eq. 1."""
    entropy = cross_entropy(logits, labels, weights, smoothing)
    return (1.0 - weight) * entropy + weight * contrast(representation, labels, temperature, denominator, reduction)


def acl(
    representation: Sequence[Vector],
    logits: Sequence[Vector],
    label_embeddings: Sequence[Vector],
    labels: Sequence[int],
    *,
    temperature: float,
    weight: float,
    denominator: str = "others",
    reduction: str = "sum",
    weights: Vector | None = None,
    smoothing: float = 0.0,
) -> float:
    """ACL section 4.2: the contrast over the texts and, as further samples {(l_k, k)}, the label embeddings."""
    entropy = cross_entropy(logits, labels, weights, smoothing)
    vectors = [*representation, *label_embeddings]
    names = [*labels, *range(len(label_embeddings))]
    return (1.0 - weight) * entropy + weight * contrast(vectors, names, temperature, denominator, reduction)


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _unit(vector: Vector) -> list[float]:
    """The vector at length 1; a zero vector has no direction and stays zero."""
    length = math.sqrt(_dot(vector, vector))
    return [x / length if length else 0.0 for x in vector]
