"""Attention heads that are removed are gone, and what is left says what Hugging Face says with their output at 0."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.encoder.backbones import KINDS, make_backbone, make_batch, truth
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from offramp.config import from_mapping
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.heads import HEADED, attention_scores, check_headed, head_counts, keep_heads, masked_heads
from offramp.exits.model import MultiExitModel, build

HEADED_KINDS = [kind for kind in KINDS if KINDS[kind]().model_type in HEADED]
KEPT = [[0, 1, 2, 3], [1, 3], [2], [0, 1, 3]]  # of four heads in each of four layers
GONE = [sorted({0, 1, 2, 3} - set(heads)) for heads in KEPT]
WIDTH = 8  # of a head
SMALL = {"exit_size": 8, "exit_heads": 2}


def kept(depths: int) -> list[list[int]]:
    return [KEPT[depth % 4] for depth in range(depths)]


def silenced(backbone: Any, depths: int) -> Any:
    """A copy of the backbone in which nobody hears the heads that go: their columns of the projection are 0."""
    other = copy.deepcopy(backbone)
    with torch.no_grad():
        for depth in range(depths):
            for head in GONE[depth % 4]:
                other.encoder.layer[depth].attention.output.dense.weight[:, head * WIDTH : (head + 1) * WIDTH] = 0.0
    return other


def pruned(kind: str = "bert", attention: str = "sdpa") -> MultiExitModel:
    model = build(make_backbone(kind, attention), ("no", "yes"), **SMALL).train(False)
    keep_heads(model, kept(model.depth))
    return model


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", HEADED_KINDS)
def test_a_model_without_some_heads_equals_hugging_face_with_their_output_at_zero(kind: str, attention: str) -> None:
    backbone = make_backbone(kind, attention)
    model = build(copy.deepcopy(backbone), ("no", "yes"), **SMALL).train(False)
    batch = make_batch(backbone, (9, 4, 7))
    keep_heads(model, kept(model.depth))
    with torch.no_grad():
        wanted = truth(silenced(backbone, model.depth), batch).hidden_states
        for depth, states in model.walk(batch):
            inside = batch.mask.bool()
            torch.testing.assert_close(states.hidden[inside], wanted[depth][inside], atol=1e-5, rtol=1e-5)


def test_the_weights_of_a_removed_head_are_gone() -> None:
    whole = build(make_backbone("bert"), ("no", "yes"), **SMALL)
    model = pruned()
    removed = sum(len(heads) for heads in GONE)
    a_head = 4 * 32 * WIDTH + 3 * WIDTH  # query, key, value and projection; three biases
    count = [sum(p.numel() for p in found.parameters()) for found in (whole, model)]
    assert count[0] - count[1] == removed * a_head
    assert head_counts(model) == [4, 2, 1, 3]
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_heads_can_be_removed_twice() -> None:
    model = pruned()
    keep_heads(model, [[0], [1], [0], [2]])  # numbers among those that are left
    direct = build(make_backbone("bert"), ("no", "yes"), **SMALL)
    keep_heads(direct, [[0], [3], [2], [3]])
    wanted = direct.encoder.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in model.encoder.state_dict().items())


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_model_without_some_heads_comes_back_from_its_folder(
    kind: str, tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    model = pruned(kind)
    checkpoint.save(tmp_path, model, tokenizer, from_mapping({}))
    batch = make_batch(model.encoder.backbone, (9, 4, 7))
    others = [checkpoint.load(tmp_path)[0], AutoModelForSequenceClassification.from_pretrained(tmp_path).train(False)]
    for other in others:
        assert head_counts(other) == [4, 2, 1, 3]
        wanted = model.state_dict()
        assert all(torch.equal(value, wanted[name]) for name, value in other.state_dict().items())
        with torch.no_grad():
            torch.testing.assert_close(other.outputs(batch)[4].logits, model.outputs(batch)[4].logits)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in HEADED_KINDS])
def test_a_family_with_another_attention_is_refused(kind: str) -> None:
    backbone = make_backbone(kind)
    with pytest.raises(ModelError, match=r"a known family \(bert, roberta, .*\)\. Found `.*`: choose another backbone"):
        check_headed(backbone)


@pytest.mark.parametrize("kind", HEADED_KINDS)
def test_the_softmax_of_the_scores_is_hugging_faces_attention(kind: str) -> None:
    backbone = make_backbone(kind, "eager")
    model = build(copy.deepcopy(backbone), ("no", "yes"), **SMALL).train(False)
    batch = make_batch(backbone, (6, 6))  # nothing is masked
    with torch.no_grad():
        found = backbone(batch.input_ids, batch.mask, output_attentions=True, output_hidden_states=True)
        for depth, below in enumerate(found.hidden_states[:-1], 1):
            shares = attention_scores(model, depth, below).softmax(dim=3)
            torch.testing.assert_close(shares, found.attentions[depth - 1], atol=1e-5, rtol=1e-5)


def test_a_mask_of_zeros_and_ones_equals_the_removal_and_is_gone_afterwards() -> None:
    model = build(make_backbone("bert"), ("no", "yes"), **SMALL).train(False)
    batch = make_batch(model.encoder.backbone, (9, 4, 7))
    rows = [torch.tensor([float(head in heads) for head in range(4)]) for heads in KEPT]
    with torch.no_grad():
        before = model.outputs(batch)[4].logits
        with masked_heads(model, [row.expand(3, 4) for row in rows]):
            silent = model.outputs(batch)[4].logits
        after = model.outputs(batch)[4].logits
        keep_heads(model, KEPT)
        torch.testing.assert_close(silent, model.outputs(batch)[4].logits, atol=1e-5, rtol=1e-5)
    assert torch.equal(before, after)
    assert not torch.allclose(before, silent, atol=1e-3)
