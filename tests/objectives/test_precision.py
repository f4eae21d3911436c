"""Under bfloat16 autocast an objective still computes in float32, and what it gives is finite."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from offramp.objectives import OBJECTIVES, objective
from offramp.types import ExitOutput

BATCHES = {
    "several classes": [0, 1, 2, 0, 1, 0, 2, 2],
    "one class": [1, 1, 1],
    "one text": [2],
    "lone texts": [0, 1, 2],
}
HYPER = {"temperature": 0.05, "heads": 2}
# What an objective does not read has no gradient.
UNREAD = {
    "icl": {"classifier.bias"},
    "lcl": {"classifier.bias"},
    "lacon": {"classifier.bias"},
    "ler": {"down.weight", "down.bias", "classifier.bias"},
}


class Exit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, texts: torch.Tensor) -> ExitOutput:
        representation = torch.tanh(self.down(texts))
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)


Run = tuple[Exit, torch.Tensor, ExitOutput, list[int], ExitOutput | None]


def run(name: str, labels: list[int]) -> Run:
    """An exit under autocast with nearly equal texts, which a small temperature pulls apart: it and its total."""
    torch.manual_seed(0)
    exit, last = Exit(), Exit()
    labels = labels * OBJECTIVES[name].views
    texts = torch.randn(1, 6) + 0.05 * torch.randn(len(labels), 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, teacher = exit(texts), last(texts) if OBJECTIVES[name].taught else None
        total = objective(name, weight=0.5, **HYPER)(output, torch.tensor(labels), teacher).total
    return exit, total, output, labels, teacher


def slow(reference: ModuleType, name: str, output: ExitOutput, labels: list[int], teacher: ExitOutput | None) -> float:
    """What the slow loop makes of what the objective got, rounded as it is."""
    lists = [
        one and tuple(part.tolist() for part in (one.representation, one.logits, one.label_embeddings))
        for one in (output, teacher)
    ]
    # The default of `infonce` is the mean.
    reduction = "mean" if name == "infonce" else "sum"
    terms = reference.parts(name, lists[0], labels, lists[1], reduction=reduction, **HYPER)
    return float(reference.total(terms, 0.5))


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_and_gradients_are_finite_in_bfloat16(name: str, labels: list[int]) -> None:
    exit, total, output, _, _ = run(name, labels)
    assert output.representation.dtype == torch.bfloat16
    total.backward()
    assert total.dtype == torch.float32
    assert torch.isfinite(total)
    gradients = {key: parameter.grad for key, parameter in exit.named_parameters()}
    assert {key for key, gradient in gradients.items() if gradient is None} == UNREAD.get(name, set())
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values() if gradient is not None)


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_the_exit_rounds_to_bfloat16(reference: ModuleType, name: str, labels: list[int]) -> None:
    # The slow loop gets what the objective gets: a rounded representation, rounded logits, float32 label embeddings.
    _, total, *batch = run(name, labels)
    assert float(total.detach()) == pytest.approx(slow(reference, name, *batch), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_model_in_half_precision_altogether_has_its_loss_in_float32(
    reference: ModuleType, name: str, labels: list[int], dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(0)
    labels = labels * OBJECTIVES[name].views
    shapes = ((len(labels), 8), (len(labels), 3), (3, 8))
    output, teacher = (ExitOutput(*(torch.randn(s, generator=draw).to(dtype) for s in shapes)) for _ in range(2))
    total = objective(name, weight=0.5, **HYPER)(output, torch.tensor(labels), teacher).total
    assert total.dtype == torch.float32
    assert float(total) == pytest.approx(slow(reference, name, output, labels, teacher), rel=1e-5, abs=1e-5)
