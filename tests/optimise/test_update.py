"""The learning rate over the updates, who gets which rate and decay, and the clipping."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import get_linear_schedule_with_warmup

from offramp.config import Config
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.gradients import Scene, plain
from offramp.optimise.strategies import plan
from offramp.optimise.update import Update, rate

# The rate.


@pytest.mark.parametrize(
    ("update", "share"), [(0, 1 / 11), (4, 5 / 11), (9, 10 / 11), (10, 1.0), (55, 0.5), (99, 1 / 90), (100, 0.0)]
)
def test_the_rate_rises_and_falls_in_straight_lines(update: int, share: float) -> None:
    assert rate(update, 100, 0.1) == pytest.approx(share, rel=1e-12)


def test_the_fall_is_that_of_transformers() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=6, num_training_steps=60)
    for update in range(60):
        if update >= 6:
            assert rate(update, 60, 0.1) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        schedule.step()


def test_without_warm_up_the_rate_begins_at_its_peak() -> None:
    assert [rate(update, 4, 0.0) for update in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_with_warm_up_alone_the_rate_only_rises() -> None:
    assert [rate(update, 4, 1.0) for update in range(4)] == [0.2, 0.4, 0.6, 0.8]


@given(st.integers(1, 500), st.floats(0.0, 1.0))
def test_every_update_learns_and_none_beyond_the_peak(updates: int, warmup: float) -> None:
    shares = [rate(update, updates, warmup) for update in range(updates)]
    assert all(0.0 < share <= 1.0 for share in shares)
    peak = shares.index(max(shares))
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


# The groups.


@pytest.mark.parametrize("kind", ["mha", "linear"])
def test_every_parameter_has_its_own_rate_and_decay(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config], kind: str
) -> None:
    model = make_model(layers=2, exit_kind=kind)
    settings = configure(optimise__lr_backbone=1e-5, optimise__lr_exit=1e-3, optimise__weight_decay=0.07).optimise
    update = Update(model, plan("single", model)[0].trainable, settings)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen = []
    for group in update.optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            seen.append(name)
            assert group["lr"] == (1e-5 if name.startswith("encoder.") else 1e-3), name
            free = name.endswith("bias") or "LayerNorm" in name
            assert group["weight_decay"] == (0.0 if free else 0.07), name
    wanted = [name for name in names.values() if name.startswith(("encoder.", "exits.1."))]
    assert sorted(seen) == sorted(wanted)
    assert any("LayerNorm.weight" in name for name in seen)


def test_the_share_of_the_peak_is_what_an_update_uses(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config]
) -> None:
    model = make_model(layers=1)
    update = Update(model, model.parameters(), configure(optimise__lr_backbone=1e-5, optimise__lr_exit=1e-3).optimise)
    for share in (0.5, 0.25):
        for parameter in update.parameters:
            parameter.grad = None
        model.exits[0].classifier.bias.grad = torch.ones(3)
        before = model.exits[0].classifier.bias.detach().clone()
        update.apply(share)
        # Adam's step for a constant gradient is the rate itself.
        moved = before - model.exits[0].classifier.bias.detach()
        torch.testing.assert_close(moved, torch.full((3,), 1e-3 * share), rtol=1e-3, atol=0.0)


def test_a_gradient_moves_its_parameter_however_it_lies_in_memory(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config]
) -> None:
    moved = []
    for lies in (torch.Tensor.contiguous, lambda gradient: gradient.t().contiguous().t()):
        model = make_model(layers=1)
        update = Update(model, model.parameters(), configure().optimise)
        weight = model.exits[0].classifier.weight
        weight.grad = lies(torch.linspace(-1.0, 1.0, weight.numel()).view_as(weight))
        update.apply(1.0)
        moved.append(weight.detach().clone())
    assert torch.equal(*moved)


# The clipping.


@pytest.mark.parametrize("clip", [0.01, 0.5, 1e4])
def test_the_clipping_is_that_of_torch(
    make_model: Callable[..., MultiExitModel],
    toy_tokens: Callable[..., Tokens],
    configure: Callable[..., Config],
    clip: float,
) -> None:
    model = make_model(layers=2).double()
    phase = plan("single", model)[0]
    batch = toy_tokens(8).batch(range(8))
    scene = Scene(model, objective("ce"), phase)
    plain(scene, batch)
    wanted_norm = float(nn.utils.clip_grad_norm_(phase.trainable, clip))
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    update = Update(model, phase.trainable, configure(optimise__clip=clip).optimise)
    plain(scene, batch)
    assert update._clip() == pytest.approx(wanted_norm, rel=1e-12)
    for name, parameter in model.named_parameters():
        if name in wanted:
            torch.testing.assert_close(parameter.grad.to_dense(), wanted[name], rtol=1e-10, atol=1e-14, msg=name)


def test_exits_that_learn_apart_are_clipped_apart(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config]
) -> None:
    model = make_model(layers=3)
    phase = plan("two-stage", model)[1]
    update = Update(model, phase.trainable, configure(optimise__clip=1.0).optimise, phase.apart)
    first, second = (model.exits[place].classifier.bias for place in (0, 1))
    first.grad, second.grad = torch.tensor([0.3, 0.4, 0.0]), torch.tensor([30.0, 40.0, 0.0])
    assert update._clip() == pytest.approx(math.hypot(0.5, 50.0))
    torch.testing.assert_close(first.grad, torch.tensor([0.3, 0.4, 0.0]))  # what the other has is none of its business
    torch.testing.assert_close(second.grad, torch.tensor([0.6, 0.8, 0.0]))


def test_clip_zero_leaves_the_gradients_alone(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config]
) -> None:
    model = make_model(layers=1)
    update = Update(model, model.parameters(), configure(optimise__clip=0).optimise)
    model.exits[0].classifier.bias.grad = torch.tensor([30.0, 40.0, 0.0])
    assert update._clip() == 50.0
    assert model.exits[0].classifier.bias.grad.tolist() == [30.0, 40.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config], bad: float
) -> None:
    model = make_model(layers=1)
    before = copy.deepcopy(model.state_dict())
    update = Update(model, model.parameters(), configure().optimise)
    for parameter in update.parameters:
        parameter.grad = None
    model.exits[0].classifier.bias.grad = torch.tensor([1.0, bad, 1.0])
    assert not math.isfinite(update.apply(1.0))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in update.parameters)


# Who moves.


def test_only_the_parameters_of_the_phase_move(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], configure: Callable[..., Config]
) -> None:
    model = make_model(layers=2)
    before = copy.deepcopy(model.state_dict())
    batch = toy_tokens(8).batch(range(8))
    phase = replace(plan("single", model)[0], trainable=tuple(model.exits[1].parameters()))
    update = Update(model, phase.trainable, configure().optimise)
    plain(Scene(model, objective("ce"), phase), batch)  # gradients lie everywhere
    update.apply(1.0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("exits.1."), name
