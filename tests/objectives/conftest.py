"""The papers' formulas, and batches to compute them on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from offramp.objectives import OBJECTIVES
from offramp.types import ExitOutput


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """`tests/reference/objectives.py`: the formulas as slow loops."""
    return importlib.import_module("tests.reference.objectives")


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., tuple[ExitOutput, torch.Tensor, ExitOutput | None]]:
    """Makes what the objective of this name is called with, for texts with these labels.

    An exit's output, with each text once per view; the labels; a teacher's output where there is to be one. The
    vectors are random and leaves of the graph, in float64 unless asked.
    """

    def make(
        name: str,
        labels: list[int],
        classes: int = 3,
        size: int = 6,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[ExitOutput, torch.Tensor, ExitOutput | None]:
        draw = torch.Generator().manual_seed(0)
        truth = torch.tensor(labels * OBJECTIVES[name].views)

        def leaf(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()

        def output() -> ExitOutput:
            return ExitOutput(leaf(len(truth), size), leaf(len(truth), classes), leaf(classes, size))

        return output(), truth, output() if OBJECTIVES[name].taught else None

    return make


@pytest.fixture(scope="session")
def leaves() -> Callable[[ExitOutput], list[torch.Tensor]]:
    """The three tensors of an output."""
    return lambda output: [output.representation, output.logits, output.label_embeddings]
