"""LOGITS SO FAR -> LEAVE OR STAY: every text leaves at one depth."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.policies.never import Never
from offramp.types import ExitOutput


class Fixed(Never):
    """Every text leaves at `depth`; 0 is the last."""

    trained_only = False  # whoever names a depth means it

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def reads(self, depth: int) -> bool:
        """Only the exit at that depth."""
        return depth == self.depth

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Everybody, once the depth is reached."""
        reached = torch.full((len(output.logits),), depth >= self.depth, device=output.logits.device)
        return reached, state
