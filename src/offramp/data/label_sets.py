"""TEXT -> TOKENS, label sets: texts that have several labels, or none."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np

from offramp.data.labels import as_label
from offramp.types import Label

FAIR_SHARE = 0.05
"""The share of texts whose label holds the separator from which labels may be sets that are taken for single ones."""


class LabelSetWarning(UserWarning):
    """Labels look like sets of labels but are taken for single ones."""


def as_label_set(value: object, separator: str) -> tuple[Label, ...] | None:
    """The labels a cell holds, each once: a list of them, one of them, or a string with `separator` between them.

    An empty list or a blank string is the empty set. None for what is no set of labels, such as a missing cell.

    >>> [as_label_set(value, "|") for value in ("delivery | billing", ["a", 2], "", None)]
    [('delivery', 'billing'), ('a', 2), (), None]
    """
    if isinstance(value, str):
        pieces = value.split(separator) if separator else [value]
        found: list[object] = [piece.strip() for piece in pieces] if value.strip() else []
    elif isinstance(value, set | frozenset):
        found = sorted(value, key=str)  # a set has no order that holds from one process to the next
    elif isinstance(value, list | tuple | np.ndarray):
        found = list(value)
    else:
        found = [value]
    labels = [as_label(each) for each in found]
    known = tuple(dict.fromkeys(label for label in labels if label is not None))
    return known if None not in labels else None


def strata(rows: Sequence[Sequence[int]]) -> list[int]:
    """The number of the rarest label of each text, -1 for the empty set: what a sample or a split keeps the shares of.

    Sets as a whole would be too many: most are rare, and each would count as a label of its own.

    >>> strata([[1, 1], [1, 0], [1, 0], [0, 0]])
    [1, 0, 0, -1]
    """
    counts = Counter(number for row in rows for number, has in enumerate(row) if has)
    return [min((number for number, has in enumerate(row) if has), key=counts.__getitem__, default=-1) for row in rows]


def warn_of_sets(labels: Sequence[Label], separator: str) -> None:
    """One warning where single labels look like sets: many hold the separator, and the pieces recur in other labels."""
    joined = [label for label in labels if isinstance(label, str) and separator and separator in label]
    if len(joined) < FAIR_SHARE * len(labels) or not joined:
        return
    pieces = {label: _pieces(label, separator) for label in set(map(str, labels))}
    uses = Counter(piece for own in pieces.values() for piece in own)
    within = {piece for label in joined for piece in pieces[label]}
    if 2 * sum(uses[piece] > 1 for piece in within) < len(within):
        return
    warnings.warn(
        f"{len(joined)} of {len(labels)} labels, such as `{joined[0]}`, look like several with `{separator}` between "
        "them, and are taken for one label each. Where texts have sets of labels, add --set data.labels=set.",
        LabelSetWarning,
        stacklevel=2,
    )


def _pieces(label: str, separator: str) -> set[str]:
    return {piece.strip() for piece in label.split(separator) if piece.strip()}
