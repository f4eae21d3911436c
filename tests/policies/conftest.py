"""What exits say, made from numbers alone: a policy sees nothing else of a model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

from offramp.policies.replay import Pooled
from offramp.types import Batch, ExitOutput


def _says(logits: Tensor | Sequence[Sequence[float]]) -> ExitOutput:
    found = torch.as_tensor(logits)
    return ExitOutput(found.new_zeros(len(found), 2), found, found.new_zeros(found.shape[1], 2))


@pytest.fixture(scope="session")
def says() -> Callable[..., ExitOutput]:
    return _says


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """`tests/reference/policies.py`: the policies as slow loops."""
    return importlib.import_module("tests.reference.policies")


def _texts(count: int, seed: int = 0, width: int = 9, words: int = 50) -> Batch:
    """Random tokens of texts of random lengths."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (count, 1), generator=draw)
    mask = (torch.arange(width) < lengths).long()  # (B, T)
    return Batch(torch.randint(5, words, (count, width), generator=draw) * mask, mask)


@pytest.fixture(scope="session")
def texts() -> Callable[..., Batch]:
    return _texts


def _pooled(count: int, classes: int, layers: int = 4, size: int = 3, seed: int = 0) -> Pooled:
    """What `layers` random exits say of `count` random texts."""
    draw = torch.Generator().manual_seed(seed)

    def output() -> ExitOutput:
        shapes = ((count, size), (count, classes), (classes, size))
        return ExitOutput(*(2.0 * torch.randn(*shape, generator=draw) for shape in shapes))

    return Pooled(_texts(count, seed), {depth: output() for depth in range(1, layers + 1)})


@pytest.fixture(scope="session")
def pooled() -> Callable[..., Pooled]:
    return _pooled


def _fitted(name: str, size: int = 3, layers: int = 4, seed: int = 0) -> dict[str, Tensor] | None:
    """Tensors such as fitting gives a policy, at random; None for a policy that is not fitted."""
    draw = torch.Generator().manual_seed(seed)
    if name == "learned":
        weights = {f"{depth}.weight": torch.randn(size + 3, generator=draw) for depth in range(1, layers + 1)}
        return weights | {f"{depth}.bias": torch.randn((), generator=draw) for depth in range(1, layers + 1)}
    if name == "prior":
        shapes = {"weight": (16, layers), "length": (layers,), "bias": (layers,)}
        return {key: torch.randn(*shape, generator=draw) for key, shape in shapes.items()}
    return None


@pytest.fixture(scope="session")
def fitted() -> Callable[..., dict[str, Tensor] | None]:
    return _fitted
