"""An exit that tags words reads each at its first token, and nothing else of the batch changes what it says."""

from __future__ import annotations

import pytest
import torch
from tests.reference import exits as reference
from torch import Tensor

from offramp.exits.base import Exit
from offramp.exits.linear import LinearExit
from offramp.exits.mha import MhaExit
from offramp.exits.residual import ResidualExit

LENGTHS = (9, 1, 5, 3)


def made(kind: str) -> Exit:
    torch.manual_seed(0)
    narrow = {"mha": MhaExit, "residual": ResidualExit}
    exit: Exit = LinearExit(12, 3, 0.1, "tanh") if kind == "linear" else narrow[kind](12, 3, 8, 2, 0.1)
    with torch.no_grad():
        for parameter in exit.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape))
    return exit.train(False)


def drawn(seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """States, mask, and marks of some of the tokens."""
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(len(LENGTHS), max(LENGTHS), 12, generator=draw)
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return states, mask, (torch.rand(mask.shape, generator=draw) < 0.6).long() * mask


def led(states: Tensor, row: int, place: int) -> tuple[Tensor, Tensor]:
    """A text alone, without padding, whose token at `place` comes first."""
    own = states[row, : LENGTHS[row]]
    order = [place, *(k for k in range(LENGTHS[row]) if k != place)]
    return own[order][None], torch.ones(1, LENGTHS[row], dtype=torch.int64)


def test_the_linear_exit_reads_a_word_as_a_text_that_begins_with_it() -> None:
    exit = made("linear")
    states, mask, words = drawn()
    found = exit(states, mask, words)
    places = words.nonzero().tolist()
    assert len(found.logits) == len(found.representation) == len(places) > 5
    for number, (row, place) in enumerate(places):
        wanted = exit(*led(states, row, place))
        torch.testing.assert_close(found.logits[number], wanted.logits[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.representation[number], wanted.representation[0], atol=1e-5, rtol=0)


def test_the_attention_exit_at_a_word_is_the_slow_loop() -> None:
    exit = made("mha")
    states, mask, words = drawn()
    found = exit(states, mask, words)
    for number, (row, place) in enumerate(words.nonzero().tolist()):
        # The exit knows no order of tokens, so the word may be put first.
        wanted = reference.mha(dict(exit.state_dict()), 2, *led(states, row, place), own=True)
        torch.testing.assert_close(found.representation[number], wanted.representation[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.logits[number], wanted.logits[0], atol=1e-5, rtol=0)


def test_the_residual_exit_at_a_word_is_the_slow_loop() -> None:
    exit = made("residual")
    states, mask, words = drawn()
    found = exit(states, mask, words)
    for number, (row, place) in enumerate(words.nonzero().tolist()):
        wanted = reference.residual(dict(exit.state_dict()), 2, *led(states, row, place), own=True)
        torch.testing.assert_close(found.representation[number], wanted.representation[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.logits[number], wanted.logits[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["linear", "mha", "residual"])
def test_every_token_is_what_the_marks_choose_from(kind: str) -> None:
    exit = made(kind)
    states, mask, words = drawn()
    every, found = exit.every_token(states, mask), exit(states, mask, words)
    torch.testing.assert_close(every.logits[words == 1], found.logits)
    assert every.representation.shape[:2] == mask.shape
    assert found.label_embeddings is every.label_embeddings


@pytest.mark.parametrize("kind", ["linear", "mha", "residual"])
def test_the_padding_and_the_marks_of_others_change_nothing(kind: str) -> None:
    exit = made(kind)
    states, mask, words = drawn()
    whole = exit(states, mask, words).logits
    wide = (
        torch.nn.functional.pad(states, (0, 0, 0, 4), value=1e3),
        *(torch.nn.functional.pad(m, (0, 4)) for m in (mask, words)),
    )
    torch.testing.assert_close(exit(*wide).logits, whole, atol=1e-6, rtol=0)
    fewer = words.clone()
    fewer[0] = 0
    torch.testing.assert_close(exit(states, mask, fewer).logits, whole[int(words[0].sum()) :], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["linear", "mha", "residual"])
def test_no_words_give_no_rows(kind: str) -> None:
    states, mask, words = drawn()
    found = made(kind)(states, mask, torch.zeros_like(words))
    assert found.logits.shape == (0, 3)
