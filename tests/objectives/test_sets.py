"""Objectives of label sets: the slow loop's value, single labels as a special case, finite whatever the batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.reference import set_objectives as reference

from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES, objective
from offramp.objectives.ce import CrossEntropy
from offramp.objectives.contrast import overlaps
from offramp.objectives.softened import Softened
from offramp.types import ExitOutput

NAMES = ("ce", "scl", "acl", "acl-cl", "distill")
CONTRASTIVE = ("scl", "acl", "acl-cl")
BATCHES: dict[str, list[set[int]]] = {
    "several sets": [{0, 1}, {1}, set(), {0, 1, 2}, {2, 3}, {0, 1}],
    "one set": [{1, 2}, {1, 2}, {1, 2}],
    "one text": [{0, 2}],
    "no labels at all": [set(), set(), set()],
    "nothing in common": [{0}, {1}, {2, 3}],
    "one empty set": [set()],
}
SETTINGS = [(d, r) for d in ("others", "all") for r in ("sum", "mean")]


def rows(sets: list[set[int]], classes: int = 4) -> torch.Tensor:
    return torch.tensor([[int(k in own) for k in range(classes)] for own in sets])


@pytest.fixture
def make(make_batch: Callable[..., Any]) -> Callable[..., Any]:
    """An exit's output, label sets and a teacher, drawn at random."""

    def made(name: str, sets: list[set[int]], **how: Any) -> tuple[ExitOutput, torch.Tensor, ExitOutput | None]:
        output, _, teacher = make_batch(name, [0] * len(sets), classes=4, **how)
        return output, rows(sets), teacher

    return made


def lists(output: ExitOutput | None) -> Any:
    return output and tuple(part.tolist() for part in (output.representation, output.logits, output.label_embeddings))


