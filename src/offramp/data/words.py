"""TEXT -> TOKENS, words: the words of a text, which of its tokens begin one, and the spans that their tags tell.

A text that comes as a list of words keeps them. Any other is divided by one rule: a run of letters, digits and
underscores is a word, and so is every other character that is not blank.

Tags are B-I-O, as CoNLL's: `B-x` begins a span of the label x, `I-x` goes on with it, `O` is outside of all. A span
ends before a word of another label, before a `B-` and before an `O`; an `I-x` with no span of x before it begins one,
as CoNLL's own script has it. Any other tag is a label without a prefix: neighbours that have the same one are one span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offramp.types import Example, Label

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

OUTSIDE = "O"
"""The tag of a word that is in no span."""

_WORD = re.compile(r"\w+|[^\w\s]")


def split(text: str) -> tuple[str, ...]:
    """The words of a plain text.

    >>> split("It's order LK-204, isn't it?")
    ('It', "'", 's', 'order', 'LK', '-', '204', ',', 'isn', "'", 't', 'it', '?')
    """
    return tuple(_WORD.findall(text))


def words_of(example: Example) -> tuple[str, ...]:
    """The words of a text, given or found."""
    return split(example.text) if example.words is None else example.words


def offsets(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where each word begins and ends in its text, in characters.

    >>> offsets("LK-204 is late", ("LK", "-", "204", "is", "late"))
    [(0, 2), (2, 3), (3, 6), (7, 9), (10, 14)]
    """
    found, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def in_order(text: str, words: Sequence[str]) -> bool:
    """Whether the words stand in the text in this order, so that `offsets` finds them."""
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return False
        end = start + len(word)
    return True


@dataclass(frozen=True, slots=True)
class Span:
    """Words that together have a label: the words from `first` to before `stop`, counted from 0."""

    label: str
    first: int
    stop: int


def spans(tags: Sequence[Label | None]) -> Iterator[Span]:
    """The spans that tags tell; None, for a word that was not read, is outside of all.

    >>> [(s.label, s.first, s.stop) for s in spans(["B-x", "I-x", "O", "I-y", "B-y", "I-x", "z", "z"])]
    [('x', 0, 2), ('y', 3, 4), ('y', 4, 5), ('x', 5, 6), ('z', 6, 8)]
    """
    label, first = "", 0
    for place, tag in enumerate([*tags, None]):
        begins, own = parts(tag)
        if label and (begins or own != label):
            yield Span(label, first, place)
            label = ""
        if own and not label:
            label, first = own, place


def parts(tag: Label | None) -> tuple[bool, str]:
    """Whether a tag begins a span whatever stands before it, and the label, which is empty outside of spans."""
    name = OUTSIDE if tag is None else str(tag)
    if name == OUTSIDE:
        return False, ""
    prefix, dash, label = name.partition("-")
    if dash and label and prefix in ("B", "I"):
        return prefix == "B", label
    return False, name


def begun(words: Sequence[str], ends: Sequence[int], special: Sequence[int]) -> Integers:
    """The place of the word that each token begins, (T,); -1 for a token that begins none.

    `ends` are where the tokens end in the words joined by blanks, in characters; a token belongs to the word in which
    its last character stands. A word of which the tokenizer leaves nothing has no token.

    >>> begun(["LK", "late"], ends=[0, 1, 2, 7, 0], special=[1, 0, 0, 0, 1]).tolist()
    [-1, 0, -1, 1, -1]
    """
    sizes = np.fromiter(map(len, words), np.int64, len(words))  # (V,)
    stops = np.cumsum(sizes + 1) - 1  # (V,), behind each word
    last = np.asarray(ends, np.int64) - 1  # (T,)
    owner = np.minimum(np.searchsorted(stops, last, side="right"), len(words) - 1)  # (T,)
    # The character may also be the blank before the word.
    inside = (np.asarray(special) == 0) & ((stops - sizes)[owner] <= last) & (last < stops[owner])
    places, first = np.unique(owner[inside], return_index=True)
    found = np.full(len(last), -1, np.int64)
    found[np.flatnonzero(inside)[first]] = places
    return found


@dataclass(frozen=True, eq=False)
class Words:
    """Where the words of N texts begin among their tokens. A word that was cut off, or has no token, is not read."""

    marks: Flags  # (all tokens,), at the first token of each word that is read
    offsets: Integers  # (N + 1,), text i has the read words offsets[i] to offsets[i + 1], in reading order
    places: Integers  # (all read words,), the place of each among the words of its text
    counts: Integers  # (N,), words of each text, read or not

    @classmethod
    def of(cls, begun: Sequence[Integers], counts: Sequence[int]) -> Words:
        """From the places of the words that the tokens of each text begin, (T,), -1 for those that begin none."""
        every = np.concatenate([np.empty(0, np.int64), *begun])  # (all tokens,)
        read = np.fromiter(((each >= 0).sum() for each in begun), np.int64, len(begun))
        marks = every >= 0
        return cls(
            marks, np.concatenate([np.zeros(1, np.int64), np.cumsum(read)]), every[marks], np.asarray(counts, np.int64)
        )

    @property
    def unread(self) -> int:
        """How many words are not read."""
        return int(self.counts.sum()) - len(self.places)

    @property
    def owners(self) -> Integers:
        """The text of each read word, (all read words,)."""
        return np.repeat(np.arange(len(self.counts)), np.diff(self.offsets))

    def of_texts(self, rows: Integers) -> Integers:
        """The read words of these texts, text after text, as places among all read words."""
        starts, sizes = self.offsets[rows], np.diff(self.offsets)[rows]  # (B,)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])  # (B + 1,)
        return np.repeat(starts - before[:-1], sizes) + np.arange(before[-1])

    def deepest(self, depths: Integers) -> Integers:
        """The largest depth of each text's words, (N,), from one for each word that is read; 1 for a text without."""
        found = np.ones(len(self.counts), np.int64)
        np.maximum.at(found, self.owners, depths)
        return found

    def read(self, values: Sequence[Sequence[int]]) -> list[int]:
        """Of a value for each word of each text, those of the words that are read, in reading order."""
        return [values[text][place] for text, place in zip(self.owners.tolist(), self.places.tolist(), strict=True)]

    def whole(self, values: Sequence[int], absent: int) -> list[list[int]]:
        """A value for each word of each text, from one for each word that is read; `absent` for any other."""
        found = [[absent] * count for count in self.counts.tolist()]
        for text, place, value in zip(self.owners.tolist(), self.places.tolist(), values, strict=True):
            found[text][place] = value
        return found
