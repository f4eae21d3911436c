"""What an objective must not depend on: the order of texts and classes, the length and the frame of the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.objectives import OBJECTIVES, objective
from offramp.types import ExitOutput

LABELS = [0, 1, 2, 0, 1, 0, 3, 0]
SETTINGS = [(d, r) for d in ("others", "all") for r in ("sum", "mean")]


def gradients(loss: Any, output: ExitOutput, labels: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [t.detach().requires_grad_() for t in (output.representation, output.logits, output.label_embeddings)]
    total = loss(ExitOutput(*leaves), labels).total
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return total.detach(), [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


@pytest.mark.parametrize(("denominator", "reduction"), SETTINGS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_order_of_the_texts_does_not_matter(
    make_batch: Callable[..., Any], name: str, denominator: str, reduction: str
) -> None:
    output, labels = make_batch(LABELS, classes=5)
    loss = objective(name, weight=0.5, denominator=denominator, reduction=reduction)
    value, (representation, logits, embeddings) = gradients(loss, output, labels)
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(3))
    turned = ExitOutput(output.representation[order], output.logits[order], output.label_embeddings)
    other, (representation_, logits_, embeddings_) = gradients(loss, turned, labels[order])
    for found, wanted in (
        (other, value),
        (representation_, representation[order]),
        (logits_, logits[order]),
        (embeddings_, embeddings),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("denominator", "reduction"), SETTINGS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_numbers_of_the_classes_do_not_matter(
    make_batch: Callable[..., Any], name: str, denominator: str, reduction: str
) -> None:
    output, labels = make_batch(LABELS, classes=5)
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    order = torch.tensor([3, 0, 4, 2, 1])  # the class that gets number k
    hyper = {"weight": 0.5, "denominator": denominator, "reduction": reduction}
    value, _ = gradients(objective(name, **hyper, class_weights=weights), output, labels)
    turned = ExitOutput(output.representation, output.logits[:, order], output.label_embeddings[order])
    other, _ = gradients(objective(name, **hyper, class_weights=weights[order]), turned, order.argsort()[labels])
    torch.testing.assert_close(other, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["scl", "acl"])
def test_only_the_directions_enter_the_contrast(make_batch: Callable[..., Any], name: str) -> None:
    output, labels = make_batch(LABELS, classes=5)
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    lengths = torch.linspace(0.1, 40, len(LABELS), dtype=torch.float64)[:, None]
    loss = objective(name, weight=0.5)
    turned = ExitOutput(lengths * output.representation @ turn, output.logits, 7 * output.label_embeddings @ turn)
    torch.testing.assert_close(loss(turned, labels).auxiliary, loss(output, labels).auxiliary, rtol=1e-12, atol=1e-12)


def test_scl_does_not_see_the_label_embeddings(make_batch: Callable[..., Any]) -> None:
    output, labels = make_batch(LABELS, classes=5)
    other = ExitOutput(output.representation, output.logits, output.label_embeddings * 0 + 1)
    assert torch.equal(objective("scl")(output, labels).total, objective("scl")(other, labels).total)
