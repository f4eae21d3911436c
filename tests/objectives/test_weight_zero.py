"""With weight 0 an objective that adds to the cross entropy is the cross entropy to the bit: value and gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.objectives import OBJECTIVES, objective
from offramp.objectives.ce import CrossEntropy

ADDING = [name for name, kind in OBJECTIVES.items() if issubclass(kind, CrossEntropy) and "weight" in kind.hyper]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ADDING)
def test_weight_zero_is_cross_entropy(
    make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str, smoothing: float, dtype: torch.dtype
) -> None:
    output, labels, _ = make_batch(name, [0, 1, 0, 2, 2, 1, 1], dtype=dtype)
    plain = torch.nn.functional.cross_entropy(output.logits, labels, label_smoothing=smoothing)
    loss = objective(name, weight=0.0, label_smoothing=smoothing)(output, labels)  # not even a teacher is needed
    assert torch.equal(loss.total, plain)
    assert list(loss.parts) == ["ce"]
    found = torch.autograd.grad(loss.total, leaves(output), allow_unused=True)
    wanted = torch.autograd.grad(plain, leaves(output), allow_unused=True)
    assert torch.equal(found[1], wanted[1])
    assert found[0] is found[2] is None


def test_all_objectives_that_add_to_the_cross_entropy_are_here() -> None:
    assert ADDING == ["scl", "acl", "acl-cl", "infonce", "distill"]
