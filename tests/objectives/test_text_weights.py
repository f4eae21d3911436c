"""The weight of a text in the cross entropy: 2 is as if it stood in the batch twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from offramp.objectives import OBJECTIVES, objective
from offramp.objectives.softened import Softened
from offramp.types import ExitOutput

LABELS = [0, 1, 1, 2]
HYPER = {"label_smoothing": 0.1, "class_weights": torch.tensor([1.0, 3.0, 0.5]), "weight": 0.4}
ENTROPIC = [name for name, kind in OBJECTIVES.items() if "class_weights" in kind.hyper]
Batch = tuple[ExitOutput, torch.Tensor, ExitOutput | None]


def of(output: ExitOutput, rows: list[int]) -> ExitOutput:
    return ExitOutput(output.representation[rows], output.logits[rows], output.label_embeddings)


def test_a_text_of_weight_2_is_a_text_that_stands_there_twice(make_batch: Callable[..., Batch]) -> None:
    output, labels, _ = make_batch("ce", LABELS)
    loss = objective("ce", **HYPER)
    twice = [0, 1, 1, 2, 3]
    weighted = loss(output, labels, weights=torch.tensor([1.0, 2.0, 1.0, 1.0])).total
    repeated = loss(of(output, twice), labels[twice]).total
    torch.testing.assert_close(weighted, repeated)
    gradients = [torch.autograd.grad(total, output.logits)[0] for total in (weighted, repeated)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.2, 5.0, 400.0]])
def test_a_text_is_drawn_to_its_smoothed_label_whatever_the_others_weigh(weights: list[float]) -> None:
    targets = torch.full((3, 3), 0.1 / 3) + 0.9 * torch.eye(3)
    logits = targets.log().requires_grad_()
    loss = objective("ce", label_smoothing=0.1, class_weights=torch.tensor(weights))
    loss(ExitOutput(torch.zeros(3, 2), logits, torch.zeros(3, 2)), torch.arange(3)).total.backward()
    torch.testing.assert_close(logits.grad, torch.zeros(3, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ENTROPIC)
def test_equal_weights_change_nothing(name: str, make_batch: Callable[..., Batch]) -> None:
    output, labels, teacher = make_batch(name, LABELS)
    loss = objective(name, **HYPER)
    weights = torch.full((len(labels),), 7.0)
    torch.testing.assert_close(loss(output, labels, teacher, weights).total, loss(output, labels, teacher).total)


@pytest.mark.parametrize("name", [name for name in ENTROPIC if name != "ce"])
def test_weights_reach_the_cross_entropy_and_nothing_else(name: str, make_batch: Callable[..., Batch]) -> None:
    output, labels, teacher = make_batch(name, LABELS)
    weights = torch.tensor([1.0, 2.0, 0.5, 4.0]).repeat(OBJECTIVES[name].views)
    loss = objective(name, **HYPER)
    found, plain = loss(output, labels, teacher, weights), loss(output, labels, teacher)
    entropy = objective("ce", **HYPER)(output, labels, weights=weights).total
    torch.testing.assert_close(found.main, entropy)
    assert found.auxiliary is not None
    assert torch.equal(found.auxiliary, plain.auxiliary)


def test_soft_targets_do_not_know_weights(make_batch: Callable[..., Batch]) -> None:
    output, labels, _ = make_batch("ce", LABELS)
    teacher = make_batch("distill", LABELS)[2]
    weights = torch.tensor([1.0, 2.0, 0.5, 4.0])
    softened = Softened(objective("ce"), share=0.25)
    found, plain = softened(output, labels, teacher, weights), softened(output, labels, teacher)
    assert torch.equal(found.parts["soft"], plain.parts["soft"])
    torch.testing.assert_close(found.parts["ce"], objective("ce")(output, labels, weights=weights).total)
