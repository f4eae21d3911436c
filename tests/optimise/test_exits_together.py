"""Exits that are read together say what they say one by one, and learn the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from offramp.config import CHOICES
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.optimise.exits_together import read_below, read_together
from offramp.types import States

DEPTHS = (1, 2, 3)


@pytest.mark.parametrize("kind", CHOICES["exits.kind"])
def test_together_is_one_by_one(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], kind: str
) -> None:
    model = make_model(layers=3, exit_kind=kind, exit_dropout=0.0).double()
    with torch.no_grad():
        walked = {d: States(s.output, s.output, s.mask) for d, s in model.walk(toy_tokens(7).batch(range(7)))}
    together = read_together(model, walked, DEPTHS)
    for depth in DEPTHS:
        alone = model.read(depth, walked[depth])
        parameters = list(model.exits[depth - 1].parameters())
        for part in ("representation", "logits"):
            found, wanted = getattr(together[depth], part), getattr(alone, part)
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
        assert together[depth].label_embeddings is alone.label_embeddings
        weights = torch.randn(7, 3, generator=torch.Generator().manual_seed(depth), dtype=torch.float64)
        mine, wanted_gradients = (
            torch.autograd.grad((weights * output.logits).sum(), parameters, retain_graph=True, allow_unused=True)
            for output in (together[depth], alone)
        )
        for mine_one, wanted_one in zip(mine, wanted_gradients, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if mine_one is None else mine_one,
                zero if wanted_one is None else wanted_one,
                rtol=1e-9,
                atol=1e-12,
                check_dtype=False,
            )


def test_a_dropout_mask_serves_all_exits_and_changes_with_the_batch(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> None:
    model = make_model(layers=3, exit_kind="linear", exit_dropout=0.5).train()
    for exit in model.exits:
        exit.load_state_dict(model.exits[0].state_dict())
    with torch.no_grad():
        states = next(s for _, s in model.walk(toy_tokens(5).batch(range(5))))
        same = dict.fromkeys(DEPTHS, States(states.output, states.output, states.mask))
        first, second = (read_together(model, same, DEPTHS) for _ in range(2))
    assert torch.equal(first[1].representation, first[3].representation)
    assert not torch.equal(first[1].representation, second[1].representation)
    assert (first[1].representation == 0).any()


APART = {7: ("linear", "match", "fusion"), 32: ("linear", "match", "fusion", "leam")}
"""Texts in a batch to the kinds that are read one after the other."""


@pytest.mark.parametrize("texts", APART)
@pytest.mark.parametrize("kind", CHOICES["exits.kind"])
def test_either_way_of_reading_says_the_same_and_some_exits_are_read_one_after_the_other(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], kind: str, texts: int
) -> None:
    model = make_model(layers=3, exit_kind=kind, exit_dropout=0.5)
    with torch.no_grad():
        walked = {d: States(s.output, s.output, s.mask) for d, s in model.walk(toy_tokens(texts).batch(range(texts)))}
    model.train(False)
    below, together = read_below(model, walked, DEPTHS), read_together(model, walked, DEPTHS)
    for depth in DEPTHS:
        torch.testing.assert_close(below[depth].logits, together[depth].logits, rtol=1e-4, atol=1e-5)
    model.train()
    for exit in model.exits:
        exit.load_state_dict(model.exits[0].state_dict())
    with torch.no_grad():
        drawn = read_below(model, dict.fromkeys(DEPTHS, walked[1]), DEPTHS)
    one_mask = torch.allclose(drawn[1].logits, drawn[3].logits, rtol=1e-4, atol=1e-5)
    assert one_mask == (kind not in APART[texts])
