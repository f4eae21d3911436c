"""With weight 0 a contrast is the cross entropy to the bit: value and gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.objectives import objective


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", ["scl", "acl"])
def test_weight_zero_is_cross_entropy(
    make_batch: Callable[..., Any], name: str, smoothing: float, dtype: torch.dtype
) -> None:
    output, labels = make_batch([0, 1, 0, 2, 2, 1, 1], dtype=dtype)
    leaves = (output.representation, output.logits, output.label_embeddings)
    plain = torch.nn.functional.cross_entropy(output.logits, labels, label_smoothing=smoothing)
    total = objective(name, weight=0.0, label_smoothing=smoothing)(output, labels).total
    assert torch.equal(total, plain)
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    wanted = torch.autograd.grad(plain, leaves, allow_unused=True)
    assert torch.equal(found[1], wanted[1])
    assert found[0] is found[2] is None
