"""TEXT -> TOKENS, labels: the classes of a data set and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from offramp.errors import DataError
from offramp.types import Label


@dataclass(frozen=True)
class Labels:
    """The labels of a data set in the order of their class numbers.

    >>> labels = Labels.of(["pos", "neg", "pos"])
    >>> labels.names, labels.encode(["pos", "neg"])
    (('neg', 'pos'), [1, 0])
    """

    names: tuple[Label, ...]

    @classmethod
    def of(cls, labels: Iterable[Label], source: str = "", order: Sequence[Label] = ()) -> Labels:
        """The different labels, sorted: ints as numbers, strings as words, a mixture as words; or by their `order`.

        `source` lets an error name where they come from.
        """
        # Ints come last, so that of `3` and "3", which are one label, the number stays.
        spelled = {str(label): label for label in sorted(_clean(labels), key=lambda label: isinstance(label, int))}
        names = list(spelled.values())
        if len(names) < 2:
            found = f"only `{names[0]}`" if names else "none"
            place = f" in {source}" if source else ""
            raise DataError(
                f"There should be at least two different labels to choose between. Found {found}{place}. "
                "Check that the label column is the right one and that the file was not cut or sorted by label."
            )
        if order and spelled.keys() <= {str(name) for name in order}:
            return cls(tuple(spelled[str(name)] for name in order if str(name) in spelled))
        if all(isinstance(name, int) for name in names):
            return cls(tuple(sorted(names, key=int)))
        return cls(tuple(sorted(names, key=str)))

    def index(self, label: Label) -> int:
        """The class number of a label; "3" from a CSV file finds 3 from a Parquet file."""
        return self._number(label)

    def encode(self, labels: Iterable[Label], where: Callable[[int], str] | None = None) -> list[int]:
        """The class numbers of labels; `where` (such as `Table.where`) lets an error name file and line."""
        return [self._number(label, row, where) for row, label in enumerate(labels)]

    def encode_sets(
        self, sets: Iterable[Iterable[Label]], where: Callable[[int], str] | None = None
    ) -> list[list[int]]:
        """Sets of labels as rows of 0 and 1, (N, C); `where` as in `encode`.

        >>> Labels(("app", "bill", "ship")).encode_sets([["ship", "app"], []])
        [[1, 0, 1], [0, 0, 0]]
        """
        rows = []
        for row, own in enumerate(sets):
            numbers = {self._number(label, row, where) for label in own}
            rows.append([int(number in numbers) for number in range(len(self))])
        return rows

    def encode_lists(
        self, lists: Iterable[Iterable[Label]], where: Callable[[int], str] | None = None
    ) -> list[list[int]]:
        """Lists of labels as lists of class numbers, such as the tags of a text's words; `where` as in `encode`."""
        return [[self._number(label, row, where) for label in own] for row, own in enumerate(lists)]

    def __len__(self) -> int:
        """Number of classes."""
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {str(name): number for number, name in enumerate(self.names)}

    def _number(self, label: Label, row: int = 0, where: Callable[[int], str] | None = None) -> int:
        number = self._numbers.get(str(label))
        if number is None:
            raise DataError(self._unseen(label, f" in {where(row)}" if where else ""))
        return number

    def _unseen(self, label: object, place: str) -> str:
        near = get_close_matches(str(label), self._numbers, n=3, cutoff=0.5)
        shown = ", ".join(f"`{name}`" for name in self.names[:10]) + (", ..." if len(self) > 10 else "")
        hint = f"Did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else f"Known: {shown}."
        return (
            f"A label should be one of the {len(self)} seen in training. Found `{label}`{place}. {hint} "
            "Mend the label, or train with texts that have it."
        )


def as_label(value: object) -> Label | None:
    """The label a cell holds: str and int as they are, bool as a word, a whole float as int; None for the rest.

    A blank string is no label.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip():
        return str(value)
    return None


def _clean(labels: Iterable[Label]) -> set[Label]:
    found: set[Label] = set()
    for value in labels:
        label = as_label(value)
        if label is None:
            raise DataError(f"A label should be a word or a whole number. Found {value!r} ({type(value).__name__}).")
        found.add(label)
    return found
