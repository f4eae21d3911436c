"""Training with the word embeddings' gradient as rows is training with the whole of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from offramp.config import Config
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.alignment import Rule
from offramp.optimise.gradients import SCOPES, Scene
from offramp.optimise.row_gradients import RowGradients
from offramp.optimise.strategies import plan
from offramp.optimise.update import Update, rate


@pytest.mark.parametrize(
    ("scope", "accumulation", "clip"),
    [("none", 1, 0.05), ("none", 2, 0.0), ("exact", 1, 0.05), ("exact", 2, 100.0), ("exit", 2, 0.05)],
)
def test_ten_updates_give_the_same_parameters(
    make_model: Callable[..., MultiExitModel],
    toy_tokens: Callable[..., Tokens],
    configure: Callable[..., Config],
    scope: str,
    accumulation: int,
    clip: float,
) -> None:
    """Against the optimiser of torch, with dense gradients and torch's own clipping."""
    rows = make_model(layers=1).double()
    dense = copy.deepcopy(rows)
    tokens = toy_tokens(60)
    config = configure(optimise__clip=clip, optimise__lr_backbone=1e-2, optimise__lr_exit=1e-2)
    loss = objective("acl", weight=0.3)
    ours, theirs = (Scene(m, loss, plan("single", m)[0], Rule(90.0), share=1 / accumulation) for m in (rows, dense))
    update = Update(rows, ours.phase.trainable, config.optimise)
    assert update.rows is not None
    decayed = [p for p in theirs.phase.trainable if p.ndim > 1]
    plain = [p for p in theirs.phase.trainable if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}])
    for step in range(10):
        for part in range(accumulation):
            # Few texts of many lengths: padding, words that repeat, and rows that only some batches touch.
            batch = tokens.batch([(5 * step + 3 * part + k) % 60 for k in range(3)])
            assert (batch.mask == 0).any()
            SCOPES[scope](ours, batch)
            SCOPES[scope](theirs, batch)
        weight = update.rows.embedding.weight
        assert weight.grad is not None
        assert weight.grad.is_sparse
        update.apply(rate(step, 10, 0.1))
        if clip:
            nn.utils.clip_grad_norm_(theirs.phase.trainable, clip)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * rate(step, 10, 0.1)
        optimizer.step()
        optimizer.zero_grad()
    wanted = dict(dense.named_parameters())
    for name, parameter in rows.named_parameters():
        torch.testing.assert_close(parameter, wanted[name], rtol=1e-8, atol=1e-8, msg=name)
    start = dict(make_model(layers=1).double().named_parameters())
    assert not torch.allclose(start["exits.0.classifier.weight"], wanted["exits.0.classifier.weight"])


def gradient_of(embedding: nn.Embedding, tokens: Tensor) -> None:
    (embedding(tokens) * torch.arange(1.0, 4.0)).sum().backward()


def test_the_rows_are_the_gradient_and_repeated_tokens_add_up() -> None:
    embedding = nn.Embedding(6, 3, padding_idx=0)
    rows = RowGradients(embedding)
    gradient_of(embedding, torch.tensor([[4, 2, 4], [4, 0, 0]]))
    values = rows.values()
    assert values is not None
    assert values.tolist() == [[1.0, 2.0, 3.0], [3.0, 6.0, 9.0]]  # of tokens 2 and 4; padding has none
    rows.spread()
    wanted = torch.zeros(6, 3)
    wanted[2], wanted[4] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 6.0, 9.0])
    assert torch.equal(embedding.weight.grad, wanted)


def test_scaling_the_values_scales_the_gradient() -> None:
    embedding = nn.Embedding(6, 3)
    rows = RowGradients(embedding)
    gradient_of(embedding, torch.tensor([[4, 2, 4]]))
    values = rows.values()
    assert values is not None
    values.mul_(0.5)
    rows.spread()
    assert embedding.weight.grad[4].tolist() == [1.0, 2.0, 3.0]


def test_nothing_of_a_batch_is_left_for_the_next_one() -> None:
    embedding = nn.Embedding(6, 3)
    rows = RowGradients(embedding)
    for tokens in ([4, 2, 4], [1], [5, 2]):
        gradient_of(embedding, torch.tensor([tokens]))
        rows.spread()
        touched = embedding.weight.grad.any(dim=1).nonzero()[:, 0].tolist()
        assert touched == sorted(set(tokens))
        rows.clear()
        assert embedding.weight.grad is None
        assert rows.buffer is not None
        assert not rows.buffer.any()


def test_without_a_gradient_there_is_nothing_to_do() -> None:
    rows = RowGradients(nn.Embedding(6, 3))
    assert rows.values() is None
    rows.spread()
    rows.clear()
    assert rows.embedding.weight.grad is None


@pytest.mark.parametrize("before", [False, True])
def test_the_embedding_is_left_as_it_was_found(before: bool) -> None:
    embedding = nn.Embedding(6, 3, sparse=before)
    rows = RowGradients(embedding)
    assert embedding.sparse
    gradient_of(embedding, torch.tensor([[1]]))
    rows.close()
    assert embedding.sparse is before
    assert embedding.weight.grad is None


def test_a_backbone_whose_words_do_not_learn_has_no_rows(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config]
) -> None:
    model = make_model(layers=1)
    phase = replace(plan("single", model)[0], trainable=tuple(model.exits.parameters()))
    assert Update(model, phase.trainable, configure().optimise).rows is None
    assert not model.encoder.backbone.get_input_embeddings().sparse
