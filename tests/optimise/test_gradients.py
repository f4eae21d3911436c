"""A batch's gradients under each scope of alignment are those plain autograd gives for the terms in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.objectives.contrast import supervised_contrast
from offramp.optimise.gradients import SCOPES, Scene
from offramp.optimise.strategies import Phase, plan
from offramp.types import Batch

WEIGHT, TEMPERATURE = 0.3, 0.5


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    return make_model(layers=3).double()  # without dropout


@pytest.fixture
def batches(toy_tokens: Callable[..., Tokens]) -> list[Batch]:
    tokens = toy_tokens(18)
    return [tokens.batch(range(start, start + 6)) for start in (0, 6, 12)]


def scene(model: MultiExitModel, threshold: float = 90.0, weight: float = WEIGHT, name: str = "acl") -> Scene:
    loss = objective(name, temperature=TEMPERATURE, weight=weight)
    return Scene(model, loss, plan("single", model)[0], threshold)


def taken(model: MultiExitModel) -> dict[str, Tensor | None]:
    """The gradients that were left behind, by parameter; they are taken away."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def terms(model: MultiExitModel, batch: Batch, depths: tuple[int, ...] = (3,)) -> tuple[Tensor, Tensor]:
    """Cross entropy and ACL's contrast, written out."""
    entropy, contrast = [], []
    classes = torch.arange(3)
    for depth, output in model.outputs(batch, depths).items():
        assert depth in depths
        vectors = torch.cat([output.representation, output.label_embeddings])
        entropy.append(cross_entropy(output.logits, batch.labels))
        contrast.append(supervised_contrast(vectors, torch.cat([batch.labels, classes]), TEMPERATURE))
    return torch.stack(entropy).sum(), torch.stack(contrast).sum()


def assert_same(found: dict[str, Tensor | None], wanted: dict[str, Tensor | None], **tolerance: float) -> None:
    for name, gradient in wanted.items():
        if gradient is None:
            assert found[name] is None or not found[name].any(), name
        else:
            torch.testing.assert_close(found[name], gradient, **(tolerance or {"rtol": 1e-9, "atol": 1e-12}), msg=name)


@pytest.mark.parametrize(("threshold", "kept"), [(180.0, True), (0.0, False)])
@pytest.mark.parametrize("scope", ["exact", "exit"])
def test_the_gradient_is_that_of_the_terms_that_were_kept(
    model: MultiExitModel, batches: list[Batch], scope: str, threshold: float, kept: bool
) -> None:
    measured = SCOPES[scope](scene(model, threshold), batches[0])
    found = taken(model)
    entropy, contrast = terms(model, batches[0])
    total = (1 - WEIGHT) * entropy + WEIGHT * contrast if kept else (1 - WEIGHT) * entropy
    total.backward()
    assert measured.angle is not None
    assert measured.angle.kept == kept
    assert_same(found, taken(model))
    assert measured.parts == pytest.approx({"ce": float(entropy.detach()), "contrast": float(contrast.detach())})


def test_without_alignment_both_terms_are_in(model: MultiExitModel, batches: list[Batch]) -> None:
    measured = SCOPES["none"](scene(model, threshold=0.0), batches[0])
    found = taken(model)
    entropy, contrast = terms(model, batches[0])
    total = (1 - WEIGHT) * entropy + WEIGHT * contrast
    total.backward()
    assert measured.angle is None
    assert measured.loss == pytest.approx(float(total.detach()), rel=1e-12)
    assert_same(found, taken(model))


def test_exit_with_the_term_kept_equals_none(model: MultiExitModel, batches: list[Batch]) -> None:
    SCOPES["exit"](scene(model, threshold=180.0), batches[0])
    found = taken(model)
    SCOPES["none"](scene(model), batches[0])
    assert_same(found, taken(model))


def degrees(first: list[Tensor], second: list[Tensor]) -> float:
    a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (first, second))
    return float(torch.rad2deg(torch.acos(torch.dot(a, b) / (a.norm() * b.norm()))))


def test_the_exact_angle_is_over_all_that_learns(model: MultiExitModel, batches: list[Batch]) -> None:
    for batch in batches:
        measured = SCOPES["exact"](scene(model), batch)
        model.zero_grad()
        learning = [*model.encoder.parameters(), *model.exits[2].parameters()]
        entropy, contrast = terms(model, batch)
        first = torch.autograd.grad(entropy, learning, retain_graph=True)
        second = torch.autograd.grad(contrast, learning, allow_unused=True)
        second = [torch.zeros_like(p) if g is None else g for p, g in zip(learning, second, strict=True)]
        assert measured.angle is not None
        assert measured.angle.degrees == pytest.approx(degrees(list(first), second), abs=1e-6)
        assert measured.angle.main_norm == pytest.approx(float(torch.cat([g.flatten() for g in first]).norm()))
        assert measured.angle.auxiliary_norm == pytest.approx(float(torch.cat([g.flatten() for g in second]).norm()))


