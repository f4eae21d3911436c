"""The fusion exit is LaCon-fusion: the label embeddings choose the tokens, then the projection is matched."""

from __future__ import annotations

import pytest
import torch
from tests.exits.drawn import HIDDEN, drawn, make_exit, make_states
from tests.reference import exits as reference

from offramp.errors import ConfigError
from offramp.exits.fusion import FusionExit
from offramp.exits.label_attention import LabelAttention, attend
from offramp.exits.mean import token_mean


@pytest.mark.parametrize("window", [1, 3, 5, 9])
def test_the_exit_is_the_slow_loop_of_the_paper(window: int) -> None:
    exit = drawn(FusionExit(HIDDEN, 4, window, 0.1, 0.1)).double()
    states, mask = make_states()
    wanted = reference.fusion(dict(exit.state_dict()), 0.1, states.double(), mask)
    found = exit(states.double(), mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", ["fusion", "leam"])
@pytest.mark.parametrize("window", [2, 4])
def test_an_even_window_is_refused(kind: str, window: int) -> None:
    with pytest.raises(ConfigError, match=rf"`exits\.window` should be odd.* Found {window}\."):
        make_exit(kind, exit_window=window)


def test_a_token_like_a_label_draws_the_attention() -> None:
    attention = LabelAttention(2, 1)
    with torch.no_grad():
        attention.convolution.weight.copy_(50.0 * torch.eye(2)[:, :, None])
    labels = torch.eye(4)[:2]
    states = torch.eye(4)[[3, 1, 2]][None]  # the second token is the second label
    found = attention(states, torch.ones(1, 3), labels)
    torch.testing.assert_close(found[0], labels[1], atol=1e-6, rtol=0)


def test_tokens_that_are_like_no_label_share_the_attention() -> None:
    attention = LabelAttention(2, 1)
    labels = torch.eye(4)[:2]
    states = torch.eye(4)[[2, 3, 3]][None]
    found = attention(states, torch.tensor([[1, 1, 0]]), labels)
    torch.testing.assert_close(found[0], torch.tensor([0.0, 0.0, 0.5, 0.5]), atol=1e-6, rtol=0)


def test_a_new_convolution_has_no_bias_that_could_silence_it() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        attention = LabelAttention(2, 5)
        assert not attention.convolution.bias.any()
        assert attention.convolution.weight.std() > 0.1


def test_scores_that_are_all_alike_give_the_mean_of_the_text() -> None:
    states, mask = make_states()
    found = attend(torch.full((3, 1, 7), 2.5), states, mask)[:, 0]
    for text, length in enumerate((7, 1, 4)):
        mean = sum(states[text, :length]) / length
        torch.testing.assert_close(found[text], mean, atol=1e-6, rtol=0)
        torch.testing.assert_close(token_mean(states, mask)[text], mean, atol=1e-6, rtol=0)
