"""Where pytorch-metric-learning has the same loss, it gives the same number and the same gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from offramp.objectives import objective


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, on import
        from pytorch_metric_learning import losses
    return losses


def assert_same(mine: torch.Tensor, theirs: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """The same value, and the same gradients of the same leaves."""
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    found, wanted = (torch.autograd.grad(value, leaves, allow_unused=True) for value in (mine, theirs))
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


# Theirs leaves out anchors whose loss is 0, as lone ones have it; with two classes in the batch no other loss is 0.
LABELS = ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 0, 2], [1, 0, 1], [2, 2, 0, 2, 2, 2, 2, 2])


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("name", ["scl", "acl", "acl-cl"])
def test_the_mean_contrast_is_sup_con_loss(
    peer: ModuleType,
    make_batch: Callable[..., Any],
    leaves: Callable[..., Any],
    name: str,
    labels: list[int],
    temperature: float,
) -> None:
    output, truth, teacher = make_batch(name, labels)
    contrast = objective(name, temperature=temperature, weight=1.0, reduction="mean")(output, truth, teacher).auxiliary
    # To the peer, label embeddings and what the teacher has are just more samples.
    samples = [(output.representation, truth)]
    if name != "scl":
        samples.append((output.label_embeddings, torch.arange(3)))
    if name == "acl-cl":
        samples.append((teacher.representation.detach(), truth))
        samples.append((teacher.label_embeddings.detach(), torch.arange(3)))
    vectors, classes = (torch.cat(parts) for parts in zip(*samples, strict=True))
    assert_same(contrast, peer.SupConLoss(temperature=temperature)(vectors, classes), leaves(output))


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_the_contrast_of_two_views_is_nt_xent_loss(
    peer: ModuleType, make_batch: Callable[..., Any], leaves: Callable[..., Any], labels: list[int], temperature: float
) -> None:
    output, truth, _ = make_batch("infonce", labels)
    contrast = objective("infonce", temperature=temperature, reduction="mean")(output, truth).auxiliary
    wanted = peer.NTXentLoss(temperature=temperature)(output.representation, torch.arange(len(labels)).repeat(2))
    assert_same(contrast, wanted, leaves(output))


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_the_instance_centred_contrast_of_one_head_is_normalised_softmax_loss(
    peer: ModuleType, make_batch: Callable[..., Any], labels: list[int], temperature: float
) -> None:
    output, truth, _ = make_batch("icl", labels)
    theirs = peer.NormalizedSoftmaxLoss(num_classes=3, embedding_size=6, temperature=temperature).double()
    with torch.no_grad():
        theirs.W.copy_(output.label_embeddings.T)
    mine, wanted = objective("icl", temperature=temperature)(output, truth).total, theirs(output.representation, truth)
    torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(mine, [output.representation, output.label_embeddings])
    gradients = torch.autograd.grad(wanted, [output.representation, theirs.W])
    torch.testing.assert_close(found[0], gradients[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found[1], gradients[1].T, rtol=1e-10, atol=1e-12)
