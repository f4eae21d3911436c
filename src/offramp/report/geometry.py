"""DECISIONS -> NUMBERS, PICTURES: how representations lie on the sphere: alignment, uniformity, singular values.

With z the representations at length 1, over pairs of different texts,

    alignment  = mean over pairs of one label of |z_i - z_j|^2            (small: a label's texts lie close)
    uniformity = log of the mean over all pairs of exp(-2 |z_i - z_j|^2)  (small: texts use the whole sphere)

References: Wang and Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity, eq. for
alpha = 2 and t = 2, where pairs of one label stand for their positive pairs. The singular values of Z, (N, D), over
sqrt(N) tell how many directions are used (LaCon appendix A.3 argues that its contrast flattens them); the effective
rank is the exponential of their entropy (Roy and Vetterli, The Effective Rank).

>>> import numpy as np
>>> found = geometry(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])
>>> found.alignment, round(found.effective_rank, 6), [round(value, 3) for value in found.singular_values]
(0.0, 2.0, [0.707, 0.707, 0.0, 0.0])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offramp.errors import DataError

Vectors = npt.NDArray[np.float64]
MOST = 4000  # texts of which all pairs are looked at
ROWS = 512  # of them at a time
DIGITS = 7  # significant ones that are kept: beyond them lies the order of summation


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the representations of n texts lie."""

    n: int
    alignment: float | None  # None where no label has two texts
    uniformity: float | None  # None where there is one text
    singular_values: tuple[float, ...]  # (min(N, D),), largest first; their squares sum to 1
    effective_rank: float


def geometry(representation: npt.ArrayLike, labels: Sequence[int]) -> Geometry:
    """The geometry of representations (N, D) with their labels (N,); of more than `MOST` texts, of evenly spread ones.

    Zero vectors have no direction and stay zero.
    """
    vectors = np.asarray(representation, dtype=np.float64)  # (N, D)
    truth = np.asarray(labels, dtype=np.int64)  # (N,)
    if vectors.ndim != 2 or not len(vectors) or len(vectors) != len(truth):
        raise DataError(
            f"Representations should be one vector for each label. Found {vectors.shape} and {len(truth)} labels."
        )
    if len(vectors) > MOST:
        rows = np.linspace(0, len(vectors) - 1, MOST).round().astype(np.int64)
        vectors, truth = vectors[rows], truth[rows]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (N, 1)
    unit: Vectors = vectors / np.where(lengths > 0, lengths, 1.0)
    values: Vectors = np.linalg.svd(unit, compute_uv=False).astype(np.float64) / math.sqrt(len(unit))  # (min(N, D),)
    return Geometry(
        len(unit),
        _alignment(unit, truth),
        _uniformity(unit),
        tuple(_rounded(float(value)) for value in values),
        _rounded(_effective_rank(values)),
    )


def _alignment(unit: Vectors, truth: npt.NDArray[np.int64]) -> float | None:
    """In closed form: of n vectors, the squared distances over i < j sum to n sum |z_i|^2 - |sum z_i|^2."""
    total, pairs = 0.0, 0
    for label in np.unique(truth):
        mine = unit[truth == label]  # (n, D)
        count = len(mine)
        total += count * float((mine**2).sum()) - float((mine.sum(axis=0) ** 2).sum())
        pairs += count * (count - 1) // 2
    return _rounded(max(0.0, total) / pairs) if pairs else None


def _uniformity(unit: Vectors) -> float | None:
    count, total = len(unit), 0.0
    if count < 2:
        return None
    squares = (unit**2).sum(axis=1)  # (N,)
    for start in range(0, count, ROWS):
        part = slice(start, start + ROWS)
        distances = squares[part, None] + squares - 2.0 * unit[part] @ unit.T  # (R, N)
        kernel = np.exp(-2.0 * np.maximum(distances, 0.0))  # (R, N)
        total += float(kernel.sum()) - float(np.diagonal(kernel, offset=start).sum())
    return _rounded(math.log(total / (count * (count - 1))))


def _effective_rank(values: Vectors) -> float:
    shares = values[values > 0] / values.sum() if values.sum() > 0 else np.ones(1)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if abs(value) > 1e-12 else 0.0
