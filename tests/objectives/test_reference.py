"""Every objective equals the paper's formula, computed by a slow loop."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.objectives import OBJECTIVES, objective
from offramp.objectives.ce import CrossEntropy
from offramp.types import ExitOutput, Loss

# Quarters: exact in binary, often zero or twice the same, never so short that a direction is lost.
quarters = st.integers(-8, 8).map(lambda i: i / 4)
Matrix = list[list[float]]
ADDING = [name for name, kind in OBJECTIVES.items() if issubclass(kind, CrossEntropy) and "weight" in kind.hyper]


@dataclass(frozen=True)
class Case:
    """A batch as plain lists, with all that some objective wants: each text in two views, and a teacher."""

    representation: Matrix  # (2B, D): all texts in their first view, then all in their second
    logits: Matrix  # (2B, C)
    label_embeddings: Matrix  # (C, D)
    labels: list[int]  # (B,)
    teacher: tuple[Matrix, Matrix, Matrix]  # (B, D), (B, C), (C, D)
    heads: int = 1

    def seen(self, name: str) -> tuple[tuple[Matrix, Matrix, Matrix], list[int], tuple[Matrix, Matrix, Matrix] | None]:
        """What the objective of this name sees of it."""
        labels = self.labels * OBJECTIVES[name].views
        output = (self.representation[: len(labels)], self.logits[: len(labels)], self.label_embeddings)
        return output, labels, self.teacher if OBJECTIVES[name].taught else None


@st.composite
def batches(draw: st.DrawFn) -> Case:
    texts, classes, slices, heads = (draw(st.integers(1, most)) for most in (7, 7, 3, 3))

    def matrix(rows: int, columns: int) -> Matrix:
        row = st.lists(quarters, min_size=columns, max_size=columns)
        return draw(st.lists(row, min_size=rows, max_size=rows))

    def output(rows: int) -> tuple[Matrix, Matrix, Matrix]:
        return matrix(rows, slices * heads), matrix(rows, classes), matrix(classes, slices * heads)

    labels = draw(st.lists(st.integers(0, classes - 1), min_size=texts, max_size=texts))
    return Case(*output(2 * texts), labels, output(texts), heads)


def odd(representation: Matrix, logits: Matrix, label_embeddings: Matrix, labels: list[int]) -> Case:
    """A case whose second views and teacher are its vectors turned round."""

    def turned(matrix: Matrix) -> Matrix:
        return [row[::-1] for row in matrix]

    teacher = (turned(representation), turned(logits), turned(label_embeddings))
    return Case([*representation, *teacher[0]], [*logits, *teacher[1]], label_embeddings, labels, teacher)


CASES = {
    "a batch of one": odd([[1.0, 2.0]], [[0.5, -1.0]], [[1.0, 0.0], [0.0, 1.0]], [1]),
    "one class in the batch": odd(
        [[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], [[1.0, 0.0]] * 3, [[1.0, 1.0], [-1.0, 1.0]], [0, 0, 0]
    ),
    "one class in the world": odd([[1.0, 0.0], [0.5, 0.5]], [[1.0], [-2.0]], [[1.0, 3.0]], [0, 0]),
    "a class with one text": odd(
        [[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], [[1.0, 0.0]] * 3, [[1.0, 1.0], [-1.0, 1.0]], [0, 1, 0]
    ),
    "a class absent from the batch": odd(
        [[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], [[1.0, 0.0, 2.0]] * 3, [[1.0, 1.0], [-1.0, 1.0], [1.0, -2.0]], [0, 2, 0]
    ),
    "every text alone in its class": odd([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0]] * 2, [[1.0, 1.0], [-1.0, 1.0]], [0, 1]),
    "more classes than texts": odd(
        [[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0, 2.0, 3.0, 4.0]] * 2, [[float(k), 1.0] for k in range(5)], [3, 3]
    ),
    "the same text twice, once with another label": odd(
        [[1.0, 2.0]] * 3, [[0.0, 1.0]] * 3, [[1.0, 2.0], [2.0, 1.0]], [0, 0, 1]
    ),
    "zero vectors": odd([[0.0, 0.0]] * 2 + [[1.0, 1.0]], [[0.0, 1.0]] * 3, [[0.0, 0.0], [1.0, 0.0]], [0, 0, 1]),
}

HYPER = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 5.0),
        "weight": st.floats(0.0, 1.0),
        "denominator": st.sampled_from(["others", "all"]),
        "reduction": st.sampled_from(["sum", "mean"]),
    }
)
DEFAULT = {"temperature": 0.5, "weight": 0.3, "denominator": "others", "reduction": "sum"}


def ours(name: str, case: Case, dtype: torch.dtype = torch.float64, **hyper: Any) -> Loss:
    output, labels, teacher = case.seen(name)
    exits = [part and ExitOutput(*(torch.tensor(m, dtype=dtype) for m in part)) for part in (output, teacher)]
    loss: Loss = objective(name, heads=case.heads, **hyper)(exits[0], torch.tensor(labels), exits[1])
    return loss


def slow(reference: ModuleType, name: str, case: Case, weight: float, **hyper: Any) -> float:
    return float(reference.total(reference.parts(name, *case.seen(name), heads=case.heads, **hyper), weight))


@settings(deadline=None, max_examples=60)
@given(case=batches(), hyper=HYPER)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_equals_the_papers_formula(reference: ModuleType, name: str, case: Case, hyper: dict) -> None:
    assert float(ours(name, case, **hyper).total) == pytest.approx(
        slow(reference, name, case, **hyper), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("denominator", ["others", "all"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_odd_batches_are_no_exception(
    reference: ModuleType, case: Case, name: str, denominator: str, reduction: str
) -> None:
    hyper = {**DEFAULT, "denominator": denominator, "reduction": reduction}
    wanted = slow(reference, name, case, **hyper)
    assert float(ours(name, case, **hyper).total) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(case=batches(), smoothing=st.floats(0.0, 0.9), data=st.data())
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_equals_the_weighted_smoothed_mean(
    reference: ModuleType, weighted: bool, case: Case, smoothing: float, data: st.DataObject
) -> None:
    classes = len(case.label_embeddings)
    weights = data.draw(st.lists(st.floats(0.1, 5.0), min_size=classes, max_size=classes)) if weighted else None
    tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    found = float(ours("ce", case, label_smoothing=smoothing, class_weights=tensor).total)
    wanted = slow(reference, "ce", case, 0.0, weights=weights, smoothing=smoothing)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ADDING)
def test_what_is_added_leaves_smoothing_and_weights_to_the_cross_entropy(reference: ModuleType, name: str) -> None:
    case = CASES["a class with one text"]
    found = ours(name, case, **DEFAULT, label_smoothing=0.2, class_weights=torch.tensor([0.5, 4.0]))
    wanted = slow(reference, name, case, **DEFAULT, weights=[0.5, 4.0], smoothing=0.2)
    assert float(found.total) == pytest.approx(wanted, rel=1e-12)


@settings(deadline=None, max_examples=20)
@given(case=batches(), temperature=st.floats(0.05, 2.0))
@pytest.mark.parametrize("name", OBJECTIVES)
def test_float32_is_near_enough(reference: ModuleType, name: str, case: Case, temperature: float) -> None:
    hyper = {**DEFAULT, "temperature": temperature, "reduction": "mean"}
    found = float(ours(name, case, torch.float32, **hyper).total)
    # LaCon sums over slices and over a label's texts, what adds up may cancel, and the rounding adds up all the same.
    near = 1e-4 if name in ("icl", "lcl", "lacon") else 1e-5
    assert found == pytest.approx(slow(reference, name, case, **hyper), rel=1e-5, abs=near)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_parts_are_the_terms(reference: ModuleType, name: str) -> None:
    case = CASES["a class with one text"]
    loss = ours(name, case, **DEFAULT)
    hyper = {key: value for key, value in DEFAULT.items() if key != "weight"}
    wanted = reference.parts(name, *case.seen(name), **hyper)
    assert {part: float(value) for part, value in loss.parts.items()} == pytest.approx(wanted, rel=1e-12)
    assert not any(value.requires_grad for value in loss.parts.values())
    if name in ADDING:
        # Apart, so that alignment can compare their gradients.
        assert loss.auxiliary is not None
        assert [float(loss.main), float(loss.auxiliary)] == pytest.approx(list(wanted.values()), rel=1e-12)
        assert (loss.main_weight, loss.auxiliary_weight) == (0.7, 0.3)
    else:
        assert loss.auxiliary is None
        assert loss.main_weight == 1.0