def test_the_exit_angle_is_over_the_exit_and_the_states_it_reads(model: MultiExitModel, batches: list[Batch]) -> None:
    batch = batches[0]
    measured = SCOPES["exit"](scene(model), batch)
    model.zero_grad()
    *_, (_, states) = model.walk(batch)
    learning = [*model.exits[2].parameters(), states.output]
    output = model.read(3, states)
    vectors = torch.cat([output.representation, output.label_embeddings])
    contrast = supervised_contrast(vectors, torch.cat([batch.labels, torch.arange(3)]), TEMPERATURE)
    first = torch.autograd.grad(cross_entropy(output.logits, batch.labels), learning, retain_graph=True)
    second = torch.autograd.grad(contrast, learning, allow_unused=True)
    second = [torch.zeros_like(p) if g is None else g for p, g in zip(learning, second, strict=True)]
    assert measured.angle is not None
    assert measured.angle.degrees == pytest.approx(degrees(list(first), second), abs=1e-6)


@pytest.mark.parametrize(
    ("scope", "passes"),
    [
        ("none", {"layer": 1, "exit": 1}),
        ("exact", {"layer": 2, "exit": 2}),
        ("exit", {"layer": 1, "exit": 2}),
    ],
)
@pytest.mark.parametrize("threshold", [0.0, 180.0])
def test_never_a_pass_too_many(
    model: MultiExitModel, batches: list[Batch], scope: str, passes: dict[str, int], threshold: float
) -> None:
    back, forth = Counter[str](), Counter[str]()
    watched = {"layer": model.encoder.family.layers(model.encoder.backbone)[0], "exit": model.exits[2].down}
    for name, module in watched.items():
        module.register_full_backward_hook(lambda *_, name=name: back.update([name]))
        module.register_forward_hook(lambda *_, name=name: forth.update([name]))
    SCOPES[scope](scene(model, threshold), batches[0])
    assert dict(back) == passes
    assert dict(forth) == {"layer": 1, "exit": 1}


@pytest.mark.parametrize("scope", SCOPES)
def test_an_update_over_several_batches_takes_the_mean_of_their_gradients(
    model: MultiExitModel, batches: list[Batch], scope: str
) -> None:
    angles = []
    for batch in batches:
        angle = SCOPES["exit" if scope == "exit" else "exact"](scene(model), batch).angle
        assert angle is not None
        angles.append(angle.degrees)
    # Between the smallest and the largest angle: some batches keep the term, some drop it.
    one = scene(model, threshold=(min(angles) + max(angles)) / 2)
    model.zero_grad()
    single = []
    for batch in batches:
        SCOPES[scope](one, batch)
        single.append(taken(model))
    together = replace(one, share=1 / len(batches))
    kept = [SCOPES[scope](together, batch).angle for batch in batches]
    assert scope == "none" or len({angle.kept for angle in kept if angle}) == 2
    mean = {
        name: None if single[0][name] is None else sum(found[name] for found in single) / len(batches)
        for name in single[0]
    }
    assert_same(taken(model), mean)


@pytest.mark.parametrize("name", ["scl", "acl"])
@pytest.mark.parametrize("scope", SCOPES)
def test_weight_zero_gives_the_gradient_of_cross_entropy_to_the_bit(
    make_model: Callable[..., MultiExitModel], batches: list[Batch], scope: str, name: str
) -> None:
    model = make_model(layers=3)  # in float32, as it trains
    SCOPES[scope](scene(model, weight=0.0, name=name), batches[0])
    found = taken(model)
    output = model.outputs(batches[0], [3])[3]
    cross_entropy(output.logits, batches[0].labels).backward()
    wanted = taken(model)
    assert any(gradient is not None for gradient in wanted.values())
    for parameter, gradient in wanted.items():
        assert (gradient is None) == (found[parameter] is None), parameter
        assert gradient is None or torch.equal(found[parameter], gradient), parameter


@pytest.mark.parametrize("scope", ["exact", "exit"])
def test_a_batch_without_an_anchor_steps_with_the_cross_entropy(
    model: MultiExitModel, batches: list[Batch], scope: str
) -> None:
    first = [int((batches[2].labels == k).nonzero()[0]) for k in range(3)]
    lone = Batch(*(getattr(batches[2], part)[first] for part in ("input_ids", "mask", "token_types", "labels")))
    measured = SCOPES[scope](scene(model, threshold=180.0, name="scl"), lone)
    found = taken(model)
    assert measured.angle is not None
    assert not measured.angle.kept
    ((1 - WEIGHT) * cross_entropy(model.outputs(lone, [3])[3].logits, lone.labels)).backward()
    assert_same(found, taken(model))


@pytest.mark.parametrize("scope", SCOPES)
def test_several_exits_add_up(model: MultiExitModel, batches: list[Batch], scope: str) -> None:
    both = Phase("both", (1, 3), tuple(model.parameters()))
    here: Any = replace(scene(model, threshold=180.0), phase=both)
    SCOPES[scope](here, batches[0])
    found = taken(model)
    entropy, contrast = terms(model, batches[0], (1, 3))
    ((1 - WEIGHT) * entropy + WEIGHT * contrast).backward()
    assert_same(found, taken(model))
