"""LOGITS SO FAR -> LEAVE OR STAY: leave when one label embedding is nearer than all others."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.types import ExitOutput, directions


class Anchor(Scored):
    """How much nearer the nearest label embedding is than the second.

        score = cos_(1) - cos_(2),   cos_k = cos(h, l_k), sorted

    It reads the geometry that the contrastive objectives train, ACL's and LaCon's, and no probability.

    Differences: this policy is not from a paper. The nearest label embedding need not be the exit's answer, but where
    the exit answers by cosine (`match`, `fusion`) it is.

    Inputs: `output.representation` (B, D), `output.label_embeddings` (C, D). One class gives 2, the most there is; a
    representation of zeros gives 0. Related: `margin` is the same of probabilities.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.tensor([[3.0, 0.0]]), torch.zeros(1, 2), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> Anchor(0.5).score(1, output, torch.empty(1, 0))[0].tolist()
    [1.0]
    """

    range: ClassVar[tuple[float, float]] = (0.0, 2.0)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How far the nearest label of each text is ahead."""
        if len(output.label_embeddings) == 1:
            return torch.full((len(output.logits),), self.range[1], device=output.logits.device), state
        with torch.autocast(device_type=output.representation.device.type, enabled=False):
            texts, labels = directions(output.representation.float()), directions(output.label_embeddings.float())
            two = (texts @ labels.T).topk(2, dim=1).values  # (B, 2)
        return two[:, 0] - two[:, 1], state
