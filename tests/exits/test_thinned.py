"""A model with some of another's layers: the same layers, in their order, under the exit that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.encoder.backbones import KINDS, make_backbone, make_batch
from transformers import PreTrainedTokenizerFast

from offramp.config import from_mapping
from offramp.errors import ConfigError
from offramp.exits import checkpoint
from offramp.exits.heads import keep_heads
from offramp.exits.model import MultiExitModel, build
from offramp.exits.thinned import modules, spread, thinned

FOUR = [kind for kind in KINDS if kind != "bert-12"]


def make(kind: str) -> MultiExitModel:
    settings = {"exit_size": 8, "exit_heads": 2, "trained_exits": [4], "max_tokens": 30}
    return build(make_backbone(kind), ("no", "yes", 3), **settings).train(False)


@pytest.mark.parametrize("depths", [(1, 3), (1, 2), (1, 2, 4)])
@pytest.mark.parametrize("kind", FOUR)
def test_it_takes_the_layers_that_were_asked_for_one_after_the_other(kind: str, depths: tuple[int, ...]) -> None:
    model = make(kind)
    batch = make_batch(model.encoder.backbone, (9, 4, 7))
    small = thinned(model, depths, top=4)
    with torch.no_grad():
        states = model.encoder.embed(batch)
        for depth in depths:
            states = model.encoder.step(depth, states)
        found = small.outputs(batch)
    assert sorted(found) == list(range(1, len(depths) + 1))
    torch.testing.assert_close(found[len(depths)].logits, model.read(4, states).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", FOUR)
def test_it_comes_back_from_its_folder(kind: str, tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    small = thinned(make(kind), (1, 3), top=4)
    checkpoint.save(tmp_path, small, tokenizer, from_mapping({}))
    other = checkpoint.load(tmp_path)[0]
    assert (other.depth, other.config.trained_exits, other.config.max_tokens) == (2, [2], 30)
    wanted = small.state_dict()
    assert other.state_dict().keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in other.state_dict().items())
    batch = make_batch(small.encoder.backbone, (9, 4, 7))
    with torch.no_grad():
        torch.testing.assert_close(other.outputs(batch)[2].logits, small.outputs(batch)[2].logits)


def test_it_shares_nothing_with_the_model_it_was_taken_from() -> None:
    model = make("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = thinned(model, (1, 3), top=4)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.fill_(7.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert (model.depth, model.config.backbone["num_hidden_layers"], model.config.trained_exits) == (4, 4, [4])


def test_an_exit_that_was_not_trained_is_not_called_trained() -> None:
    assert thinned(make("bert"), (1, 2), top=2).config.trained_exits == []


def test_the_heads_that_are_left_go_along() -> None:
    model = make("bert")
    keep_heads(model, [[0, 1], [0], [1, 2, 3], [3]])
    assert thinned(model, (1, 3), top=4).config.layer_heads == [2, 3]


@pytest.mark.parametrize("depths", [(2, 3), (1, 3, 2), (1, 5), (1, 1), ()])
def test_layers_without_the_first_or_out_of_order_are_refused(depths: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="The layers that stay should be 1 and others up to 4, in order"):
        thinned(make("bert"), depths, top=4)


@pytest.mark.parametrize("depth", range(1, 25))
def test_layers_are_spread_and_modules_cut_evenly(depth: int) -> None:
    for layers in range(1, depth + 1):
        cut = modules(layers, depth)
        assert [place for module in cut for place in module] == list(range(1, depth + 1))
        assert max(map(len, cut)) - min(map(len, cut)) <= 1
        assert spread(layers, depth) == tuple(module[0] for module in cut)


def test_half_of_the_layers_is_every_other_one() -> None:
    assert spread(6, 12) == (1, 3, 5, 7, 9, 11)
    assert [module[-1] for module in modules(6, 12)] == [2, 4, 6, 8, 10, 12]
