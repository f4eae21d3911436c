"""LOSS -> PARAMETERS: the angles between the gradients of an objective's two terms, over many batches.

ACL figure 2 asks them of a model that is trained: each batch of texts gives the gradients of the cross entropy and of
the contrast over all trainable parameters, dropout on as in training, and no step is taken. A run that aligns writes
down the same angle at every update; `Angles` counts both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

import torch

from offramp.data.sampling import length_buckets
from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.exits.model import MultiExitModel
from offramp.optimise.gradients import Scene, exact
from offramp.optimise.strategies import plan
from offramp.types import Objective

CONFLICT = 90.0  # degrees


@dataclass(frozen=True, slots=True)
class Angles:
    """How many batches had an angle of 0 to 1 degrees, of 1 to 2, and so on."""

    counts: tuple[int, ...]  # (180,)
    mean: float | None  # None where no batch had an angle
    above: float | None  # share of the batches with more than 90 degrees
    batches: int  # those that had an angle: a zero gradient has none
    kept: float | None = None  # share whose auxiliary term took part in the step, where one was taken

    @classmethod
    def of(cls, degrees: Iterable[float], kept: float | None = None) -> Angles:
        """The counts of angles; NaN is none.

        >>> found = Angles.of([10.2, 10.9, 135.0, 180.0])
        >>> found.counts[10], found.counts[135], found.counts[179], found.above
        (2, 1, 1, 0.5)
        """
        values = [value for value in degrees if math.isfinite(value)]
        counts = [0] * 180
        for value in values:
            counts[min(179, int(value))] += 1
        share = sum(value > CONFLICT for value in values) / len(values) if values else None
        return cls(tuple(counts), sum(values) / len(values) if values else None, share, len(values), kept)

    def to_json(self) -> dict[str, Any]:
        """The counts as plain JSON values."""
        return {**asdict(self), "counts": list(self.counts)}


def measure(
    model: MultiExitModel,
    objective: Objective,
    tokens: Tokens,
    batch_size: int,
    most: int = 400,
    seed: int = 0,
    views: Views | None = None,
) -> list[float]:
    """The angle in degrees on each of `most` batches, of as many epochs as that takes; NaN where a gradient is zero.

    `objective` has a main and an auxiliary term; `views` is for one that contrasts views. The model is left as it was
    found, without gradients and ready to answer.
    """
    draw = torch.Generator().manual_seed(seed)
    scene = Scene(model, objective, plan("single", model)[0], views=views)
    device = next(model.parameters()).device
    found: list[float] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        try:
            epochs = iter(lambda: length_buckets(tokens.lengths, batch_size, draw), [])
            for rows in islice(chain.from_iterable(epochs), most):
                angle = exact(scene, tokens.batch(rows).to(device)).angle
                found.append(math.nan if angle is None else angle.degrees)
                model.zero_grad(set_to_none=True)
        finally:
            model.zero_grad(set_to_none=True)
            model.train(False)
    return found
