"""TEXT -> TOKENS, protocols: training sets that are smaller, more lopsided or worse labelled than the data at hand.

Rows in, rows out; everything random comes from the generator that is passed in. Few-shot sets are
`sampling.stratified_sample` (n in total) and `sampling.class_capped` (k per label).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from offramp.data.sampling import Integers, take_of_each
from offramp.errors import ConfigError, DataError


def imbalanced(labels: Sequence[int], rho: float, minority: int, generator: torch.Generator) -> list[int]:
    """Rows, sorted, of a set whose largest label has `rho` times the texts of its smallest, which has `minority`.

        size of the i-th largest of C labels = minority * rho^((C - 1 - i) / (C - 1)), rounded,  i = 0 .. C - 1

    Reference: LaCon 4.2 (32 texts of the minority label, 32 rho of the majority, two labels); the steps between the
    largest and the smallest of more than two labels are those of Cao et al. (2019), whom it follows.
    Differences: the paper does not tell which label is the minority. Here the labels keep the order of their sizes, and
    of labels of one size the lower class number is the larger: CoLA's minority is `unacceptable`, as in its Table 5.

    >>> rows = imbalanced([0] * 9 + [1] * 9 + [2] * 5, rho=4, minority=2, generator=torch.Generator())
    >>> [sum(first <= row < last for row in rows) for first, last in ((0, 9), (9, 18), (18, 23))]
    [8, 4, 2]
    """
    if rho < 1:
        raise ConfigError(f"`protocol.imbalance` should be 1 or more, or 0 for the data as they are. Found {rho:g}.")
    classes, counts = np.unique(np.asarray(labels, dtype=np.int64), return_counts=True)  # (C,)
    ranks = np.empty(len(classes), dtype=np.int64)  # (C,), 0 for the largest label
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(classes))
    steps = (len(classes) - 1 - ranks) / max(len(classes) - 1, 1)
    sizes: Integers = np.rint(minority * rho**steps).astype(np.int64)  # (C,)
    short = np.flatnonzero(counts < sizes)
    if len(short):
        first = short[0]
        raise DataError(
            f"Label number {classes[first]} should have {sizes[first]} training texts for an imbalance of {rho:g} and "
            f"a minority of {minority}. Found {counts[first]}. Lower `protocol.imbalance` or `protocol.minority`."
        )
    return take_of_each(labels, sizes, generator)


def mislabelled(labels: Sequence[int], share: float, classes: int, generator: torch.Generator) -> list[int]:
    """The labels, (N,), of which `share` were replaced by another of the `classes`, each other label alike likely.

    Exactly round(share * N) are wrong afterwards, drawn without regard to their label (symmetric noise).
    """
    changed = torch.tensor(list(labels), dtype=torch.int64)  # (N,)
    if classes < 2:
        raise ConfigError("`protocol.label_noise` should be 0 where there is one label only.")
    wrong = torch.randperm(len(changed), generator=generator)[: round(share * len(changed))]  # (W,)
    shifts = torch.randint(1, classes, (len(wrong),), generator=generator)  # (W,), never 0
    changed[wrong] = (changed[wrong] + shifts) % classes
    return changed.tolist()
