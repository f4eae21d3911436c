"""The papers' formulas, and batches to compute them on."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from offramp.types import ExitOutput


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """`tests/reference/objectives.py`: the formulas as slow loops."""
    file = Path(__file__).parents[1] / "reference" / "objectives.py"
    spec = importlib.util.spec_from_file_location("reference_objectives", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., tuple[ExitOutput, torch.Tensor]]:
    """Makes random vectors for texts with these labels; leaves of the graph, in float64."""

    def make(
        labels: list[int], classes: int = 3, size: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> tuple[ExitOutput, torch.Tensor]:
        draw = torch.Generator().manual_seed(seed)

        def leaf(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()

        output = ExitOutput(leaf(len(labels), size), leaf(len(labels), classes), leaf(classes, size))
        return output, torch.tensor(labels)

    return make
