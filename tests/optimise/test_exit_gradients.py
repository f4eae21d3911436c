"""Exits that learn apart get each the gradients of their own loss, aligned by their own angle."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.config import CHOICES, Config
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.alignment import Rule
from offramp.optimise.exit_gradients import APART
from offramp.optimise.gradients import Scene
from offramp.optimise.state_cache import Frozen, Lesson
from offramp.optimise.strategies import plan
from offramp.optimise.update import Update
from offramp.types import Loss

DEPTHS = (1, 2, 3)
WEIGHT, TEMPERATURE = 0.3, 0.5
NEAR = {"rtol": 1e-9, "atol": 1e-12}
ADDING = ("scl", "acl", "acl-cl", "distill")


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    return make_model(layers=4).double()  # without dropout


@pytest.fixture
def lesson(model: MultiExitModel, toy_tokens: Callable[..., Tokens]) -> Lesson:
    return Frozen(model, toy_tokens(9), DEPTHS, nullcontext).lesson(range(9))


def scene(model: MultiExitModel, name: str = "acl", threshold: float = 90.0, weight: float = WEIGHT) -> Scene:
    loss = objective(name, temperature=TEMPERATURE, weight=weight, heads=2)
    return Scene(model, loss, plan("two-stage", model)[1], Rule(threshold))


def alone(here: Scene, lesson: Lesson, depth: int) -> Loss:
    """The loss of one exit, read by itself."""
    loss: Loss = here.objective(here.model.read(depth, lesson.states[depth]), lesson.labels, lesson.teacher)
    return loss


def own(model: MultiExitModel, depth: int, term: Tensor) -> list[Tensor]:
    """The gradients of a term of one exit, zero where it does not reach."""
    parameters = list(model.exits[depth - 1].parameters())
    found = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def degrees(first: list[Tensor], second: list[Tensor]) -> float:
    a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (first, second))
    return math.degrees(math.acos(float(torch.dot(a, b) / (a.norm() * b.norm()))))


def angles(here: Scene, lesson: Lesson) -> dict[int, float]:
    """The angle at each exit, written out."""
    found = {}
    for depth in DEPTHS:
        loss = alone(here, lesson, depth)
        assert loss.auxiliary is not None
        found[depth] = degrees(own(here.model, depth, loss.main), own(here.model, depth, loss.auxiliary))
    return found


def between(values: list[float], place: int) -> float:
    """A threshold that leaves `place` of the values below it."""
    ordered = [0.0, *sorted(values), 180.0]
    return (ordered[place] + ordered[place + 1]) / 2


def taken(model: MultiExitModel) -> dict[str, Tensor | None]:
    """The gradients that were left behind, by parameter; they are taken away."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def assert_left(model: MultiExitModel, wanted: dict[int, list[Tensor]]) -> None:
    """Each exit has these gradients, and nothing else has any; they are taken away."""
    found = taken(model)
    for depth, gradients in wanted.items():
        for (name, parameter), gradient in zip(model.exits[depth - 1].named_parameters(), gradients, strict=True):
            mine = found.pop(f"exits.{depth - 1}.{name}")
            torch.testing.assert_close(torch.zeros_like(parameter) if mine is None else mine, gradient, **NEAR)
    assert all(gradient is None for gradient in found.values())


@pytest.mark.parametrize("kind", CHOICES["exits.kind"])
@pytest.mark.parametrize("name", ["ce", *ADDING])
def test_without_alignment_each_exit_has_the_gradient_of_its_own_loss(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], name: str, kind: str
) -> None:
    model = make_model(layers=4, exit_kind=kind).double()
    lesson = Frozen(model, toy_tokens(9), DEPTHS, nullcontext).lesson(range(9))
    here = scene(model, name)
    measured = APART["none"](here, lesson)
    losses = {depth: alone(here, lesson, depth) for depth in DEPTHS}
    assert_left(model, {depth: own(model, depth, loss.total) for depth, loss in losses.items()})
    assert measured.loss == pytest.approx(sum(float(loss.total.detach()) for loss in losses.values()), rel=1e-9)
    wanted = {part: sum(float(loss.parts[part]) for loss in losses.values()) for part in losses[1].parts}
    assert measured.parts == pytest.approx(wanted, rel=1e-9)
    assert measured.angles == ()


@pytest.mark.parametrize("kept", range(4))
@pytest.mark.parametrize("name", ADDING)
def test_at_each_exit_its_own_angle_keeps_or_drops_the_contrast(
    model: MultiExitModel, lesson: Lesson, name: str, kept: int
) -> None:
    turned = angles(scene(model, name), lesson)
    threshold = between(list(turned.values()), kept)
    here = scene(model, name, threshold)
    measured = APART["exact"](here, lesson)
    wanted = {}
    for depth in DEPTHS:
        loss = alone(here, lesson, depth)
        assert loss.auxiliary is not None
        main, auxiliary = own(model, depth, loss.main), own(model, depth, loss.auxiliary)
        weight = WEIGHT if turned[depth] <= threshold else 0.0
        wanted[depth] = [(1 - WEIGHT) * a + weight * b for a, b in zip(main, auxiliary, strict=True)]
    assert_left(model, wanted)
    assert [angle.kept for angle in measured.angles] == [turned[depth] <= threshold for depth in DEPTHS]
    assert sum(angle.kept for angle in measured.angles) == kept


