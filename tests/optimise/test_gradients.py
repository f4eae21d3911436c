"""A batch's gradients under each scope of alignment are those plain autograd gives for the terms in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from offramp.data.tokens import Tokens
from offramp.data.views import Views, feature_cutoff, shuffle, token_cutoff
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.objectives.contrast import supervised_contrast
from offramp.optimise.alignment import Rule
from offramp.optimise.gradients import SCOPES, Scene
from offramp.optimise.strategies import Phase, plan
from offramp.types import Batch, ExitOutput, States

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
    return Scene(model, loss, plan("single", model)[0], Rule(threshold))


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


def test_the_cosines_are_those_of_each_part_of_the_model(model: MultiExitModel, batches: list[Batch]) -> None:
    measured = SCOPES["exact"](scene(model), batches[0])
    model.zero_grad()
    backbone = model.encoder.backbone
    parts = {"embeddings": backbone.embeddings}
    parts |= {f"layer-{depth}": layer for depth, layer in enumerate(backbone.encoder.layer, 1)}
    parts |= {"exit-3": model.exits[2]}
    wanted = {}
    for name, part in parts.items():
        learning = list(part.parameters())
        entropy, contrast = terms(model, batches[0])
        first = torch.autograd.grad(entropy, learning, retain_graph=True)
        second = torch.autograd.grad(contrast, learning, allow_unused=True)
        second = [torch.zeros_like(p) if g is None else g for p, g in zip(learning, second, strict=True)]
        a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (first, second))
        wanted[name] = float(torch.cosine_similarity(a, b, dim=0))
    assert measured.angle is not None
    assert list(measured.angle.cosines) == list(wanted)
    assert measured.angle.cosines == pytest.approx(wanted, abs=1e-9)


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
    measured = SCOPES[scope](scene(model, threshold), batches[0])
    assert (measured.angle is not None and bool(measured.angle.cosines)) == (scope != "none")
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


# Two views of each text.


def looking(model: MultiExitModel, *names: str) -> tuple[Scene, list[tuple[ExitOutput, Tensor]]]:
    """A scene whose objective contrasts these views, and a list of what it will be shown."""
    loss: Any = objective("infonce", temperature=TEMPERATURE, weight=WEIGHT, reduction="sum")
    shown: list[tuple[ExitOutput, Tensor]] = []
    loss.register_forward_hook(lambda module, given, result: shown.append(given[:2]))
    views = Views(names, cutoff=0.4)
    return Scene(model, loss, plan("single", model)[0], Rule(180.0), views=views), shown


@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("scope", SCOPES)
def test_dropout_alone_makes_two_views_of_each_text(
    model: MultiExitModel, batches: list[Batch], scope: str, dropout: bool
) -> None:
    model.train(dropout)
    torch.manual_seed(0)
    here, shown = looking(model, "dropout", "dropout")
    SCOPES[scope](here, batches[0])
    ((output, labels),) = shown
    first, second = output.representation.chunk(2)
    assert torch.equal(labels, batches[0].labels.repeat(2))
    apart = (first - second).abs().amax(dim=1)  # (B,)
    assert bool((apart > 1e-3).all()) if dropout else bool((apart < 1e-12).all())


def by_hand(model: MultiExitModel, batch: Batch, names: tuple[str, str]) -> Tensor:
    """Cross entropy and InfoNCE of two views of a batch without dropout, written out."""
    orders = [shuffle(batch) if name == "shuffle" else batch for name in names]
    embedded = [model.encoder.embed(order) for order in orders]
    cutoffs = {"token-cutoff": token_cutoff, "feature-cutoff": feature_cutoff}
    outputs = []
    for name, states in zip(names, embedded, strict=True):
        hidden = cutoffs[name](states.hidden, batch.mask, 0.4) if name in cutoffs else states.hidden
        after = States(hidden, hidden, batch.mask)
        for depth in (1, 2, 3):
            after = model.encoder.step(depth, after)
        outputs.append(model.read(3, after))
    entropy = torch.stack([cross_entropy(output.logits, batch.labels) for output in outputs]).mean()
    unit = normalize(torch.cat([output.representation for output in outputs]), dim=1)
    similarity = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    other = torch.arange(len(unit)).roll(len(batch))  # the other view of the same text
    return (1 - WEIGHT) * entropy + WEIGHT * cross_entropy(similarity, other, reduction="sum")


@pytest.mark.parametrize(
    "names",
    [("dropout", "shuffle"), ("shuffle", "shuffle"), ("token-cutoff", "dropout"), ("feature-cutoff", "token-cutoff")],
)
@pytest.mark.parametrize("scope", SCOPES)
def test_the_gradient_is_that_of_the_two_views(
    model: MultiExitModel, batches: list[Batch], scope: str, names: tuple[str, str]
) -> None:
    here, shown = looking(model, *names)
    torch.manual_seed(0)
    measured = SCOPES[scope](here, batches[0])
    found = taken(model)
    torch.manual_seed(0)
    total = by_hand(model, batches[0], names)
    total.backward()
    assert measured.loss == pytest.approx(float(total.detach()), rel=1e-12)
    assert_same(found, taken(model))
    first, second = shown[0][0].representation.chunk(2)
    assert bool(((first - second).abs().amax(dim=1) > 1e-6).any())
