"""The residual exit is its formula, is as small as is said, and knows from the first step what the mean tells."""

from __future__ import annotations

import pytest
import torch
from tests.exits.drawn import HIDDEN, drawn, make_exit, make_states
from tests.reference import exits as reference

from offramp.errors import ConfigError
from offramp.exits.mha import MhaExit
from offramp.exits.residual import ResidualExit


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_exit_is_the_slow_loop_of_its_formula(heads: int) -> None:
    exit = drawn(ResidualExit(HIDDEN, 3, 8, heads, 0.1))
    states, mask = make_states()
    wanted = reference.residual(dict(exit.state_dict()), heads, states, mask)
    found = exit(states, mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-5, rtol=0)


def test_without_its_attention_it_is_the_mean_at_one_length() -> None:
    exit = make_exit("residual")
    assert isinstance(exit, ResidualExit)
    torch.nn.init.zeros_(exit.up.weight)
    torch.nn.init.zeros_(exit.up.bias)
    states, mask = make_states((7, 4))
    for scale in (0.1, 1.0, 30.0):
        found = exit(scale * states, mask).representation
        torch.testing.assert_close(found.norm(dim=1), torch.full((2,), HIDDEN**0.5), rtol=1e-2, atol=0)
        means = torch.stack([states[0].mean(dim=0), states[1, :4].mean(dim=0)])
        centred = means - means.mean(dim=1, keepdim=True)
        assert torch.nn.functional.cosine_similarity(found, centred).min() > 0.9999


def test_the_order_of_the_tokens_is_nothing_to_it() -> None:
    exit = make_exit("residual")
    states, mask = make_states((6,))
    torch.testing.assert_close(exit(states.flip(1), mask).logits, exit(states, mask).logits, atol=1e-5, rtol=0)


def test_an_exit_of_bert_base_adds_less_than_a_fifth_of_a_percent() -> None:
    parameters, narrow = (
        sum(parameter.numel() for parameter in kind(768, 2, 64, 4, 0.1).parameters())
        for kind in (ResidualExit, MhaExit)
    )
    assert parameters == narrow + (64 * 768 + 768) + 2 * (768 - 64)
    assert parameters < 0.002 * 110_000_000


def test_a_size_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"multiple of `exits\.heads` \(5\)\. Found 64\."):
        ResidualExit(12, 3, 64, 5, 0.1)