def test_each_exit_tells_its_angle(model: MultiExitModel, lesson: Lesson) -> None:
    here = scene(model)
    measured = APART["exact"](here, lesson)
    for depth, angle, wanted in zip(DEPTHS, measured.angles, angles(here, lesson).values(), strict=True):
        assert angle.degrees == pytest.approx(wanted, abs=1e-6)
        assert angle.cosines == pytest.approx({f"exit-{depth}": math.cos(math.radians(wanted))}, abs=1e-9)
        main = torch.cat([g.flatten() for g in own(model, depth, alone(here, lesson, depth).main)])
        assert angle.main_norm == pytest.approx(float(main.norm()), rel=1e-9)
    assert len({round(angle.degrees, 3) for angle in measured.angles}) == len(DEPTHS)


def test_alignment_that_drops_nothing_is_none(model: MultiExitModel, lesson: Lesson) -> None:
    first = APART["none"](scene(model), lesson)
    wanted = taken(model)
    second = APART["exact"](scene(model, threshold=180.0), lesson)
    found = taken(model)
    assert second.loss == pytest.approx(first.loss, rel=1e-12)
    for name, gradient in wanted.items():
        assert (gradient is None) == (found[name] is None)
        assert gradient is None or torch.allclose(found[name], gradient, **NEAR)


@pytest.mark.parametrize("kind", CHOICES["exits.kind"])
def test_alignment_that_drops_nothing_moves_the_exits_as_none_does(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], kind: str
) -> None:
    ended = {}
    for scope in APART:
        model = make_model(layers=4, exit_kind=kind).double()
        lesson = Frozen(model, toy_tokens(9), DEPTHS, nullcontext).lesson(range(9))
        here = scene(model, threshold=180.0)
        update = Update(model, here.phase.trainable, Config().optimise, here.phase.apart)
        for _ in range(3):
            APART[scope](here, lesson)
            update.apply(1.0)
        ended[scope] = model.state_dict()
    for name, value in ended["none"].items():
        torch.testing.assert_close(ended["exact"][name], value, rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.parametrize(("name", "weight"), [("ce", WEIGHT), ("lacon", WEIGHT), ("acl", 0.0)])
def test_an_objective_of_one_term_has_no_angle(model: MultiExitModel, lesson: Lesson, name: str, weight: float) -> None:
    here = scene(model, name, weight=weight)
    measured = APART["exact"](here, lesson)
    assert measured.angles == ()
    assert measured.angle is None
    assert_left(model, {depth: own(model, depth, alone(here, lesson, depth).total) for depth in DEPTHS})


@pytest.mark.parametrize("name", ["ce", "acl"])
@pytest.mark.parametrize("scope", APART)
def test_an_update_takes_a_share_of_each_batchs_gradient(
    model: MultiExitModel, lesson: Lesson, toy_tokens: Callable[..., Tokens], scope: str, name: str
) -> None:
    here = scene(model, name)
    # Some exits keep the term, some drop it.
    rule = Rule(between(list(angles(here, lesson).values()), 1)) if name == "acl" else Rule()
    here = replace(here, rule=rule)
    lessons = [lesson, Frozen(model, toy_tokens(7, 1), DEPTHS, nullcontext).lesson(range(7))]
    single: list[dict[str, Any]] = []
    losses = []
    for one in lessons:
        losses.append(APART[scope](here, one).loss)
        single.append(taken(model))
    shared = [APART[scope](replace(here, share=0.25), one).loss for one in lessons]
    found = taken(model)
    assert shared == pytest.approx(losses, rel=1e-12)  # a share of the gradient, not of what is told
    for parameter, gradient in found.items():
        if gradient is None:
            assert all(one[parameter] is None for one in single)
        else:
            torch.testing.assert_close(gradient, 0.25 * sum(one[parameter] for one in single), **NEAR)


@pytest.mark.parametrize("scope", APART)
def test_the_exits_are_read_in_the_precision_of_the_run(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], scope: str
) -> None:
    model = make_model(layers=4)
    lesson = Frozen(model, toy_tokens(9), DEPTHS, nullcontext).lesson(range(9))

    def bfloat16() -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    precise = APART[scope](scene(model, threshold=180.0), lesson)
    wanted = taken(model)
    coarse = APART[scope](replace(scene(model, threshold=180.0), autocast=bfloat16), lesson)
    found = taken(model)
    assert 0.0 < abs(coarse.loss - precise.loss) < 1e-2 * precise.loss
    for name, gradient in wanted.items():
        if gradient is not None:
            assert found[name].dtype == torch.float32  # as the parameter
            assert float((found[name] - gradient).norm()) < 0.1 * float(gradient.norm()) + 1e-3
