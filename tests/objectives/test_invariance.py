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
EACH = slice(None)


def chosen(output: ExitOutput | None, texts: Any = EACH, classes: Any = EACH) -> ExitOutput | None:
    """The output with its texts and classes in another order."""
    if output is None:
        return None
    return ExitOutput(output.representation[texts], output.logits[texts][:, classes], output.label_embeddings[classes])


def gradients(
    loss: Any, output: ExitOutput, labels: torch.Tensor, teacher: ExitOutput | None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [t.detach().requires_grad_() for t in (output.representation, output.logits, output.label_embeddings)]
    total = loss(ExitOutput(*leaves), labels, teacher).total
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return total.detach(), [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


@pytest.mark.parametrize(("denominator", "reduction"), SETTINGS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_order_of_the_texts_does_not_matter(
    make_batch: Callable[..., Any], name: str, denominator: str, reduction: str
) -> None:
    output, labels, teacher = make_batch(name, LABELS, classes=5)
    loss = objective(name, weight=0.5, denominator=denominator, reduction=reduction, heads=2)
    value, (representation, logits, embeddings) = gradients(loss, output, labels, teacher)
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(3))
    order = torch.cat([order + view * len(LABELS) for view in range(OBJECTIVES[name].views)])
    turned, taught = chosen(output, texts=order), chosen(teacher, texts=order)
    other, (representation_, logits_, embeddings_) = gradients(loss, turned, labels[order], taught)
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
    output, labels, teacher = make_batch(name, LABELS, classes=5)
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])
    order = torch.tensor([3, 0, 4, 2, 1])  # the class that gets number k
    hyper = {"weight": 0.5, "denominator": denominator, "reduction": reduction, "heads": 2}
    value, (representation, logits, embeddings) = gradients(
        objective(name, **hyper, class_weights=weights), output, labels, teacher
    )
    other, (representation_, logits_, embeddings_) = gradients(
        objective(name, **hyper, class_weights=weights[order]),
        chosen(output, classes=order),
        order.argsort()[labels],
        chosen(teacher, classes=order),
    )
    for found, wanted in (
        (other, value),
        (representation_, representation),
        (logits_, logits[:, order]),
        (embeddings_, embeddings[order]),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_the_order_of_the_views_does_not_matter(make_batch: Callable[..., Any]) -> None:
    output, labels, _ = make_batch("infonce", LABELS, classes=5)
    other = chosen(output, texts=torch.arange(len(labels)).roll(len(LABELS)))
    loss = objective("infonce", weight=0.5)
    torch.testing.assert_close(loss(other, labels).total, loss(output, labels).total, rtol=1e-12, atol=1e-12)


def contrastive_term(loss: Any, *batch: Any) -> torch.Tensor:
    found = loss(*batch)
    return found.main if found.auxiliary is None else found.auxiliary


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in ("ce", "distill")])
def test_only_the_directions_enter_the_contrast(make_batch: Callable[..., Any], name: str) -> None:
    output, labels, teacher = make_batch(name, LABELS, classes=5)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    lengths = torch.linspace(0.1, 40, len(labels), dtype=torch.float64)[:, None]

    def turned(output: ExitOutput | None) -> ExitOutput | None:
        if output is None:
            return None
        return ExitOutput(lengths * output.representation @ turn, output.logits, 7 * output.label_embeddings @ turn)

    loss = objective(name, weight=0.5, heads=1)
    found = contrastive_term(loss, turned(output), labels, turned(teacher))
    torch.testing.assert_close(found, contrastive_term(loss, output, labels, teacher), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_each_slice_has_its_own_direction(make_batch: Callable[..., Any], heads: int) -> None:
    output, labels, _ = make_batch("icl", LABELS, classes=5)
    lengths = torch.arange(1.0, heads + 1, dtype=torch.float64).repeat_interleave(6 // heads)  # (D,)
    other = ExitOutput(output.representation * lengths, output.logits, output.label_embeddings / lengths)
    loss = objective("icl", heads=heads)
    torch.testing.assert_close(loss(other, labels).total, loss(output, labels).total, rtol=1e-12, atol=1e-12)


def test_the_teachers_answers_up_to_a_constant_enter_distillation(make_batch: Callable[..., Any]) -> None:
    output, labels, teacher = make_batch("distill", LABELS, classes=5)
    other = ExitOutput(teacher.representation, teacher.logits + 3.0, teacher.label_embeddings)
    loss = objective("distill", temperature=1.5)
    torch.testing.assert_close(
        loss(output, labels, other).total, loss(output, labels, teacher).total, rtol=1e-12, atol=1e-12
    )
    # A student that says the same has nothing left to learn.
    assert float(loss(output, labels, output).auxiliary.detach()) == pytest.approx(0.0, abs=1e-12)


def test_scl_does_not_see_the_label_embeddings(make_batch: Callable[..., Any]) -> None:
    output, labels, _ = make_batch("scl", LABELS, classes=5)
    other = ExitOutput(output.representation, output.logits, output.label_embeddings * 0 + 1)
    assert torch.equal(objective("scl")(output, labels).total, objective("scl")(other, labels).total)
