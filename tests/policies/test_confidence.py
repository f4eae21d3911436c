from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.confidence import Confidence
from offramp.types import ExitOutput

Says = Callable[..., ExitOutput]
number = st.floats(-30, 30, width=32)
tables = st.integers(2, 5).flatmap(lambda k: st.lists(st.lists(number, min_size=k, max_size=k), min_size=1, max_size=8))
thresholds = st.floats(0, 1)
EMPTY = torch.empty(0)
few = settings(max_examples=50, deadline=None)


def leaves(threshold: float, output: ExitOutput) -> list[bool]:
    return Confidence(threshold).leave(1, output, EMPTY)[0].tolist()


def top(row: list[float]) -> float:
    """The largest probability of a softmax, term by term."""
    return 1 / sum(math.exp(x - max(row)) for x in row)


@few
@given(tables, thresholds)
def test_who_leaves_has_a_top_probability_of_the_threshold_or_more(
    says: Says, rows: list[list[float]], threshold: float
) -> None:
    tops = [top(row) for row in rows]
    assume(all(abs(found - threshold) > 1e-6 for found in tops))  # float32 rounds there
    assert leaves(threshold, says(rows)) == [found >= threshold for found in tops]


@few
@given(tables, thresholds, thresholds)
def test_who_leaves_at_a_high_threshold_leaves_at_a_lower_one(
    says: Says, rows: list[list[float]], one: float, other: float
) -> None:
    low, high = leaves(min(one, other), says(rows)), leaves(max(one, other), says(rows))
    assert all(stays_low or not gone_high for stays_low, gone_high in zip(low, high, strict=True))


@few
@given(tables)
def test_at_threshold_0_everybody_leaves(says: Says, rows: list[list[float]]) -> None:
    assert all(leaves(0.0, says(rows)))


def test_at_threshold_1_only_a_certainty_leaves(says: Says) -> None:
    assert leaves(1.0, says([[0.0, 0.0], [9.0, 0.0], [200.0, 0.0], [1e30, -1e30]])) == [False, False, True, True]


def test_the_threshold_itself_is_enough(says: Says) -> None:
    assert leaves(0.5, says([[3.0, 3.0]])) == [True]


def test_huge_logits_are_sure_and_nan_is_not(says: Says) -> None:
    assert leaves(0.99, says([[3e38, -3e38, 0.0], [math.nan, 1.0, 2.0]])) == [True, False]


def test_half_precision_logits_are_judged_in_float32(says: Says) -> None:
    # 1 / (1 + exp(-3)) = 0.95257; the bfloat16 numbers around it are 0.9492 and 0.9531.
    half = says(torch.tensor([[3.0, 0.0]], dtype=torch.bfloat16))
    assert (leaves(0.9525, half), leaves(0.9530, half)) == ([True], [False])


@few
@given(tables, thresholds, st.randoms(use_true_random=False))
def test_a_text_is_judged_by_its_own_logits_in_any_place(
    says: Says, rows: list[list[float]], threshold: float, chance: object
) -> None:
    order = list(range(len(rows)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    together = leaves(threshold, says(rows))
    assert leaves(threshold, says([rows[i] for i in order])) == [together[i] for i in order]
    assert [leaves(threshold, says([row]))[0] for row in rows] == together


def test_the_state_comes_back_untouched(says: Says) -> None:
    state: Tensor = torch.arange(6.0).reshape(3, 2)
    _, after = Confidence(0.5).leave(2, says([[1.0, 2.0]] * 3), state)
    assert torch.equal(after, torch.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize(("threshold", "found"), [(1.7, "1.7"), (-0.1, "-0.1"), (90, "90"), (math.nan, "nan")])
def test_a_threshold_that_is_no_probability_is_named(threshold: float, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Confidence(threshold)
    assert str(caught.value) == f"`threshold` should be between 0 and 1. Found {found}."
