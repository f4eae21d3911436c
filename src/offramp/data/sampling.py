"""TEXT -> TOKENS, sampling: who shares a batch, and who is held out.

Everything random comes from the generator that is passed in: the same generator state gives the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from offramp.errors import ConfigError, DataError
from offramp.types import Label

Integers = npt.NDArray[np.int64]

POOL = 50
"""Batches whose texts are sorted by length together, at most."""

POOLS = 4
"""Pools that an epoch has at least, where it has as many batches: in one pool the same texts would meet every epoch."""


def length_buckets(
    lengths: Sequence[int] | Integers, batch_size: int, generator: torch.Generator, pool: int = POOL
) -> list[list[int]]:
    """An epoch of batches whose texts have like lengths, every text once, the smaller last batch kept.

    The shuffled texts are cut into pools of at most `pool * batch_size`; each pool is sorted by length and cut into
    batches; the batches are shuffled. A smaller pool is more random, a larger one pads less; of few texts it is small.
    """
    _check_size(batch_size)
    sizes = np.asarray(lengths, dtype=np.int64)
    pool = max(1, min(pool, -(-len(sizes) // batch_size) // POOLS))
    order = _shuffled(np.arange(len(sizes)), generator)
    batches: list[list[int]] = []
    for start in range(0, len(order), pool * batch_size):
        rows = order[start : start + pool * batch_size]
        batches += _cut(rows[np.argsort(-sizes[rows], kind="stable")], batch_size)
    return [batches[place] for place in _shuffled(np.arange(len(batches)), generator)]


def sorted_batches(lengths: Sequence[int] | Integers, batch_size: int) -> list[list[int]]:
    """Batches for prediction, longest texts first, so that memory runs out at once or not at all."""
    _check_size(batch_size)
    return _cut(np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable"), batch_size)


def class_balanced(
    labels: Sequence[Label] | Integers, per_class: int, batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """An epoch of batches with `per_class` texts of each of as many classes as fit into `batch_size`.

    Classes come in shuffled rounds, so that at any moment no two differ by more than one appearance; texts of a class
    come in shuffled rounds too, so that a small class starts again while a large one goes on. A text stands twice
    in a batch only when its class has fewer than `per_class` texts. An epoch deals as many texts as there are; with few
    classes a batch holds fewer than `batch_size` texts, and an epoch has more batches.
    """
    check_balanced(per_class, batch_size)
    groups = [_Deck(rows.tolist(), generator) for rows in _rows_by_class(labels)]
    classes = _Deck(range(len(groups)), generator)
    dealt = balanced_size(labels, per_class, batch_size)
    return [
        [row for group in classes.take(dealt // per_class) for row in groups[group].take(per_class)]
        for _ in range(-(-len(labels) // dealt))
    ]


def balanced_size(labels: Sequence[Label] | Integers, per_class: int, batch_size: int) -> int:
    """How many texts a class-balanced batch holds."""
    return per_class * min(len(set(labels)), batch_size // per_class)


def check_balanced(per_class: int, batch_size: int, field: str = "batch_size") -> None:
    """Refuse sizes with which a class-balanced batch would hold one label only; `field` names the size."""
    if per_class < 1 or batch_size < 2 * per_class:
        raise ConfigError(
            f"`{field}` should be at least twice `per_class`, so that a batch holds two labels. "
            f"Found `{field}` {batch_size} and `per_class` {per_class}. Raise the one or lower the other."
        )


def stratified_sample(labels: Sequence[Label] | Integers, n: int, generator: torch.Generator) -> list[int]:
    """Exactly `n` rows, sorted, with the labels' shares kept and at least one row of each label when `n` allows it."""
    groups = _rows_by_class(labels)
    counts = np.array([len(rows) for rows in groups], dtype=np.int64)  # (C,)
    if not 0 <= n <= len(labels):
        raise DataError(f"A sample should have between 0 and {len(labels)} texts, as many as there are. Found {n}.")
    return _draw(groups, _shares(counts, n, most=counts), generator)


