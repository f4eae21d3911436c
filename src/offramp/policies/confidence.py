"""LOGITS SO FAR -> LEAVE OR STAY: leave when the top probability reaches a threshold.

    leave at depth d  <=>  max_k softmax(logits_d)[k] >= threshold

Raising the threshold never lowers a depth.
"""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.never import Never
from offramp.types import ExitOutput


class Confidence(Never):
    """The first exit whose top probability is at least `threshold`."""

    def __init__(self, threshold: float) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise ConfigError(f"`threshold` should be between 0 and 1. Found {threshold:g}.")
        self.threshold = threshold

    def reads(self, depth: int) -> bool:
        """Every exit."""
        return True

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Who is sure enough."""
        top = torch.softmax(output.logits.float(), dim=1).amax(dim=1)  # (B,)
        return top >= self.threshold, state
