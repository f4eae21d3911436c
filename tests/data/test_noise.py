"""Noise in texts: what is kept is what was there, as much of it as was asked."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.data.noise import drop_words, noisy, swap_words
from offramp.types import Example

texts = st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=1, max_size=30).map(" ".join)
shares = st.floats(0, 1)
QUICK = settings(deadline=None, max_examples=100)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def is_part(part: list[str], whole: list[str]) -> bool:
    """Whether the words of a part stand in the whole, in this order."""
    rest = iter(whole)
    return all(word in rest for word in part)


@QUICK
@given(texts, shares, st.integers(0, 99))
def test_dropping_words_leaves_some_in_their_order(text: str, share: float, seed: int) -> None:
    left = drop_words(text, share, seeded(seed)).split()
    assert left
    assert is_part(left, text.split())


@QUICK
@given(texts, shares, st.integers(0, 99))
def test_swapping_words_loses_none(text: str, share: float, seed: int) -> None:
    assert Counter(swap_words(text, share, seeded(seed)).split()) == Counter(text.split())


def test_each_word_is_left_out_with_the_given_probability() -> None:
    long = " ".join(str(i) for i in range(20_000))
    left = len(drop_words(long, 0.3, seeded()).split())
    assert abs(left - 14_000) < 300  # the standard deviation is 65


@pytest.mark.parametrize("noise", [drop_words, swap_words])
def test_no_share_is_no_change_and_a_seed_tells_all(noise: object) -> None:
    assert callable(noise)
    text = "not a dull film, but a slow one\nall the same"
    assert noise(text, 0.0, seeded()) == text
    assert noise(text, 0.4, seeded(1)) == noise(text, 0.4, seeded(1))
    assert len({noise(text, 0.4, seeded(seed)) for seed in range(20)}) > 5


def test_one_swap_changes_two_words_and_a_share_tells_how_many_swaps() -> None:
    words = "a b c d e f g h i j"
    changed = [old != new for old, new in zip(words.split(), swap_words(words, 0.1, seeded()).split(), strict=True)]
    assert sum(changed) == 2
    # n swaps change at most 2 n words
    for swaps in range(6):
        new = swap_words(words, swaps / 10, seeded(3)).split()
        assert sum(a != b for a, b in zip(words.split(), new, strict=True)) <= 2 * swaps


def test_a_chinese_character_is_a_word() -> None:
    text = "这部电影不错 iPhone 很好"
    dropped = {drop_words(text, 0.5, seeded(seed)) for seed in range(20)}
    assert any(0 < len(one) < len(text) for one in dropped)
    assert all("iPhone" in one or not set("iPhone") & set(one) for one in dropped)  # whole or not at all
    swapped = swap_words(text, 0.5, seeded())
    assert Counter(swapped) == Counter(text)
    assert swapped != text


def test_a_single_word_stays() -> None:
    assert drop_words("good", 1.0, seeded()) == "good"
    assert swap_words("good", 5.0, seeded()) == "good"


def test_both_texts_of_a_pair_become_noisy_and_the_label_stays() -> None:
    given_ = [Example("a", "b", "yes"), Example("c", None, "no")]
    assert noisy(given_, str.upper) == [Example("A", "B", "yes"), Example("C", None, "no")]
