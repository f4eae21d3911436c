from __future__ import annotations

import torch

from offramp.data.seen import count_seen, digests
from offramp.types import Example

SEEN = [Example("A text"), Example("a  text "), Example("one", "other"), Example("größer 好")]


def test_a_text_is_known_again_whatever_its_blanks_capitals_and_label() -> None:
    seen = digests(SEEN)
    again = [Example("a text", label="x"), Example("ONE", "other"), Example("größer 好")]
    assert count_seen(seen, again) == 3
    assert len(seen) == 3
    assert torch.equal(seen, seen.sort().values)


def test_a_new_text_is_new() -> None:
    new = [Example("another"), Example("one"), Example("other", "one"), Example("one other"), Example("one", "")]
    assert count_seen(digests(SEEN), new) == 0
    assert count_seen(digests([]), SEEN) == 0


def test_ten_thousand_texts_have_ten_thousand_hashes() -> None:
    assert len(digests(Example(f"text {number}") for number in range(10_000))) == 10_000