def class_capped(
    labels: Sequence[Label] | Integers, most: int, generator: torch.Generator, half: bool = False
) -> list[int]:
    """Rows, sorted, with at most `most` of each label; with `half`, and at most half of them, but one at least."""
    groups = _rows_by_class(labels)
    sizes = [min(most, (len(rows) + 1) // 2 if half else len(rows)) for rows in groups]
    return _draw(groups, np.array(sizes, dtype=np.int64), generator)


def take_of_each(labels: Sequence[Label] | Integers, sizes: Integers, generator: torch.Generator) -> list[int]:
    """Rows, sorted, with `sizes` texts of the labels that occur, in the labels' order; (C,)."""
    return _draw(_rows_by_class(labels), sizes, generator)


def stratified_split(
    labels: Sequence[Label] | Integers, fraction: float, generator: torch.Generator
) -> tuple[list[int], list[int]]:
    """Rows to train on and rows held out, both sorted, with the labels' shares kept.

    Every label keeps at least one text to train on; a label with one text is not held out.
    """
    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"The share held out should lie between 0 and 1. Found {fraction}.")
    groups = _rows_by_class(labels)
    counts = np.array([len(rows) for rows in groups], dtype=np.int64)  # (C,)
    spare = int((counts - 1).sum())
    if not spare:
        raise DataError(
            f"Some label should have two texts or more, so that one can be held out for validation. "
            f"Found {len(labels)} texts, each with a label of its own. Give a validation file."
        )
    n = min(max(round(fraction * len(labels)), 1), spare)
    held = _draw(groups, _shares(counts, n, most=counts - 1), generator)
    train = np.setdiff1d(np.arange(len(labels)), held, assume_unique=True)
    return train.tolist(), held


class _Deck:
    """Cards dealt in endless fresh shuffles; a hand holds a card twice only when it is larger than the deck."""

    def __init__(self, cards: Sequence[int], generator: torch.Generator) -> None:
        self.cards = np.asarray(cards, dtype=np.int64)
        self.generator = generator
        self.rest: deque[int] = deque()

    def take(self, n: int) -> list[int]:
        hand: list[int] = []
        while len(hand) < n:
            held = set(hand[len(hand) // len(self.cards) * len(self.cards) :])
            place = next((place for place, card in enumerate(self.rest) if card not in held), None)
            if place is None:
                self.rest.extend(_shuffled(self.cards, self.generator).tolist())
                continue
            hand.append(self.rest[place])
            del self.rest[place]
        return hand


def _shares(counts: Integers, n: int, most: Integers) -> Integers:
    """How many of `n` each class gets: in proportion to `counts`, at most `most`, at least 1 if `n` is enough; (C,)."""
    exact = n * counts / max(int(counts.sum()), 1)
    least = np.minimum(most, 1) if n >= len(counts) else np.zeros_like(counts)
    given = np.clip(np.floor(exact).astype(np.int64), least, most)
    while (missing := n - int(given.sum())) != 0:
        # The class furthest from its exact share gives or gets one.
        if missing > 0:
            given[np.argmax(np.where(given < most, exact - given, -np.inf))] += 1
        else:
            given[np.argmax(np.where(given > least, given - exact, -np.inf))] -= 1
    return given


def _draw(groups: list[Integers], shares: Integers, generator: torch.Generator) -> list[int]:
    drawn = [_shuffled(rows, generator)[:share] for rows, share in zip(groups, shares, strict=True)]
    rows: list[int] = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *drawn])).tolist()
    return rows


def _rows_by_class(labels: Sequence[Label] | Integers) -> list[Integers]:
    _, classes = np.unique(np.asarray(labels), return_inverse=True)
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(classes))[:-1]) if len(order) else []


def _shuffled(values: Integers, generator: torch.Generator) -> Integers:
    order: Integers = torch.randperm(len(values), generator=generator).numpy()
    return values[order]


def _cut(rows: Integers, size: int) -> list[list[int]]:
    return [rows[start : start + size].tolist() for start in range(0, len(rows), size)]


def _check_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ConfigError(f"`batch_size` should be 1 or more. Found {batch_size}.")
