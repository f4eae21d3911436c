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


def run(name: str, labels: list[int]) -> tuple[ExitOutput, torch.Tensor, list[nn.Parameter]]:
    """An exit under autocast with nearly equal texts, which a small temperature pulls apart."""
    torch.manual_seed(0)
    down, classifier = nn.Linear(6, 8), nn.Linear(8, 3)
    texts = torch.randn(1, 6) + 0.05 * torch.randn(len(labels), 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        representation = torch.tanh(down(texts))
        output = ExitOutput(representation, classifier(representation), classifier.weight)
        total = objective(name, temperature=0.05, weight=0.5)(output, torch.tensor(labels)).total
    return output, total, [*down.parameters(), *classifier.parameters()]


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_and_gradients_are_finite_in_bfloat16(name: str, labels: list[int]) -> None:
    output, total, parameters = run(name, labels)
    assert output.representation.dtype == torch.bfloat16
    total.backward()
    assert total.dtype == torch.float32
    assert torch.isfinite(total)
    for parameter in parameters:
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
def test_only_the_exit_rounds_to_bfloat16(reference: ModuleType, labels: list[int]) -> None:
    # The slow loop gets what the objective gets: a rounded representation, rounded logits, float32 label embeddings.
    hyper = {"temperature": 0.05, "weight": 0.5}
    output, total, _ = run("scl", labels)
    wanted = reference.scl(output.representation.tolist(), output.logits.tolist(), labels, **hyper)
    assert float(total.detach()) == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    output, total, _ = run("acl", labels)
    wanted = reference.acl(
        output.representation.tolist(), output.logits.tolist(), output.label_embeddings.tolist(), labels, **hyper
    )
    assert float(total.detach()) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_model_in_bfloat16_altogether_has_its_loss_in_float32(
    reference: ModuleType, name: str, labels: list[int]
) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = ((len(labels), 8), (len(labels), 3), (3, 8))
    parts = [torch.randn(shape, generator=draw).bfloat16() for shape in shapes]
    total = objective(name, temperature=0.05, weight=0.5)(ExitOutput(*parts), torch.tensor(labels)).total
    representation, logits, embeddings = (part.tolist() for part in parts)
    wanted = {
        "ce": lambda: reference.cross_entropy(logits, labels),
        "scl": lambda: reference.scl(representation, logits, labels, temperature=0.05, weight=0.5),
        "acl": lambda: reference.acl(representation, logits, embeddings, labels, temperature=0.05, weight=0.5),
    }[name]()
    assert total.dtype == torch.float32
    assert float(total) == pytest.approx(wanted, rel=1e-5, abs=1e-5)
