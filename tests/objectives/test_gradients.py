"""The gradients of every objective are those of its value, and finite whatever the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.objectives import OBJECTIVES, objective
from offramp.types import ExitOutput

BATCHES = {
    "several classes": [0, 1, 2, 0, 0],
    "one class": [1, 1, 1],
    "one text": [2],
    "lone texts": [0, 1, 2],
    "one lone text": [0, 0, 1],
}
SETTINGS = [
    ("ce", "others", "sum"),
    *((name, d, r) for name in ("scl", "acl") for d in ("others", "all") for r in ("sum", "mean")),
]


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize(("name", "denominator", "reduction"), SETTINGS)
def test_gradients_are_the_finite_differences(
    make_batch: Callable[..., Any], name: str, denominator: str, reduction: str, labels: list[int]
) -> None:
    output, truth = make_batch(labels, size=2)
    loss = objective(
        name,
        temperature=0.4,
        weight=0.6,
        denominator=denominator,
        reduction=reduction,
        label_smoothing=0.1,
        class_weights=torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64),
    )
    tensors = (output.representation, output.logits, output.label_embeddings)
    # In one random direction at a time; the batch of several classes in every direction.
    fast = len(labels) < 5
    assert torch.autograd.gradcheck(lambda *t: loss(ExitOutput(*t), truth).total, tensors, atol=1e-7, fast_mode=fast)


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_and_gradients_are_finite_with_zero_and_equal_vectors(
    make_batch: Callable[..., Any], name: str, labels: list[int]
) -> None:
    output, truth = make_batch(labels, dtype=torch.float32)
    with torch.no_grad():
        output.representation[0] = 0.0
        output.representation[-1] = output.label_embeddings[0]
    total = objective(name, temperature=0.05, weight=0.5)(output, truth).total
    total.backward()
    assert torch.isfinite(total)
    for leaf in (output.representation, output.logits, output.label_embeddings):
        assert leaf.grad is None or torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("denominator", ["others", "all"])
@pytest.mark.parametrize("labels", [[2], [0, 1, 2]], ids=["one text", "lone texts"])
def test_a_batch_without_an_anchor_gives_a_zero_that_keeps_the_graph(
    make_batch: Callable[..., Any], labels: list[int], denominator: str, reduction: str
) -> None:
    output, truth = make_batch(labels)
    contrast = objective("scl", denominator=denominator, reduction=reduction)(output, truth).auxiliary
    assert contrast is not None
    assert float(contrast.detach()) == 0.0
    contrast.backward()
    assert output.representation.grad is not None
    assert not output.representation.grad.any()


def test_a_lone_text_is_no_anchor_but_a_negative(make_batch: Callable[..., Any]) -> None:
    output, truth = make_batch([0, 0, 1])
    contrast = objective("scl", temperature=0.5)(output, truth).auxiliary
    assert contrast is not None
    contrast.backward()
    assert output.representation.grad[2].abs().max() > 1e-3
    without, same = make_batch([0, 0])
    alone = objective("scl", temperature=0.5)(without, same).auxiliary
    assert float(alone.detach()) == 0.0  # the one positive is all there is to choose from
    assert float(contrast.detach()) > 0.1


def test_a_label_embedding_of_an_absent_class_is_pushed_away_as_a_negative(make_batch: Callable[..., Any]) -> None:
    output, truth = make_batch([0, 0, 1])
    contrast = objective("acl", temperature=0.5)(output, truth).auxiliary
    assert contrast is not None
    contrast.backward()
    embedding = output.label_embeddings
    moved = (embedding - 1e-3 * embedding.grad).detach()[2]

    def nearness(vector: torch.Tensor) -> torch.Tensor:
        others = torch.cat([output.representation, embedding[:2]]).detach()
        return torch.logsumexp(torch.cosine_similarity(others, vector[None]) / 0.5, dim=0)

    assert nearness(moved) < nearness(embedding.detach()[2])
