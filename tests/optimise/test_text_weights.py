"""The weights of texts reach the cross entropy by every way there is to a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise import exit_gradients
from offramp.optimise.grad_cache import CACHED
from offramp.optimise.gradients import SCOPES, Scene
from offramp.optimise.loop import Loop
from offramp.optimise.state_cache import Room, open_cache
from offramp.optimise.strategies import plan

TEXTS = 9


@pytest.fixture
def tokens(toy_tokens: Callable[..., Tokens]) -> Tokens:
    return replace(toy_tokens(TEXTS), weights=np.linspace(0.5, 3.0, TEXTS, dtype=np.float32))


def twice(tokens: Tokens) -> tuple[list[int], Tokens]:
    """Rows in which text 2 stands twice, and the same said by weights."""
    return [*range(TEXTS), 2], replace(tokens, weights=np.where(np.arange(TEXTS) == 2, 2.0, 1.0).astype(np.float32))


def taken(model: MultiExitModel) -> list[Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def test_the_gradient_of_a_text_of_weight_2_counts_twice(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> None:
    model = make_model(layers=3).double()
    rows, weighted = twice(toy_tokens(TEXTS))
    scene = Scene(model, objective("ce"), plan("joint", model)[0])
    SCOPES["none"](scene, replace(weighted, weights=None).batch(rows))
    wanted = taken(model)
    SCOPES["none"](scene, weighted.batch(range(TEXTS)))
    torch.testing.assert_close(taken(model), wanted)


@pytest.mark.parametrize("scope", SCOPES)
def test_the_gradient_cache_knows_them(make_model: Callable[..., MultiExitModel], tokens: Tokens, scope: str) -> None:
    model = make_model(layers=3).double()
    scene = Scene(model, objective("acl", weight=0.3), plan("single", model)[0])
    SCOPES[scope](scene, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    CACHED[scope](scene, [tokens.batch(range(4)), tokens.batch(range(4, TEXTS))])
    torch.testing.assert_close(taken(model), wanted)


def test_exits_on_a_frozen_backbone_know_them(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], tmp_path: Path
) -> None:
    model = make_model(layers=3)
    rows, weighted = twice(toy_tokens(TEXTS))
    scene = Scene(model, objective("ce"), plan("two-stage", model)[1])
    how = {"model": model, "depths": (1, 2), "autocast": scene.autocast}
    for folder in (tmp_path / "cached", tmp_path / "walked"):
        how["room"] = Room(1e9 if folder.name == "cached" else 0.0)
        exit_gradients.plain(scene, open_cache(folder, tokens=replace(weighted, weights=None), **how).lesson(rows))
        wanted = taken(model)
        exit_gradients.plain(scene, open_cache(folder, tokens=weighted, **how).lesson(range(TEXTS)))
        torch.testing.assert_close(taken(model), wanted, atol=1e-6, rtol=1e-5)


def test_a_run_with_weights_ends_elsewhere(make_loop: Callable[..., Loop]) -> None:
    plain, weighted = make_loop(objective__name="ce"), make_loop(objective__name="ce")
    labels = weighted.train.labels_or_raise()
    weighted.train = replace(weighted.train, weights=np.array([5.0 if k else 1.0 for k in labels], np.float32))
    plain.run()
    weighted.run()
    ends = [next(iter(loop.model.exits[-1].parameters())) for loop in (plain, weighted)]
    assert not torch.equal(*ends)
