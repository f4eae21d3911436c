"""Where pytorch-metric-learning has the same loss, it gives the same number and the same gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.objectives import objective


@pytest.fixture(scope="module")
def sup_con_loss() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, on import
        from pytorch_metric_learning.losses import SupConLoss
    return SupConLoss


# Theirs leaves out anchors whose loss is 0, as lone ones have it; with two classes in the batch no other loss is 0.
LABELS = ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 0, 2], [1, 0, 1], [2, 2, 0, 2, 2, 2, 2, 2])


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("name", ["scl", "acl"])
def test_the_mean_contrast_is_sup_con_loss(
    sup_con_loss: Any, make_batch: Callable[..., Any], name: str, labels: list[int], temperature: float
) -> None:
    output, truth = make_batch(labels)
    leaves = (output.representation, output.label_embeddings)
    contrast = objective(name, temperature=temperature, weight=1.0, reduction="mean")(output, truth).auxiliary
    texts = (output.representation, truth)
    # To the peer, label embeddings are just more samples.
    samples = texts if name == "scl" else (torch.cat(leaves), torch.cat([truth, torch.arange(3)]))
    wanted = sup_con_loss(temperature=temperature)(*samples)
    torch.testing.assert_close(contrast, wanted, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(contrast, leaves, allow_unused=True)
    peer = torch.autograd.grad(wanted, leaves, allow_unused=True)
    for mine, theirs in zip(found, peer, strict=True):
        assert (mine is None) == (theirs is None) == (name == "scl" and mine is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
