"""Who has left costs nothing more: the layers above see fewer and narrower rows, and remember each text rightly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.policies.confidence import Confidence
from offramp.policies.never import Never
from offramp.runtime.torch_engine import decide
from offramp.types import Batch, ExitOutput, States

LAYERS = 4
every_family = pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "deberta-v2"])
few = settings(max_examples=20, deadline=None)

Make = Callable[[str, str], MultiExitModel]
Tokens = Callable[..., Batch]
Witness = Callable[[MultiExitModel], Any]


class Timetable(Never):
    """Text i leaves at the exit `depths[i]` says; who is who is known from the state alone.

    The state holds the text's number and how many exits it has met.
    """

    def __init__(self, depths: list[int]) -> None:
        self.depths = torch.tensor(depths)
        self.met: dict[int, int] = {}

    def reads(self, depth: int) -> bool:
        return True

    def start(self, batch: Batch) -> Tensor:
        texts = torch.arange(len(batch))
        return torch.stack([texts, torch.zeros_like(texts)], dim=1)  # (B, 2)

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        assert len(state) == len(output.logits)
        state = torch.stack([state[:, 0], state[:, 1] + 1], dim=1)
        self.met |= dict(state.tolist())
        return self.depths[state[:, 0]] <= depth, state


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Lengths of texts, and the depth at which each is to leave."""
    n = draw(st.integers(1, 7))
    texts = st.lists(st.integers(1, 24), min_size=n, max_size=n)
    return draw(texts), draw(st.lists(st.integers(1, LAYERS), min_size=n, max_size=n))


@every_family
@few
@given(journey=journeys(), seed=st.integers(0, 10**6))
@torch.no_grad()
def test_the_state_of_a_text_moves_along_with_it(
    model_of: Make, tokens_for: Tokens, family: str, journey: tuple[list[int], list[int]], seed: int
) -> None:
    lengths, depths = journey
    model, policy = model_of(family, "mha"), Timetable(depths)
    batch = tokens_for(model, lengths, seed)
    found = decide(model, batch, policy)
    assert found.depth.tolist() == depths
    assert policy.met == dict(enumerate(depths))
    every = model.outputs(batch)
    for row, depth in enumerate(depths):
        torch.testing.assert_close(found.logits[row], every[depth].logits[row], rtol=0.0, atol=1e-5)


@every_family
@few
@given(journey=journeys(), spare=st.integers(0, 3))
def test_a_layer_sees_who_is_left_trimmed_to_the_longest_of_them(
    model_of: Make,
    tokens_for: Tokens,
    witness: Witness,
    family: str,
    journey: tuple[list[int], list[int]],
    spare: int,
) -> None:
    lengths, depths = journey
    model = model_of(family, "linear")
    batch = tokens_for(model, lengths, 0, spare=spare)
    with witness(model) as seen:
        decide(model, batch, Timetable(depths))
    truth = {}
    for layer in range(1, max(depths) + 1):
        here = [length for length, depth in zip(lengths, depths, strict=True) if depth >= layer]
        somebody_left = len(here) < len(lengths)
        truth[layer] = (len(here), max(here) if somebody_left else max(lengths) + spare)
    assert seen == truth


def test_the_surest_texts_of_a_batch_spare_the_others_work(
    model_of: Make, tokens_for: Tokens, witness: Witness
) -> None:
    model = model_of("bert", "mha")
    batch = tokens_for(model, [3, 24, 9, 1, 15, 6, 12, 20] * 4, 5)
    with witness(model) as seen:
        depths = decide(model, batch, Confidence(0.8)).depth
    rows = [seen[layer][0] for layer in sorted(seen)]
    assert rows == [int((depths >= layer).sum()) for layer in range(1, LAYERS + 1)]
    assert rows[0] == 32 > rows[-1] > 0


def test_states_that_are_kept_keep_what_exits_read_of_them() -> None:
    hidden, mask = torch.randn(3, 4, 2), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    kept = States(hidden, output=2 * hidden, mask=mask, attention=("of the old shape",)).keep(torch.tensor([2, 1]))
    assert torch.equal(kept.hidden, hidden[[2, 1], :2])
    assert torch.equal(kept.output, 2 * hidden[[2, 1], :2])
    assert kept.mask.tolist() == [[1, 0], [1, 1]]
    assert kept.attention is None


def test_an_exit_that_nobody_reads_is_not_computed(model_of: Make, tokens_for: Tokens) -> None:
    model = model_of("bert", "mha")
    asked: list[int] = []
    hooks = [
        exit.register_forward_pre_hook(lambda *_, depth=depth: asked.append(depth))
        for depth, exit in enumerate(model.exits, 1)
    ]
    try:
        decide(model, tokens_for(model, [3, 5], 0), Never())
    finally:
        for hook in hooks:
            hook.remove()
    assert asked == [LAYERS]


def test_a_batch_that_is_given_stays_as_it_was(model_of: Make, tokens_for: Tokens) -> None:
    model = model_of("bert", "mha")
    batch, again = (tokens_for(model, [3, 5, 9], 0) for _ in range(2))
    decide(model, batch, Timetable([1, 3, 2]))
    assert torch.equal(batch.input_ids, again.input_ids)
    assert torch.equal(batch.mask, again.mask)
