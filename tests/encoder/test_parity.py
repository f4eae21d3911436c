"""The walk through a backbone's layers is Hugging Face's own forward pass, for every family."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.encoder.backbones import FLEXIBLE, KINDS, POSITIONS, TYPED, make_backbone, make_batch, take, truth
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, PreTrainedModel

from offramp.encoder.layers import Encoder, family_of
from offramp.errors import ModelError
from offramp.types import Batch, States

PADDED = (24, 5, 13, 2)
FULL = (17, 17, 17)
LENGTHS = {"padded": PADDED, "full": FULL, "alone": (9,)}


def walk(encoder: Encoder, batch: Batch) -> list[States]:
    states = [encoder.embed(batch)]
    for depth in range(1, encoder.depth + 1):
        states.append(encoder.step(depth, states[-1]))
    return states


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def layer_list(backbone: Any) -> tuple[Any, str]:
    """Who holds the layers, and under which name: found in the backbone, not asked of the family."""
    for module in backbone.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == backbone.config.num_hidden_layers:
                return module, name
    raise AssertionError("no layers")


def cut(backbone: PreTrainedModel, depth: int) -> PreTrainedModel:
    """The same backbone, ending after `depth` layers."""
    short = copy.deepcopy(backbone)
    holder, name = layer_list(short)
    setattr(holder, name, getattr(holder, name)[:depth])
    return short


@torch.no_grad()
def check(backbone: PreTrainedModel, batch: Batch, wanted: Any) -> None:
    states = walk(Encoder(backbone), batch)
    assert len(states) == len(wanted.hidden_states) == backbone.config.num_hidden_layers + 1
    for depth, state in enumerate(states[:-1]):
        close(state.hidden, wanted.hidden_states[depth])
        assert state.hidden.isfinite().all(), depth
    close(states[-1].output, wanted.last_hidden_state)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_depth_is_hugging_faces(kind: str, lengths: str) -> None:
    backbone = make_backbone(kind)
    batch = make_batch(backbone, LENGTHS[lengths])
    with torch.no_grad():
        check(backbone, batch, truth(backbone, batch))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", FLEXIBLE)
def test_every_depth_is_hugging_faces_with_eager_attention(kind: str, lengths: str) -> None:
    backbone = make_backbone(kind, "eager")
    assert backbone.config._attn_implementation == "eager"
    batch = make_batch(backbone, LENGTHS[lengths])
    with torch.no_grad():
        check(backbone, batch, truth(backbone, batch))


@pytest.mark.parametrize("kind", TYPED)
def test_every_depth_is_hugging_faces_for_pairs(kind: str) -> None:
    backbone = make_backbone(kind)
    batch = make_batch(backbone, PADDED, pairs=True)
    with torch.no_grad():
        wanted = truth(backbone, batch)
        check(backbone, batch, wanted)
        untyped = truth(backbone, make_batch(backbone, PADDED))
    assert (wanted.last_hidden_state - untyped.last_hidden_state).abs().max() > 1e-2  # the types say something


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in TYPED and k != "bert-12"])
def test_families_without_token_types_do_not_read_them(kind: str) -> None:
    backbone = make_backbone(kind)
    with torch.no_grad():
        check(backbone, make_batch(backbone, PADDED, pairs=True), truth(backbone, make_batch(backbone, PADDED)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_padding_needs_no_mask(kind: str) -> None:
    backbone = make_backbone(kind)
    batch = make_batch(backbone, FULL)
    with torch.no_grad():
        check(backbone, batch, backbone(batch.input_ids, output_hidden_states=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exit_reads_what_a_backbone_cut_at_its_depth_gives(kind: str) -> None:
    backbone = make_backbone(kind)
    batch = make_batch(backbone, PADDED)
    with torch.no_grad():
        states = walk(Encoder(backbone), batch)
        for depth in range(1, len(states)):
            close(states[depth].output, truth(cut(backbone, depth), batch).last_hidden_state)


@pytest.mark.parametrize(("kind", "attention"), [*((k, "sdpa") for k in KINDS), *((k, "eager") for k in FLEXIBLE)])
def test_texts_that_stay_go_on_as_if_they_had_been_alone(kind: str, attention: str) -> None:
    backbone = make_backbone(kind, attention)
    encoder = Encoder(backbone)
    batch = make_batch(backbone, (24, 5, 13, 9, 7), pairs=kind in TYPED)
    with torch.no_grad():
        before = walk(encoder, batch)
        for left in range(encoder.depth):
            # The longest leaves; or all but one leave in two goes, and no padding is left.
            for rows, again in (([3, 1, 4], [0, 1, 2]), ([2, 4, 1], [1])):
                states = before[left].keep(torch.tensor(rows)).keep(torch.tensor(again))
                alone = take(batch, [rows[place] for place in again])
                fresh, real = truth(backbone, alone), alone.mask == 1
                assert torch.equal(states.mask, alone.mask)
                for depth in range(left + 1, encoder.depth):
                    states = encoder.step(depth, states)
                    close(states.hidden[real], fresh.hidden_states[depth][real])
                states = encoder.step(encoder.depth, states)
                close(states.output[real], fresh.last_hidden_state[real])


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_exit_reads_survives_that_others_leave(kind: str) -> None:
    backbone = make_backbone(kind)
    states = Encoder(backbone).step(1, Encoder(backbone).embed(make_batch(backbone, (9, 24, 5))))
    kept = states.keep(torch.tensor([2, 0]))
    assert torch.equal(kept.output, states.output[torch.tensor([2, 0]), :9])
    assert torch.equal(kept.hidden, states.hidden[torch.tensor([2, 0]), :9])


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_the_padding_never_reaches_a_text(kind: str) -> None:
    backbone = make_backbone(kind)
    batch = make_batch(backbone, PADDED)
    ids = batch.input_ids.clone()
    ids[batch.mask == 0] = 7
    other = Batch(ids, batch.mask)
    with torch.no_grad():
        pairs = zip(walk(Encoder(backbone), batch), walk(Encoder(backbone), other), strict=True)
        for one, two in pairs:
            close(two.output[batch.mask == 1], one.output[batch.mask == 1])


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bert-12"])
def test_gradients_are_hugging_faces_and_reach_every_layer(kind: str) -> None:
    ours, theirs = make_backbone(kind), make_backbone(kind)
    batch = make_batch(ours, PADDED)
    weights = torch.randn(4, 24, 32, generator=torch.Generator().manual_seed(1))
    (walk(Encoder(ours), batch)[-1].output * weights).mean().backward()
    (truth(theirs, batch).last_hidden_state * weights).mean().backward()
    reached = 0
    for (name, one), two in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if one.grad is not None and two.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, atol=1e-5, rtol=1e-4, msg=name)
            reached += 1
    assert reached > 4 * 5  # an embedding, and more than five parameters a layer
    holder, name = layer_list(ours)
    for layer in getattr(holder, name):
        for parameter in layer.parameters():
            # A bias of the keys shifts all scores of a query alike: its gradient is 0, and that is right.
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 0 or parameter.dim() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_layers_share_a_parameter(kind: str) -> None:
    backbone = make_backbone(kind)
    layers = Encoder(backbone).family.layers(backbone)
    places = [parameter.data_ptr() for layer in layers for parameter in layer.parameters()]
    assert len(layers) == backbone.config.num_hidden_layers
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "xlm-roberta", "electra", "distilbert", "deberta-absolute", "deberta-conv"]
)
def test_a_text_may_have_exactly_the_usable_positions(kind: str) -> None:
    backbone = make_backbone(kind)
    usable = family_of(backbone.config).usable_positions(backbone.config)
    assert usable is not None
    batch = make_batch(backbone, (usable,))
    with torch.no_grad():
        check(backbone, batch, truth(backbone, batch))
        longer = make_batch(backbone, (usable + 1,))
        with pytest.raises((IndexError, RuntimeError)):
            truth(backbone, longer)


@pytest.mark.parametrize("kind", ["deberta-v3", "deberta-v3-typeless"])
def test_without_a_table_of_positions_a_text_may_be_longer(kind: str) -> None:
    backbone = make_backbone(kind)
    assert family_of(backbone.config).usable_positions(backbone.config) is None
    batch = make_batch(backbone, (POSITIONS + 9, POSITIONS))
    with torch.no_grad():
        check(backbone, batch, truth(backbone, batch))


def test_modernbert_may_use_all_positions_it_was_made_for() -> None:
    config = KINDS["modernbert"]()
    assert family_of(config).usable_positions(config) == POSITIONS


def test_a_backbone_of_an_unknown_family_is_refused_by_name() -> None:
    config = GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, n_positions=8)
    with pytest.raises(ModelError, match=r"known family \(bert, .*modernbert\)\. Found `gpt2`\."):
        Encoder(GPT2Model(config))
