"""LOGITS SO FAR -> LEAVE OR STAY: what all policies share that give a text a score at each exit.

    leave at depth d  <=>  score_d >= threshold_d

A score is higher the surer the exit is. It does not depend on the thresholds, so that raising one never lowers a
depth, and that thresholds can be chosen from scores that were computed once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.never import Never
from offramp.types import ExitOutput


class Scored(Never):
    """The first exit whose score reaches its threshold.

    One threshold for all exits, or one per depth. A depth without one is not read; one with an infinite threshold is
    read for what the policy remembers of a text, and nobody leaves there. `sets` says that the logits are those of
    label sets (`offramp.reading`).
    """

    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Smallest and largest threshold, both allowed."""
    takes_sets: ClassVar[bool] = False

    def __init__(self, thresholds: float | Mapping[int, float], sets: bool = False) -> None:
        self.sets = sets
        if isinstance(thresholds, Mapping):
            for depth, threshold in thresholds.items():
                if threshold != math.inf:
                    self._check(threshold, f"`threshold` of depth {depth}")
        else:
            self._check(thresholds, "`threshold`")
        self.thresholds = dict(thresholds) if isinstance(thresholds, Mapping) else thresholds

    def _check(self, threshold: float, what: str) -> None:
        low, high = self.range
        if low <= threshold <= high:
            return
        wanted = f"between {low:g} and {high:g}" if math.isfinite(high) else f"{low:g} or more"
        raise ConfigError(f"{what} should be {wanted if math.isfinite(low) else 'a number'}. Found {threshold:g}.")

    def threshold(self, depth: int) -> float:
        """The score from which a text leaves at this depth; infinite where nobody does."""
        return self.thresholds.get(depth, math.inf) if isinstance(self.thresholds, dict) else self.thresholds

    def reads(self, depth: int) -> bool:
        """Every exit with a threshold."""
        return depth in self.thresholds if isinstance(self.thresholds, dict) else True

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How sure this exit is of each text, (B,) float32, and everybody's new state, (B, S)."""
        raise NotImplementedError

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Whose score is high enough; at an exit that is not read, nobody's."""
        if not self.reads(depth):
            return super().leave(depth, output, state)
        score, state = self.score(depth, output, state)
        if self.threshold(depth) == math.inf:
            return torch.zeros_like(score, dtype=torch.bool), state
        return score >= torch.tensor(self.threshold(depth), dtype=score.dtype, device=score.device), state
