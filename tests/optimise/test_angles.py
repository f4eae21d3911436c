"""The angles of a trained model: those of two backward passes by hand, with the model left as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.data.sampling import length_buckets
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.angles import Angles, measure
from offramp.types import Example

WORDS = ["good film", "bad plot was slow", "the story is fine", "very bright", "not good", "dull dull film", "fine"]


@pytest.fixture
def texts(tokenizer: Any) -> Tokens:
    examples = [Example(text) for text in WORDS * 3]
    return Tokens.of(tokenizer, examples, 16, [k % 3 for k in range(len(examples))])


def by_hand(model: MultiExitModel, contrast: Any, tokens: Tokens, rows: list[int]) -> float:
    """The angle from two separate backward passes over all parameters that the last exit reaches."""
    flat = []
    batch = tokens.batch(rows)
    for term in ("main", "auxiliary"):
        model.zero_grad(set_to_none=True)
        loss = contrast(model.outputs(batch, [model.depth])[model.depth], batch.labels)
        getattr(loss, term).backward()
        flat.append(
            torch.cat(
                [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
            ).double()
        )
    model.zero_grad(set_to_none=True)
    length = float(flat[0].norm() * flat[1].norm())
    return math.degrees(math.acos(float(flat[0] @ flat[1]) / length)) if length else math.nan


@pytest.mark.parametrize("name", ["scl", "acl"])
def test_the_angles_are_those_of_two_backward_passes(
    make_model: Callable[..., MultiExitModel], texts: Tokens, name: str
) -> None:
    model = make_model(exit_dropout=0.0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # by hand and by measure the same masks cannot be drawn
    contrast = objective(name, temperature=0.5, weight=0.5)
    found = measure(model, contrast, texts, batch_size=6, most=7, seed=3)
    chance = torch.Generator().manual_seed(3)
    first, second = (length_buckets(texts.lengths, 6, chance) for _ in range(2))
    batches = [*first, *second[:3]]
    wanted = [by_hand(model.train(), contrast, texts, rows) for rows in batches]
    assert found == pytest.approx(wanted, abs=1e-2, nan_ok=True)
    assert sum(math.isfinite(angle) for angle in found) >= 3


def test_the_model_is_left_as_it_was(make_model: Callable[..., MultiExitModel], texts: Tokens) -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    measure(model, objective("scl", temperature=0.5, weight=0.5), texts, batch_size=6, most=4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_is_on_and_drawn_from_the_seed(make_model: Callable[..., MultiExitModel], texts: Tokens) -> None:
    model, contrast = make_model(exit_dropout=0.5), objective("scl", temperature=0.5, weight=0.5)
    first, again, other = (measure(model, contrast, texts, batch_size=21, most=2, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_no_more_batches_than_asked_for(make_model: Callable[..., MultiExitModel], texts: Tokens) -> None:
    assert len(measure(make_model(), objective("acl", temperature=0.5, weight=0.5), texts, batch_size=3, most=2)) == 2


def test_a_batch_without_a_pair_of_one_label_has_no_angle(
    make_model: Callable[..., MultiExitModel], texts: Tokens
) -> None:
    found = measure(make_model(), objective("scl", temperature=0.5, weight=0.5), texts, batch_size=1, most=3)
    assert all(math.isnan(angle) for angle in found)
    assert Angles.of(found) == Angles((0,) * 180, None, None, 0)


def test_every_angle_is_counted_once_at_its_degree() -> None:
    found = Angles.of([0.0, 89.99, 90.0, 90.01, 180.0, math.nan], kept=0.5)
    assert [place for place, count in enumerate(found.counts) for _ in range(count)] == [0, 89, 90, 90, 179]
    assert (found.batches, found.above, found.kept) == (5, 0.4, 0.5)  # exactly 90 is no conflict
