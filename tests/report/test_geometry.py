"""Alignment, uniformity and the spectrum equal slow loops, and closed forms where there are some."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.errors import DataError
from offramp.report import geometry as module
from offramp.report.geometry import geometry


def drawn(texts: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    chance = np.random.default_rng(seed)
    return chance.normal(size=(texts, width)), [int(k) for k in chance.integers(classes, size=texts)]


def loops(vectors: np.ndarray, labels: list[int]) -> tuple[float, float, float]:
    """Alignment, uniformity and effective rank, pair by pair and from the eigenvalues of the Gram matrix."""
    unit = [vector / np.linalg.norm(vector) for vector in vectors]
    same, kernel = [], []
    for i, first in enumerate(unit):
        for j, second in enumerate(unit):
            if i != j:
                square = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
                kernel.append(math.exp(-2 * square))
                if labels[i] == labels[j]:
                    same.append(square)
    eigenvalues = np.linalg.eigvalsh(np.stack(unit).T @ np.stack(unit))
    roots = np.sqrt(np.maximum(eigenvalues, 0))
    shares = [root / roots.sum() for root in roots if root > 1e-9]
    entropy = -sum(share * math.log(share) for share in shares)
    return sum(same) / len(same), math.log(sum(kernel) / len(kernel)), math.exp(entropy)


@pytest.mark.parametrize(("texts", "width", "classes"), [(2, 3, 1), (12, 5, 3), (30, 4, 2), (7, 16, 2)])
def test_the_numbers_equal_slow_loops(texts: int, width: int, classes: int) -> None:
    vectors, labels = drawn(texts, width, classes)
    found = geometry(vectors, labels)
    wanted = loops(vectors, labels)
    assert (found.alignment, found.uniformity, found.effective_rank) == pytest.approx(wanted, rel=1e-6)


def test_a_part_of_the_rows_at_a_time_gives_what_all_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = drawn(50, 6, 3)
    whole = geometry(vectors, labels)
    monkeypatch.setattr(module, "ROWS", 7)
    assert geometry(vectors, labels) == whole


def test_the_squares_of_the_singular_values_sum_to_one() -> None:
    vectors, labels = drawn(40, 8, 2)
    values = geometry(vectors, labels).singular_values
    assert sum(value**2 for value in values) == pytest.approx(1.0, rel=1e-6)
    assert list(values) == sorted(values, reverse=True)


def test_length_does_not_count() -> None:
    vectors, labels = drawn(20, 5, 2)
    assert geometry(vectors * np.arange(1, 21)[:, None], labels) == geometry(vectors, labels)


def test_texts_in_one_direction_have_rank_one_and_no_distance() -> None:
    found = geometry(np.ones((6, 4)), [0, 0, 1, 1, 2, 2])
    assert (found.alignment, found.uniformity, found.effective_rank) == (0.0, 0.0, 1.0)


def test_texts_along_all_axes_use_all_of_them() -> None:
    found = geometry(np.eye(5), range(5))
    assert found.effective_rank == pytest.approx(5.0, rel=1e-6)
    assert found.alignment is None  # no label has two texts
    assert found.uniformity == pytest.approx(-4.0, rel=1e-6)  # every squared distance is 2


def test_of_many_texts_evenly_spread_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = drawn(99, 4, 3)
    monkeypatch.setattr(module, "MOST", 50)
    assert geometry(vectors, labels) == geometry(vectors[::2], labels[::2])


def test_a_zero_vector_stays_zero_and_all_is_finite() -> None:
    found = geometry(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), [0, 0, 1])
    assert found.alignment == 1.0
    assert all(math.isfinite(value) for value in (found.uniformity or 0.0, found.effective_rank))


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="one vector for each label"):
        geometry(np.ones((3, 2)), [0, 1])
