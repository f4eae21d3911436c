"""LOGITS SO FAR -> LEAVE OR STAY: every text goes to the last exit."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.types import Batch, ExitOutput


class Never:
    """No text leaves early; the last exit answers all."""

    trained_only = True
    takes_sets: ClassVar[bool] = True
    """Whether it can tell of a set of labels when to leave."""
    takes_words: ClassVar[bool] = True
    """Whether it can tell of each word of a text when to leave."""

    def reads(self, depth: int) -> bool:
        """No exit but the last is looked at."""
        return False

    def start(self, batch: Batch) -> Tensor:
        """No state."""
        return torch.empty(len(batch), 0)  # (B, 0)

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Nobody leaves."""
        return torch.zeros(len(output.logits), dtype=torch.bool, device=output.logits.device), state
