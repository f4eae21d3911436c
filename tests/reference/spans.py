"""Spans of B-I-O tags and their scores, as slow loops: each two words are asked whether a span joins them.

The rules are those of CoNLL's `conlleval`: a chunk begins at `B-`, or where the label changes, or behind `O`; it ends
before the next beginning, before another label, before `O`, and at the end of the text.
"""

from __future__ import annotations

from collections.abc import Sequence

Found = set[tuple[str, int, int]]


def kind(tag: str) -> str:
    """The label of a tag; empty outside."""
    if tag == "O":
        return ""
    return tag[2:] if tag[:2] in ("B-", "I-") and tag[2:] else tag


def begins(tags: Sequence[str], place: int) -> bool:
    """Whether a chunk begins at this word."""
    tag = tags[place]
    if not kind(tag):
        return False
    if tag.startswith("B-") and tag[2:]:
        return True
    return place == 0 or kind(tags[place - 1]) != kind(tag)


def ends(tags: Sequence[str], place: int) -> bool:
    """Whether a chunk ends with this word."""
    if not kind(tags[place]):
        return False
    return place + 1 == len(tags) or begins(tags, place + 1) or kind(tags[place + 1]) != kind(tags[place])


def spans(tags: Sequence[str]) -> Found:
    """All chunks, as label, first word and the word behind the last."""
    found = set()
    for first in range(len(tags)):
        for last in range(first, len(tags)):
            inner = range(first + 1, last + 1)
            alone = begins(tags, first) and ends(tags, last)
            if alone and not any(begins(tags, k) for k in inner) and not any(ends(tags, k) for k in range(first, last)):
                found.add((kind(tags[first]), first, last + 1))
    return found


def scores(truth: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> tuple[float, float, float, float]:
    """Word accuracy, and precision, recall and F1 of spans over all texts."""
    words = right = there = told = both = 0
    for own, answer in zip(truth, given, strict=True):
        for a, b in zip(own, answer, strict=True):
            words += 1
            right += a == b
        true, said = spans(own), spans(answer)
        there, told, both = there + len(true), told + len(said), both + len(true & said)
    precision, recall = both / told if told else 0.0, both / there if there else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return right / words, precision, recall, f1