@pytest.mark.parametrize(("denominator", "reduction"), SETTINGS)
@pytest.mark.parametrize("sets", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", NAMES)
def test_an_objective_of_label_sets_equals_the_slow_loop(
    make: Callable[..., Any], name: str, sets: list[set[int]], denominator: str, reduction: str
) -> None:
    output, labels, teacher = make(name, sets)
    hyper = {"temperature": 0.4, "denominator": denominator, "reduction": reduction}
    found = objective(name, weight=0.3, label_smoothing=0.1, **hyper)(output, labels, teacher)
    wanted = reference.parts(name, lists(output), sets, lists(teacher), smoothing=0.1, **hyper)
    assert {part: float(value) for part, value in found.parts.items()} == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert not math.isnan(float(found.total.detach()))


@pytest.mark.parametrize(("denominator", "reduction"), SETTINGS)
@pytest.mark.parametrize("name", CONTRASTIVE)
def test_sets_of_one_label_are_contrasted_to_the_bit_as_single_labels(
    make_batch: Callable[..., Any], name: str, denominator: str, reduction: str
) -> None:
    output, labels, teacher = make_batch(name, [0, 1, 3, 0, 0, 1], classes=4, dtype=torch.float32)
    loss = objective(name, temperature=0.4, weight=0.3, denominator=denominator, reduction=reduction)
    single = loss(output, labels, teacher).auxiliary
    sets = loss(output, torch.nn.functional.one_hot(labels, 4), teacher).auxiliary
    assert torch.equal(single, sets)


def test_the_entropy_of_two_labels_that_exclude_each_other_is_that_of_one_label() -> None:
    # Two logits z and -z that say the opposite: sigmoid(z) is softmax(z / 2, -z / 2)[0].
    z = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    half = ExitOutput(torch.zeros(3, 1), torch.stack([z / 2, -z / 2], dim=1), torch.zeros(2, 1))
    both = ExitOutput(torch.zeros(3, 1), torch.stack([z, -z], dim=1), torch.zeros(2, 1))
    labels = torch.tensor([0, 1, 1])
    single = CrossEntropy()(half, labels).total
    torch.testing.assert_close(
        CrossEntropy()(both, torch.nn.functional.one_hot(labels)).total, single, rtol=1e-12, atol=0
    )


def test_the_overlap_is_the_jaccard_index_of_every_two_sets() -> None:
    sets = BATCHES["several sets"]
    wanted = [[reference.jaccard(a, b) for b in sets] for a in sets]
    assert overlaps(rows(sets), torch.float64).tolist() == wanted


@pytest.mark.parametrize("sets", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_finite_differences(
    make: Callable[..., Any], leaves: Callable[..., Any], name: str, sets: list[set[int]]
) -> None:
    output, labels, teacher = make(name, sets, size=3)
    loss = objective(name, temperature=0.4, weight=0.6, label_smoothing=0.1)
    assert torch.autograd.gradcheck(
        lambda *tensors: loss(ExitOutput(*tensors), labels, teacher).total, leaves(output), atol=1e-7, fast_mode=True
    )


@pytest.mark.parametrize("name", NAMES)
def test_neither_the_order_of_the_texts_nor_that_of_the_labels_matters(make: Callable[..., Any], name: str) -> None:
    output, labels, teacher = make(name, BATCHES["several sets"])
    texts, classes = torch.tensor([4, 0, 5, 2, 1, 3]), torch.tensor([2, 0, 3, 1])

    def turned(given: ExitOutput | None) -> ExitOutput | None:
        if given is None:
            return None
        return ExitOutput(given.representation[texts], given.logits[texts][:, classes], given.label_embeddings[classes])

    loss = objective(name, weight=0.5)
    found = loss(turned(output), labels[texts][:, classes], turned(teacher)).total
    torch.testing.assert_close(found, loss(output, labels, teacher).total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sets", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_are_finite_in_bfloat16(
    make: Callable[..., Any], leaves: Callable[..., Any], name: str, sets: list[set[int]]
) -> None:
    output, labels, teacher = make(name, sets, dtype=torch.bfloat16)
    with torch.no_grad():
        output.logits[0] = torch.tensor([90.0, -90.0, 0.0, 90.0], dtype=torch.bfloat16)
        output.representation[0] = 0.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = objective(name, temperature=0.05, weight=0.5)(output, labels, teacher).total
    total.backward()
    assert total.dtype is torch.float32
    assert torch.isfinite(total)
    assert all(leaf.grad is None or torch.isfinite(leaf.grad).all() for leaf in leaves(output))


@pytest.mark.parametrize("name", ["scl"])
@pytest.mark.parametrize("batch", ["no labels at all", "nothing in common", "one empty set"])
def test_texts_that_share_no_label_give_a_contrast_of_zero_that_keeps_the_graph(
    make: Callable[..., Any], name: str, batch: str
) -> None:
    output, labels, _ = make(name, BATCHES[batch])
    contrast = objective(name)(output, labels).auxiliary
    contrast.backward()
    assert float(contrast.detach()) == 0.0
    assert not output.representation.grad.any()


def test_a_text_is_drawn_more_to_the_text_that_shares_more(make: Callable[..., Any]) -> None:
    vectors = torch.eye(3, dtype=torch.float64).requires_grad_()
    output = ExitOutput(vectors, torch.zeros(3, 4, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64))
    objective("scl", temperature=1.0)(output, rows([{0, 1}, {0, 1}, {1, 2}])).auxiliary.backward()
    step = -vectors.grad[0]
    assert step[1] > step[2]


def test_a_weight_of_two_counts_a_text_twice(make: Callable[..., Any]) -> None:
    output, labels, _ = make("ce", BATCHES["several sets"])
    weights = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    twice = torch.tensor([0, 1, 1, 2, 3, 4, 5])
    again = ExitOutput(output.representation[twice], output.logits[twice], output.label_embeddings)
    found = CrossEntropy()(output, labels, weights=weights).total
    torch.testing.assert_close(found, CrossEntropy()(again, labels[twice]).total, rtol=1e-12, atol=0)


def test_soft_targets_join_any_objective_of_label_sets(make: Callable[..., Any]) -> None:
    output, labels, teacher = make("distill", BATCHES["several sets"])
    found = Softened(CrossEntropy(), share=0.25, temperature=3.0)(output, labels, teacher).total
    hard = reference.binary_cross_entropy(output.logits.tolist(), BATCHES["several sets"])
    soft = reference.soft_targets(output.logits.tolist(), teacher.logits.tolist(), 3.0)
    assert float(found.detach()) == pytest.approx(0.75 * hard + 0.25 * soft, rel=1e-9)


def test_class_weights_are_refused() -> None:
    output = ExitOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(2, 2))
    with pytest.raises(ConfigError, match="`class_weights` should be none"):
        CrossEntropy(class_weights=torch.ones(2))(output, torch.tensor([[1, 0]]))


def test_the_objectives_that_say_so_take_sets() -> None:
    assert {name for name, kind in OBJECTIVES.items() if kind.takes_sets} == {*NAMES, "infonce"}
