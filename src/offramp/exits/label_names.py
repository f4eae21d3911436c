"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: label embeddings that begin from the text of the labels' names.

    v_c = what the exit sees in the name of label c,   u_c = v_c - mean_k v_k,   l_c = u_c / |u_c| * mean_k |random l_k|

The mean is taken away because names without a sentence around them look much alike to a backbone. The length is that
of the random rows that are replaced, so that logits begin at their usual size. A name that nothing tells from the mean
of all keeps its random row.

An exit sees a name as it sees a text, by its representation; where the label embeddings attend to tokens (`fusion`,
`leam`, `lsan`), by the mean of the name's states.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import torch
from torch import Tensor
from torch.linalg import vector_norm

from offramp.errors import DataError
from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.types import Batch

NOTHING = 1e-4
"""A name that differs from the mean by less than this share of its length differs by rounding."""


@torch.no_grad()
def begin_from_names(model: MultiExitModel, batch: Batch, but: Collection[int] = ()) -> None:
    """Overwrite the label embeddings at every depth `but` some; `batch` holds the names in the order of the labels."""
    classes = len(model.config.labels)
    if len(batch) != classes:
        raise DataError(f"There should be one name for each of the {classes} labels. Found {len(batch)}.")
    modes = [(module, module.training) for module in model.modules()]
    model.train(False)
    try:
        for depth, states in model.walk(batch):
            if depth in but:
                continue
            exit = cast(Exit, model.exits[depth - 1])
            seen = exit.see_names(states.output, states.mask)  # (C, D)
            exit.label_parameter.copy_(rows_from(seen, exit.label_parameter))
    finally:
        for module, mode in modes:
            module.training = mode


def rows_from(vectors: Tensor, random: Tensor) -> Tensor:
    """Vectors of names (C, D) as label embeddings in place of the random ones (C, D).

    >>> rows_from(torch.tensor([[5.0, 1.0], [5.0, 3.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])).tolist()
    [[0.0, -2.0], [0.0, 2.0]]
    """
    centred = vectors - vectors.mean(dim=0)  # (C, D)
    length = vector_norm(centred, dim=1, keepdim=True)  # (C, 1)
    told = length > NOTHING * vector_norm(vectors, dim=1, keepdim=True)  # (C, 1)
    rescaled = centred / torch.where(told, length, 1.0) * vector_norm(random, dim=1).mean()  # (C, D)
    return torch.where(told, rescaled.to(random.dtype), random)
