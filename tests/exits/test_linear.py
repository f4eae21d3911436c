"""A single linear exit is the classification head Hugging Face puts on the family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.encoder.backbones import KINDS, TYPED, make_backbone, make_batch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from offramp.exits.linear import LinearExit
from offramp.exits.model import MultiExitModel, build
from offramp.exits.projection import Projection

CLASSES = ("bad", "fine", "good")

HEADS: dict[str, tuple[str, str]] = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
    "electra-narrow": ("classifier.dense", "classifier.out_proj"),
    "distilbert": ("pre_classifier", "classifier"),
    "deberta-absolute": ("pooler.dense", "classifier"),
    "deberta-conv": ("pooler.dense", "classifier"),
    "deberta-v3": ("pooler.dense", "classifier"),
}
"""Where Hugging Face's classifier keeps the dense layer and the last one."""


def classifier_of(kind: str) -> Any:
    """Hugging Face's own classifier, dropout off, no bias 0."""
    torch.manual_seed(0)
    config = KINDS[kind]()
    config.num_labels = len(CLASSES)
    theirs = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return theirs.train(False)


def copied(kind: str, theirs: Any) -> MultiExitModel:
    """A model with Hugging Face's weights in the backbone and in the last exit."""
    model = build(make_backbone(kind, seed=1), CLASSES, exit_kind="linear")
    inner = model.encoder.backbone
    weights = theirs.base_model.state_dict()
    inner.load_state_dict({name: value for name, value in weights.items() if not name.startswith("pooler.")})
    last: Any = model.exits[-1]
    for ours, name in zip((last.pool, last.classifier), HEADS[kind], strict=True):
        ours.load_state_dict(theirs.get_submodule(name).state_dict())
    return model.train(False)


@pytest.mark.parametrize("lengths", [(21, 4, 11), (13, 13)])
@pytest.mark.parametrize("kind", HEADS)
def test_the_last_linear_exit_is_hugging_faces_classifier(kind: str, lengths: tuple[int, ...]) -> None:
    theirs = classifier_of(kind)
    model = copied(kind, theirs)
    batch = make_batch(model.encoder.backbone, lengths, pairs=kind in TYPED)
    types = {"token_type_ids": batch.token_types} if kind in TYPED else {}
    with torch.no_grad():
        wanted: Tensor = theirs(input_ids=batch.input_ids, attention_mask=batch.mask, **types).logits
        found = model(batch.input_ids, batch.mask, **types).logits
    assert wanted.abs().max() > 0.05
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", HEADS)
def test_its_loss_is_hugging_faces(kind: str) -> None:
    theirs = classifier_of(kind)
    model = copied(kind, theirs)
    batch = make_batch(model.encoder.backbone, (9, 5, 7))
    labels = torch.tensor([0, 2, 1])
    with torch.no_grad():
        wanted = theirs(input_ids=batch.input_ids, attention_mask=batch.mask, labels=labels).loss
        found = model(batch.input_ids, batch.mask, labels=labels).loss
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def test_only_the_first_token_is_read() -> None:
    torch.manual_seed(0)
    exit = LinearExit(8, 3, 0.1, "tanh").train(False)
    states = torch.randn(2, 5, 8)
    other = states.clone()
    other[:, 1:] = 1e3
    mask = torch.ones(2, 5, dtype=torch.int64)
    assert torch.equal(exit(states, mask).logits, exit(other, mask).logits)


def test_the_exit_without_a_pooler_is_one_linear_layer() -> None:
    torch.manual_seed(0)
    exit = LinearExit(8, 3, 0.1, None).train(False)
    states = torch.randn(2, 5, 8)
    found = exit(states, torch.ones(2, 5, dtype=torch.int64))
    assert torch.equal(found.representation, states[:, 0])
    assert found.label_embeddings is exit.classifier.weight
    by_hand = states[:, 0] @ exit.classifier.weight.T + exit.classifier.bias
    torch.testing.assert_close(found.logits, by_hand, atol=1e-6, rtol=0)
    assert sum(isinstance(m, nn.Linear) for m in exit.modules()) == 1


def test_lacons_projection_may_stand_in_the_place_of_the_pooler() -> None:
    torch.manual_seed(0)
    exit = LinearExit(8, 3, 0.1, "tanh", "mlp").train(False)
    states = torch.randn(2, 5, 8)
    vector = states[:, 0]
    weights = dict(exit.named_parameters())
    for layer in (0, 2, 4):
        vector = vector.relu() if layer else vector
        vector = vector @ weights[f"pool.{layer}.weight"].T + weights[f"pool.{layer}.bias"]
    found = exit(states, torch.ones(2, 5, dtype=torch.int64))
    torch.testing.assert_close(found.representation, vector, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.logits, exit.classifier(vector), atol=1e-6, rtol=0)


def test_a_projection_of_another_shape_takes_nothing_from_the_backbones_pooler() -> None:
    model = build(make_backbone("bert"), CLASSES, exit_kind="linear", exit_projection="mlp")
    assert isinstance(model.exits[0].pool, Projection)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta"])
def test_every_linear_exit_begins_with_a_copy_of_the_backbones_pooler(kind: str) -> None:
    backbone = make_backbone(kind)
    pooler = {name: value.clone() for name, value in backbone.pooler.dense.state_dict().items()}
    model = build(backbone, CLASSES, exit_kind="linear")
    exits: list[Any] = list(model.exits)
    for exit in exits:
        assert torch.equal(exit.pool.weight, pooler["weight"])
        assert torch.equal(exit.pool.bias, pooler["bias"])
    assert len({exit.pool.weight.data_ptr() for exit in exits}) == len(exits)
