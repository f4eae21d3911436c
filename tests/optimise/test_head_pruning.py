"""Heads go by their importance, which is what a finite difference says it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from offramp.data.tokens import Tokens
from offramp.exits.heads import keep_heads, masked_heads
from offramp.exits.model import MultiExitModel
from offramp.optimise.head_pruning import importance, survivors

STEP = 1e-4


def test_importance_is_the_mean_size_of_a_finite_difference(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> None:
    model, tokens = make_model(layers=2).double(), toy_tokens(7)
    found = importance(model, tokens)
    for layer in range(2):
        for head in range(4):
            sizes = []
            for row in range(len(tokens)):
                batch = tokens.batch([row])
                losses = []
                for factor in (1.0 + STEP, 1.0 - STEP):
                    masks = [torch.ones(1, 4, dtype=torch.float64) for _ in range(2)]
                    masks[layer][0, head] = factor
                    with torch.no_grad(), masked_heads(model, masks):
                        losses.append(functional.cross_entropy(model.outputs(batch, [2])[2].logits, batch.labels))
                sizes.append(abs(float(losses[0] - losses[1])) / (2 * STEP))
            assert float(found[layer][head]) == pytest.approx(sum(sizes) / len(sizes), rel=1e-4, abs=1e-7)


def test_importance_does_not_depend_on_who_shares_a_batch(
    make_model: Callable[..., MultiExitModel],
    toy_tokens: Callable[..., Tokens],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, tokens = make_model(layers=2), toy_tokens(40)
    together = importance(model, tokens)
    monkeypatch.setattr("offramp.optimise.head_pruning._BATCH", 1)
    for alone, wanted in zip(importance(model, tokens), together, strict=True):
        torch.testing.assert_close(alone, wanted, atol=1e-6, rtol=1e-4)


def test_a_head_whose_output_nobody_hears_is_not_important(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> None:
    model = make_model(layers=2)
    with torch.no_grad():
        model.encoder.backbone.encoder.layer[1].attention.output.dense.weight[:, 8:16] = 0.0
    found = importance(model, toy_tokens(8))
    assert float(found[1][1]) == 0.0
    others = [float(scores[head]) for layer, scores in enumerate(found) for head in range(4) if (layer, head) != (1, 1)]
    assert min(others) > 0.0
    assert 1 not in survivors(found, share=0.8)[1]


@pytest.mark.parametrize(("share", "count"), [(0.0, 3), (0.25, 3), (0.5, 6), (0.6, 7), (1.0, 12)])
def test_as_many_heads_stay_as_were_asked_for_and_one_in_each_layer(share: float, count: int) -> None:
    scores = [torch.rand(4, generator=torch.Generator().manual_seed(layer)) for layer in range(3)]
    kept = survivors(scores, share)
    assert sum(map(len, kept)) == count
    for heads, layer in zip(kept, scores, strict=True):
        assert heads == sorted(set(heads))
        assert int(layer.argmax()) in heads
        gone = [float(layer[head]) for head in range(4) if head not in heads]
        assert not gone or max(gone) <= min(float(layer[head]) for head in heads)


def test_importances_are_compared_in_proportion_to_their_layers_own() -> None:
    # The third head of the second layer is the larger share of its layer, and the smaller number.
    scores = [torch.tensor([100.0, 100.0, 10.0]), torch.tensor([1.0, 0.1, 0.9])]
    assert survivors(scores, share=0.7) == [[0, 1], [0, 2]]


def test_heads_that_do_not_matter_at_all_still_have_an_order() -> None:
    assert survivors([torch.zeros(3), torch.zeros(3)], share=0.5) == [[0, 1], [0]]


def test_removing_the_least_important_heads_changes_the_answers_least(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> None:
    tokens = toy_tokens(32)
    batch = tokens.batch(range(32))
    changes = []
    for sign in (1.0, -1.0):
        model = make_model(layers=2)
        with torch.no_grad():
            # Heads that speak more or less loudly.
            for layer in model.encoder.backbone.encoder.layer:
                for head, loudness in enumerate((0.02, 2.0, 0.02, 2.0)):
                    layer.attention.output.dense.weight[:, 8 * head : 8 * head + 8] *= loudness
            before = model.outputs(batch, [2])[2].logits
        keep_heads(model, survivors([sign * scores for scores in importance(model, tokens)], share=0.5))
        with torch.no_grad():
            changes.append(float((model.outputs(batch, [2])[2].logits - before).norm()))
    assert changes[0] < 0.2 * changes[1]
