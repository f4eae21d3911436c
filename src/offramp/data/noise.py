"""TEXT -> TOKENS, noise: texts with words missing or out of place.

A word is a run of letters between blanks; in Chinese, which has no blanks, a character. What is random comes from the
generator that is passed in.
Reference: Wei and Zou, EDA (2019): random deletion and random swap.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import torch

from offramp.types import Example

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"([{CHINESE}]|[^\s{CHINESE}]+)(\s*)")

Noise = Callable[[str], str]
"""A text in, a worse one out."""


def drop_words(text: str, share: float, generator: torch.Generator) -> str:
    """The text without some of its words, each left out with probability `share`; one at least stays.

    >>> drop_words("not a dull film", 1.0, torch.Generator()).count(" ")
    0
    """
    words = WORD.findall(text)
    stays = torch.rand(len(words), generator=generator) >= share  # (W,)
    if len(words) and not stays.any():
        stays[torch.randint(len(words), (), generator=generator)] = True
    kept = (word + gap for (word, gap), stay in zip(words, stays.tolist(), strict=True) if stay)
    return "".join(kept).strip() or text


def swap_words(text: str, share: float, generator: torch.Generator) -> str:
    """The text after round(share * words) swaps of two of its words, drawn anew for each swap; blanks stay in place.

    Differences from EDA: there at least one swap is made, so that a share of 0 would be noise too.
    """
    found = WORD.findall(text)
    words = [word for word, _ in found]
    for _ in range(round(share * len(words)) if len(words) > 1 else 0):
        first, second = torch.randperm(len(words), generator=generator)[:2].tolist()
        words[first], words[second] = words[second], words[first]
    return "".join(word + gap for word, (_, gap) in zip(words, found, strict=True)).strip() or text


def noisy(examples: list[Example], noise: Noise) -> list[Example]:
    """The examples with noise in their texts, in both of a pair; labels as they are."""
    return [
        replace(
            example,
            text=noise(example.text),
            pair=None if example.pair is None else noise(example.pair),
            original=example.original or example,
        )
        for example in examples
    ]
