"""LOSS -> PARAMETERS: other ways to make one step of two gradients, from torchjd, to compare ACL-Grad with.

    projection   PCGrad: each gradient loses its part against the other (Yu et al. 2020)
    mgda         the shortest vector between the two (Desideri 2012)
    upgrad       each gradient projected onto what harms neither, averaged (Quinton and Rey 2024)

All three weigh the two gradients by their dot products alone, so no gradient is copied: torchjd gets a 2 by 2 matrix.
They are given the gradients with the terms' weights on them, and take the place of ACL-Grad's threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from offramp.errors import MissingExtra, unknown_name
from offramp.optimise.alignment import Aggregator

AGGREGATORS: dict[str, str] = {"projection": "PCGradWeighting", "mgda": "MGDAWeighting", "upgrad": "UPGradWeighting"}
"""Names to torchjd's."""


def aggregator(name: str) -> Aggregator | None:
    """The aggregator of this name; None for `drop`, which is ACL-Grad's own answer."""
    if name == "drop":
        return None
    if name not in AGGREGATORS:
        raise unknown_name("aggregator", name, ["drop", *AGGREGATORS])
    try:
        from torchjd import aggregation

        weighting: Callable[[Any], Tensor] = getattr(aggregation, AGGREGATORS[name])()
    except ImportError as error:  # torchjd itself, or the solver of `upgrad`
        raise MissingExtra("torchjd", "torchjd") from error

    def weigh(gramian: Tensor) -> tuple[float, float]:
        # `projection` draws an order of the gradients, which for two has no effect: dropout goes on as without it.
        with torch.random.fork_rng(devices=[]):
            # Only the proportions matter, but torchjd's `upgrad` takes gradients shorter than 0.01 for nothing.
            main, auxiliary = weighting(gramian / gramian.trace()).tolist()
        return main, auxiliary

    return weigh
