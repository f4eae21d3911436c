"""TEXT -> TOKENS, splits: who validates and who is scored, as the papers divide their data.

Reference: SCL 4.1: half of GLUE's validation set is the test set, about 500 of it are the validation set, both with its
shares of the labels. LaCon 3.1, footnote 1: 5 % of the training texts are held out for early stopping. LaCon 4.1: a
few-shot set has as many validation texts as training texts.
Differences: SCL does not tell whether its two samples overlap; here the 500 come from the other half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from offramp.data.sampling import stratified_sample, take_of_each
from offramp.errors import DataError

LACON_SHARE = 0.05
SCL_MOST = 500
SCL_SEED = 0
"""The two halves are a property of the data set: runs with different seeds are scored on the same texts."""


def scl_split(labels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Rows of a validation set to validate on, at most 500, and rows to be scored on, half of them; both sorted."""
    generator = torch.Generator().manual_seed(SCL_SEED)
    if len(labels) < 2:
        raise DataError(f"SCL's split should have at least two validation texts to divide. Found {len(labels)}.")
    test = stratified_sample(labels, len(labels) // 2, generator)
    rest = np.setdiff1d(np.arange(len(labels)), test, assume_unique=True)
    chosen = stratified_sample([labels[row] for row in rest], min(SCL_MOST, len(rest)), generator)
    return rest[chosen].tolist(), test


def as_many_again(labels: Sequence[int], taken: Sequence[int], generator: torch.Generator) -> list[int]:
    """Rows, sorted, that are not `taken`: of each label as many as are, or all there are."""
    rest = np.setdiff1d(np.arange(len(labels)), np.asarray(taken, dtype=np.int64))
    if not len(rest):
        raise DataError(
            f"There should be texts left to validate on. Found that all {len(labels)} are learnt from. "
            "Lower `data.class_cap` or `data.cap`, or give a validation file."
        )
    mine = np.asarray(labels, dtype=np.int64)
    left = mine[rest]
    wanted = [min(int((mine[list(taken)] == one).sum()), int((left == one).sum())) for one in np.unique(left)]
    again: list[int] = rest[take_of_each(left.tolist(), np.array(wanted, dtype=np.int64), generator)].tolist()
    return again
