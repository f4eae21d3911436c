"""The multi-head attention exit is ACL section 3.2, reads no padding, and is small."""

from __future__ import annotations

import pytest
import torch
from tests.reference import exits as reference
from torch import Tensor

from offramp.errors import ConfigError
from offramp.exits.mha import MhaExit


def make_exit(hidden: int = 12, classes: int = 3, size: int = 8, heads: int = 2, dropout: float = 0.1) -> MhaExit:
    torch.manual_seed(0)
    exit = MhaExit(hidden, classes, size, heads, dropout)
    with torch.no_grad():
        for parameter in exit.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape))  # torch begins the attention's biases at 0
    return exit.train(False)


def make_states(lengths: tuple[int, ...] = (7, 1, 4), hidden: int = 12) -> tuple[Tensor, Tensor]:
    states = torch.randn(len(lengths), max(lengths), hidden, generator=torch.Generator().manual_seed(1))
    return states, (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_exit_is_the_slow_loop_of_the_paper(heads: int) -> None:
    exit = make_exit(heads=heads)
    states, mask = make_states()
    wanted = reference.mha(dict(exit.state_dict()), heads, states, mask)
    found = exit(states, mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-5, rtol=0)


def test_the_label_embeddings_are_the_classifiers_own_weights() -> None:
    exit = make_exit()
    found = exit(*make_states())
    assert found.label_embeddings is exit.classifier.weight
    by_hand = found.representation @ found.label_embeddings.T + exit.classifier.bias
    torch.testing.assert_close(found.logits, by_hand, atol=1e-6, rtol=0)


@pytest.mark.parametrize("training", [False, True])
def test_what_stands_in_the_padding_never_changes_the_output(training: bool) -> None:
    exit = make_exit(dropout=0.0).train(training)
    states, mask = make_states()
    wanted = exit(states, mask)
    for filler in (0.0, 1e3, -1e3):
        found = exit(states.masked_fill(mask[:, :, None] == 0, filler), mask)
        torch.testing.assert_close(found.logits, wanted.logits, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.representation, wanted.representation, atol=1e-6, rtol=0)


def test_a_text_gets_the_same_output_alone_and_among_longer_ones() -> None:
    exit = make_exit()
    states, mask = make_states((7, 1, 4))
    together = exit(states, mask)
    for text, length in enumerate((7, 1, 4)):
        alone = exit(states[text : text + 1, :length], mask[text : text + 1, :length])
        torch.testing.assert_close(together.logits[text], alone.logits[0], atol=1e-6, rtol=0)


def test_every_token_of_the_text_is_read() -> None:
    exit = make_exit()
    states, mask = make_states((7,))
    wanted = exit(states, mask).representation
    for place in range(7):
        other = states.clone()
        other[:, place] += 1.0
        assert (exit(other, mask).representation - wanted).abs().max() > 1e-3, place


def test_every_weight_of_the_exit_learns() -> None:
    exit = make_exit().train()
    states, mask = make_states()
    exit(states, mask).logits.square().sum().backward()
    for name, parameter in exit.named_parameters():
        assert parameter.grad is not None, name
        # A bias of the keys shifts all scores of a query alike; the other two thirds of that vector learn.
        assert parameter.grad.abs().max() > 1e-6, name


def test_dropout_acts_in_training_only() -> None:
    exit = make_exit(dropout=0.5)
    states, mask = make_states()
    assert torch.equal(exit(states, mask).logits, exit(states, mask).logits)
    exit.train()
    torch.manual_seed(0)
    assert not torch.equal(exit(states, mask).logits, exit(states, mask).logits)


def test_an_exit_of_bert_base_adds_less_than_a_fifth_of_a_percent() -> None:
    exit = MhaExit(768, 2, 64, 4, 0.1)
    parameters = sum(parameter.numel() for parameter in exit.parameters())
    by_hand = (768 * 64 + 64) + 4 * (64 * 64 + 64) + (64 * 2 + 2)
    assert parameters == by_hand
    assert parameters < 0.002 * 110_000_000


@pytest.mark.parametrize(("size", "heads"), [(64, 5), (6, 4), (3, 2)])
def test_a_size_that_the_heads_do_not_divide_is_refused(size: int, heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"multiple of `exits\.heads` \({heads}\)\. Found {size}\."):
        MhaExit(12, 3, size, heads, 0.1)
