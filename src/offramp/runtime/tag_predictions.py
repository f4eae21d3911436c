"""MODEL -> FAST MODEL: what a decision says of words: a tag for each, and the spans that the tags tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.data.tokens import Tokens
from offramp.data.words import offsets, spans, words_of
from offramp.reading import probabilities
from offramp.types import Decision, Example, Label


@dataclass(frozen=True, slots=True)
class SpanPrediction:
    """Words that together were given a label."""

    label: str
    start: int  # characters of the text
    end: int
    text: str
    words: tuple[int, int]  # the first of them, and the one behind the last, counted from 0
    probability: float  # of the tag of its least sure word
    depth: int  # where its last word left


@dataclass(frozen=True, slots=True)
class TagPrediction:
    """Which tag each word of a text was given, how surely, and where it left; None for a word that was not read."""

    text: str
    words: tuple[str, ...]
    tags: tuple[Label | None, ...]
    probabilities: tuple[float | None, ...]
    depths: tuple[int | None, ...]
    spans: tuple[SpanPrediction, ...]
    probability: float  # of the least sure word
    depth: int  # where the last word left
    certified: bool = False  # by a policy whose risk is kept by a certificate


def tag_predictions(
    decision: Decision,
    tokens: Tokens,
    rows: Sequence[int],
    examples: Sequence[Example],
    names: Sequence[Label],
    certified: bool,
) -> list[TagPrediction]:
    """What the words of these texts were answered, of a decision on all words of these rows, in their order."""
    assert tokens.words is not None
    top, index = probabilities(decision.logits, sets=False).max(dim=1)
    told = list(zip(index.tolist(), top.tolist(), decision.depth.tolist(), strict=True))
    found, begin = [], 0
    for row in rows:
        first, stop = tokens.words.offsets[row : row + 2].tolist()
        own = dict(zip(tokens.words.places[first:stop].tolist(), told[begin : begin + stop - first], strict=True))
        begin += stop - first
        found.append(_prediction(examples[row], own, names, certified))
    return found


def _prediction(
    example: Example, own: dict[int, tuple[int, float, int]], names: Sequence[Label], certified: bool
) -> TagPrediction:
    words = words_of(example)
    every = [own.get(place) for place in range(len(words))]
    tags = [None if each is None else names[each[0]] for each in every]
    inside = offsets(example.text, words)
    told = []
    for span in spans(tags):
        read = [own[place] for place in range(span.first, span.stop)]
        start, end = inside[span.first][0], inside[span.stop - 1][1]
        least, deepest = min(sure for _, sure, _ in read), max(depth for _, _, depth in read)
        told.append(
            SpanPrediction(span.label, start, end, example.text[start:end], (span.first, span.stop), least, deepest)
        )
    return TagPrediction(
        text=example.text,
        words=words,
        tags=tuple(tags),
        probabilities=tuple(None if each is None else each[1] for each in every),
        depths=tuple(None if each is None else each[2] for each in every),
        spans=tuple(told),
        probability=min((sure for _, sure, _ in own.values()), default=0.0),
        depth=max((depth for _, _, depth in own.values()), default=1),
        certified=certified,
    )
