"""The papers' losses as slow loops over Python floats: what `offramp.objectives` must equal.

Vectors are lists of floats, labels are ints; nothing here knows of tensors. Equation numbers are the papers'.
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
    labels: Sequence[int],
    teacher: Output | None = None,
    *,
    temperature: float = 0.5,
    heads: int = 1,
    denominator: str = "others",
    reduction: str = "sum",
    weights: Vector | None = None,
    smoothing: float = 0.0,
) -> dict[str, float]:
    """The terms of the objective of this name."""
    texts, logits, classes = output
    names = [*labels, *range(len(classes))]
    how = (temperature, denominator, reduction)
    first = cross_entropy(logits, labels, weights, smoothing)
    if name == "ce":
        return {"ce": first}
    if name == "scl":  # SCL eq. 3
        return {"ce": first, "contrast": contrast(texts, labels, *how)}
    if name == "acl":  # ACL section 4.2: the label embeddings are further samples {(l_k, k)}
        return {"ce": first, "contrast": contrast([*texts, *classes], names, *how)}
    if name == "acl-cl":  # ACL section 4.4: and so are the teacher's texts and label embeddings
        assert teacher is not None
        both = [*texts, *classes, *teacher[0], *teacher[2]]
        return {"ce": first, "contrast": contrast(both, [*names, *names], *how)}
    if name == "infonce":
        return {"ce": first, "contrast": infonce(texts, temperature, reduction)}
    if name == "distill":
        assert teacher is not None
        return {"ce": first, "distill": soft_targets(logits, teacher[1], temperature)}
    terms = {
        "icl": icl(texts, classes, labels, temperature, heads),
        "lcl": lcl(texts, classes, labels, temperature),
        "ler": ler(classes),
    }
    return terms if name == "lacon" else {name: terms[name]}


def total(terms: dict[str, float], weight: float) -> float:
    """The weighted sum of an objective's terms."""
    if len(terms) == 1:
        return next(iter(terms.values()))
    if "ce" in terms:  # SCL eq. 1
        entropy, other = terms.values()
        return (1.0 - weight) * entropy + weight * other
    return terms["icl"] + terms["lcl"] + weight * terms["ler"]  # LaCon eq. 7


def cross_entropy(
    logits: Sequence[Vector], labels: Sequence[int], weights: Vector | None = None, smoothing: float = 0.0
) -> float:
    """SCL eq. 2, for any number of classes.

    With class weights the mean is weighted by each text's own class; smoothing takes the target from the one class
    towards the uniform distribution.
    """
    classes = len(logits[0])
    weights = weights or [1.0] * classes
    terms, total = [], 0.0
    for row, label in zip(logits, labels, strict=True):
        normaliser = math.fsum(math.exp(value) for value in row)
        for k in range(classes):
            target = smoothing / classes + (1.0 - smoothing if k == label else 0.0)
            terms.append(-weights[label] * target * math.log(math.exp(row[k]) / normaliser))
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


def infonce(views: Sequence[Vector], temperature: float, reduction: str) -> float:
    """SCL eq. 4 (`sum`); `mean` divides by the 2N views. View i of the first half and i + N show the same text."""
    unit = [_unit(view) for view in views]
    count = len(unit)
    anchors = []
    for i in range(count):
        other = (i + count // 2) % count
        normaliser = math.fsum(math.exp(_dot(unit[i], unit[k]) / temperature) for k in range(count) if k != i)
        anchors.append(-math.log(math.exp(_dot(unit[i], unit[other]) / temperature) / normaliser))
    return math.fsum(anchors) / (count if reduction == "mean" else 1)


def soft_targets(logits: Sequence[Vector], teacher: Sequence[Vector], temperature: float) -> float:
    """Hinton's soft targets: T^2 KL(teacher || student), mean over the texts."""
    terms = []
    for row, wanted in zip(logits, teacher, strict=True):
        student, target = _softmax(row, temperature), _softmax(wanted, temperature)
        terms += [q * math.log(q / p) for p, q in zip(student, target, strict=True)]
    return temperature**2 * math.fsum(terms) / len(logits)


def softened(terms: dict[str, float], weight: float, share: float, soft: float) -> float:
    """The weighted sum of an objective's terms, with a share of soft targets in its cross entropy.

    An objective without a cross entropy shares all of it.
    """
    if "ce" in terms:
        return total({**terms, "ce": (1.0 - share) * terms["ce"] + share * soft}, weight)
    return (1.0 - share) * total(terms, weight) + share * soft


def icl(
    texts: Sequence[Vector], classes: Sequence[Vector], labels: Sequence[int], temperature: float, heads: int
) -> float:
    """LaCon eq. 4; with one head, eq. 3."""
    width = len(texts[0]) // heads
    terms = []
    for head in range(heads):
        cut = slice(head * width, (head + 1) * width)
        for text, label in zip(texts, labels, strict=True):
            shares = _softmax([_cosine(text[cut], anchor[cut]) for anchor in classes], temperature)
            terms.append(-math.log(shares[label]))
    return math.fsum(terms) / len(texts)


def lcl(texts: Sequence[Vector], classes: Sequence[Vector], labels: Sequence[int], temperature: float) -> float:
    """LaCon eq. 5. The formula divides by 0 for a label that has no negative; such a label is left out."""
    present = sorted(set(labels))
    terms = []
    for p in present:
        scores = [math.exp(_cosine(classes[p], text) / temperature) for text in texts]
        negatives = [score for score, label in zip(scores, labels, strict=True) if label != p]
        if negatives:
            positives = [score for score, label in zip(scores, labels, strict=True) if label == p]
            terms += [math.log(score / math.fsum(negatives)) for score in positives]
    return -math.fsum(terms) / len(present)


def ler(classes: Sequence[Vector]) -> float:
    """LaCon eq. 6; 0 where there is no pair."""
    count = len(classes)
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    terms = [math.exp(1.0 + _cosine(classes[i], classes[j])) - 1.0 for i, j in pairs]
    return math.fsum(terms) / len(pairs) if pairs else 0.0


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _unit(vector: Vector) -> list[float]:
    """The vector at length 1; a zero vector has no direction and stays zero."""
    length = math.sqrt(_dot(vector, vector))
    return [x / length if length else 0.0 for x in vector]


def _cosine(a: Vector, b: Vector) -> float:
    return _dot(_unit(a), _unit(b))


def _softmax(row: Vector, temperature: float) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / math.fsum(powers) for power in powers]
