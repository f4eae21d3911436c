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
CHOICES = {"denominator": ("others", "all"), "reduction": ("sum", "mean"), "heads": (1, 2)}


def settings(name: str) -> list[dict[str, Any]]:
    """Every choice among the settings that the objective has."""
    chosen: list[dict[str, Any]] = [{}]
    for key, values in CHOICES.items():
        if key in OBJECTIVES[name].hyper:
            chosen = [{**one, key: value} for one in chosen for value in values]
    return chosen


SETTINGS = [
    pytest.param(name, hyper, id=" ".join([name, *(f"{key}={value}" for key, value in hyper.items())]))
    for name in OBJECTIVES
    for hyper in settings(name)
]


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize(("name", "hyper"), SETTINGS)
def test_gradients_are_the_finite_differences(
    make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str, hyper: dict[str, Any], labels: list[int]
) -> None:
    output, truth, teacher = make_batch(name, labels, size=4)
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    loss = objective(name, temperature=0.4, weight=0.6, label_smoothing=0.1, class_weights=weights, **hyper)
    # In one random direction at a time; the batch of several classes in every direction.
    fast = len(labels) < 5
    assert torch.autograd.gradcheck(
        lambda *tensors: loss(ExitOutput(*tensors), truth, teacher).total, leaves(output), atol=1e-7, fast_mode=fast
    )


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_and_gradients_are_finite_with_zero_and_equal_vectors(
    make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str, labels: list[int]
) -> None:
    output, truth, teacher = make_batch(name, labels, dtype=torch.float32)
    with torch.no_grad():
        output.representation[0] = 0.0
        output.representation[-1] = output.label_embeddings[0]
        output.label_embeddings[1] = 0.0
    total = objective(name, temperature=0.05, weight=0.5)(output, truth, teacher).total
    total.backward()
    assert torch.isfinite(total)
    for leaf in leaves(output):
        # A zero vector is pulled by its neighbours, 1 / tau each, and not by a number near 1 / 0.
        assert leaf.grad is None or leaf.grad.abs().max() < 1e4


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if kind.taught])
def test_no_gradient_reaches_the_teacher(make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str) -> None:
    output, truth, teacher = make_batch(name, BATCHES["several classes"])
    objective(name, weight=0.5)(output, truth, teacher).total.backward()
    assert all(leaf.grad is None for leaf in leaves(teacher))
    assert output.logits.grad.abs().max() > 1e-3


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("denominator", ["others", "all"])
@pytest.mark.parametrize(
    ("name", "labels", "classes"),
    [
        pytest.param("scl", [2], 3, id="scl, one text"),
        pytest.param("scl", [0, 1, 2], 3, id="scl, lone texts"),
        pytest.param("lcl", [2], 3, id="lcl, one text"),
        pytest.param("lcl", [1, 1, 1], 3, id="lcl, one class in the batch"),
        pytest.param("ler", [0, 0], 1, id="ler, one class"),
    ],
)
def test_a_batch_without_an_anchor_gives_a_zero_that_keeps_the_graph(
    make_batch: Callable[..., Any],
    leaves: Callable[..., Any],
    name: str,
    labels: list[int],
    classes: int,
    denominator: str,
    reduction: str,
) -> None:
    output, truth, _ = make_batch(name, labels, classes=classes)
    loss = objective(name, denominator=denominator, reduction=reduction)(output, truth)
    term = loss.main if loss.auxiliary is None else loss.auxiliary
    assert float(term.detach()) == 0.0
    term.backward()
    gradients = [leaf.grad for leaf in leaves(output) if leaf.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)


def test_the_contrast_of_a_lone_texts_views_is_zero(make_batch: Callable[..., Any]) -> None:
    output, truth, _ = make_batch("infonce", [1])
    contrast = objective("infonce", temperature=0.05)(output, truth).auxiliary
    contrast.backward()
    assert float(contrast.detach()) == 0.0  # the one positive is all there is to choose from
    assert output.representation.grad.abs().max() < 1e-12


def test_a_lone_text_is_no_anchor_but_a_negative(make_batch: Callable[..., Any]) -> None:
    output, truth, _ = make_batch("scl", [0, 0, 1])
    contrast = objective("scl", temperature=0.5)(output, truth).auxiliary
    assert contrast is not None
    contrast.backward()
    assert output.representation.grad[2].abs().max() > 1e-3
    without, same, _ = make_batch("scl", [0, 0])
    alone = objective("scl", temperature=0.5)(without, same).auxiliary
    assert float(alone.detach()) == 0.0  # the one positive is all there is to choose from
    assert float(contrast.detach()) > 0.1


def test_a_label_embedding_of_an_absent_class_is_pushed_away_as_a_negative(make_batch: Callable[..., Any]) -> None:
    output, truth, _ = make_batch("acl", [0, 0, 1])
    contrast = objective("acl", temperature=0.5)(output, truth).auxiliary
    assert contrast is not None
    contrast.backward()
    embedding = output.label_embeddings
    moved = (embedding - 1e-3 * embedding.grad).detach()[2]

    def nearness(vector: torch.Tensor) -> torch.Tensor:
        others = torch.cat([output.representation, embedding[:2]]).detach()
        return torch.logsumexp(torch.cosine_similarity(others, vector[None]) / 0.5, dim=0)

    assert nearness(moved) < nearness(embedding.detach()[2])


def test_a_label_embedding_of_an_absent_class_is_drawn_to_its_teachers(make_batch: Callable[..., Any]) -> None:
    output, truth, teacher = make_batch("acl-cl", [0, 0, 1])
    contrast = objective("acl-cl", temperature=0.5)(output, truth, teacher).auxiliary
    assert contrast is not None
    contrast.backward()
    before = output.label_embeddings.detach()
    after = before - 1e-3 * output.label_embeddings.grad
    wanted = teacher.label_embeddings.detach()[2]
    assert torch.cosine_similarity(after[2], wanted, dim=0) > torch.cosine_similarity(before[2], wanted, dim=0)


def test_an_lcl_label_absent_from_the_batch_is_no_anchor(make_batch: Callable[..., Any]) -> None:
    output, truth, _ = make_batch("lcl", [0, 0, 1])
    objective("lcl")(output, truth).total.backward()
    assert not output.label_embeddings.grad[2].any()
    assert output.label_embeddings.grad[:2].any(dim=1).all()
