"""Every objective equals the paper's formula, computed by a slow loop."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.objectives import objective
from offramp.types import ExitOutput

# Quarters: exact in binary, often zero or twice the same, never so short that a direction is lost.
quarters = st.integers(-8, 8).map(lambda i: i / 4)


@dataclass(frozen=True)
class Case:
    """A batch as plain lists."""

    representation: list[list[float]]
    logits: list[list[float]]
    label_embeddings: list[list[float]]
    labels: list[int]


@st.composite
def batches(draw: st.DrawFn) -> Case:
    texts, classes, size = draw(st.integers(1, 9)), draw(st.integers(1, 7)), draw(st.integers(1, 4))

    def matrix(rows: int, columns: int) -> list[list[float]]:
        row = st.lists(quarters, min_size=columns, max_size=columns)
        return draw(st.lists(row, min_size=rows, max_size=rows))

    labels = draw(st.lists(st.integers(0, classes - 1), min_size=texts, max_size=texts))
    return Case(matrix(texts, size), matrix(texts, classes), matrix(classes, size), labels)


CASES = {
    "a batch of one": Case([[1.0, 2.0]], [[0.5, -1.0]], [[1.0, 0.0], [0.0, 1.0]], [1]),
    "one class in the batch": Case(
        [[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], [[1.0, 0.0]] * 3, [[1.0, 1.0], [-1.0, 1.0]], [0, 0, 0]
    ),
    "a class with one text": Case(
        [[1.0, 0.0], [0.5, 0.5], [0.0, -1.0]], [[1.0, 0.0]] * 3, [[1.0, 1.0], [-1.0, 1.0]], [0, 1, 0]
    ),
    "every text alone in its class": Case(
        [[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0]] * 2, [[1.0, 1.0], [-1.0, 1.0]], [0, 1]
    ),
    "more classes than texts": Case(
        [[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0, 2.0, 3.0, 4.0]] * 2, [[float(k), 1.0] for k in range(5)], [3, 3]
    ),
    "the same text twice, once with another label": Case(
        [[1.0, 2.0]] * 3, [[0.0, 1.0]] * 3, [[1.0, 2.0], [2.0, 1.0]], [0, 0, 1]
    ),
    "zero vectors": Case([[0.0, 0.0]] * 2 + [[1.0, 1.0]], [[0.0, 1.0]] * 3, [[0.0, 0.0], [1.0, 0.0]], [0, 0, 1]),
}

HYPER = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 5.0),
        "weight": st.floats(0.01, 1.0),
        "denominator": st.sampled_from(["others", "all"]),
        "reduction": st.sampled_from(["sum", "mean"]),
    }
)
DEFAULT = {"temperature": 0.5, "weight": 0.3, "denominator": "others", "reduction": "sum"}


def ours(name: str, case: Case, dtype: torch.dtype = torch.float64, **hyper: Any) -> float:
    tensors = (torch.tensor(part, dtype=dtype) for part in (case.representation, case.logits, case.label_embeddings))
    return float(objective(name, **hyper)(ExitOutput(*tensors), torch.tensor(case.labels)).total)


def slow(reference: ModuleType, name: str, case: Case, **hyper: Any) -> float:
    if name == "scl":
        return float(reference.scl(case.representation, case.logits, case.labels, **hyper))
    return float(reference.acl(case.representation, case.logits, case.label_embeddings, case.labels, **hyper))


@settings(deadline=None, max_examples=60)
@given(case=batches(), hyper=HYPER)
@pytest.mark.parametrize("name", ["scl", "acl"])
def test_a_contrast_equals_the_papers_formula(reference: ModuleType, name: str, case: Case, hyper: dict) -> None:
    assert ours(name, case, **hyper) == pytest.approx(slow(reference, name, case, **hyper), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("denominator", ["others", "all"])
@pytest.mark.parametrize("name", ["scl", "acl"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_odd_batches_are_no_exception(
    reference: ModuleType, case: Case, name: str, denominator: str, reduction: str
) -> None:
    hyper = {**DEFAULT, "denominator": denominator, "reduction": reduction}
    assert ours(name, case, **hyper) == pytest.approx(slow(reference, name, case, **hyper), rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(case=batches(), smoothing=st.floats(0.0, 0.9), data=st.data())
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_equals_the_weighted_smoothed_mean(
    reference: ModuleType, weighted: bool, case: Case, smoothing: float, data: st.DataObject
) -> None:
    classes = len(case.label_embeddings)
    weights = data.draw(st.lists(st.floats(0.1, 5.0), min_size=classes, max_size=classes)) if weighted else None
    tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    found = ours("ce", case, label_smoothing=smoothing, class_weights=tensor)
    wanted = reference.cross_entropy(case.logits, case.labels, weights, smoothing)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["scl", "acl"])
def test_a_contrast_smooths_and_weighs_its_cross_entropy(reference: ModuleType, name: str) -> None:
    case = CASES["a class with one text"]
    found = ours(name, case, **DEFAULT, label_smoothing=0.2, class_weights=torch.tensor([0.5, 4.0]))
    assert found == pytest.approx(slow(reference, name, case, **DEFAULT, weights=[0.5, 4.0], smoothing=0.2), rel=1e-12)


@settings(deadline=None, max_examples=20)
@given(case=batches(), temperature=st.floats(0.05, 2.0))
@pytest.mark.parametrize("name", ["scl", "acl"])
def test_float32_is_near_enough(reference: ModuleType, name: str, case: Case, temperature: float) -> None:
    hyper = {**DEFAULT, "temperature": temperature, "reduction": "mean"}
    found = ours(name, case, torch.float32, **hyper)
    assert found == pytest.approx(slow(reference, name, case, **hyper), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["scl", "acl"])
def test_the_parts_are_the_two_terms(reference: ModuleType, name: str) -> None:
    case = CASES["a class with one text"]
    tensors = (torch.tensor(part).double() for part in (case.representation, case.logits, case.label_embeddings))
    loss = objective(name, **DEFAULT)(ExitOutput(*tensors), torch.tensor(case.labels))
    entropy = reference.cross_entropy(case.logits, case.labels)
    contrast = slow(reference, name, case, **{**DEFAULT, "weight": 1.0})
    assert loss.auxiliary is not None
    assert {part: float(value) for part, value in loss.parts.items()} == pytest.approx(
        {"ce": entropy, "contrast": contrast}, rel=1e-12
    )
    assert (float(loss.main), float(loss.auxiliary)) == pytest.approx((entropy, contrast), rel=1e-12)
    assert (loss.main_weight, loss.auxiliary_weight) == (0.7, 0.3)
