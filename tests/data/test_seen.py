from __future__ import annotations

import torch

from offramp.data.noise import drop_words, noisy, swap_words
from offramp.data.seen import digests, unseen
from offramp.types import Example

SEEN = [Example("A text"), Example("a  text "), Example("one", "other"), Example("größer 好")]


def test_a_text_is_known_again_whatever_its_blanks_capitals_and_label() -> None:
    seen = digests(SEEN)
    again = [Example("a text", label="x"), Example("ONE", "other"), Example("größer 好")]
    assert unseen(seen, again) == ([], 3)
    assert len(seen) == 3
    assert torch.equal(seen, seen.sort().values)


def test_a_new_text_is_new() -> None:
    new = [Example("another"), Example("one"), Example("other", "one"), Example("one other"), Example("one", "")]
    assert unseen(digests(SEEN), new) == ([0, 1, 2, 3, 4], 0)


def test_a_text_that_stands_there_again_is_one_text() -> None:
    assert unseen(digests([]), SEEN) == ([0, 2, 3], 0)
    assert unseen(digests(SEEN[2:3]), [*SEEN, *SEEN]) == ([0, 3], 2)


def test_a_text_with_noise_in_it_is_known_by_what_it_was() -> None:
    calm = [Example("not a dull film"), Example("one text", "another text")]
    chance = torch.Generator().manual_seed(0)
    worse = noisy(noisy(calm, lambda text: swap_words(text, 1.0, chance)), lambda text: drop_words(text, 0.9, chance))
    assert unseen(digests(worse), calm) == ([], 2)


def test_ten_thousand_texts_have_ten_thousand_hashes() -> None:
    assert len(digests(Example(f"text {number}") for number in range(10_000))) == 10_000
