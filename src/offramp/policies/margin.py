"""LOGITS SO FAR -> LEAVE OR STAY: leave when the top probability is far enough above the second."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.reading import questions
from offramp.types import ExitOutput


def margin(logits: Tensor, sets: bool = False) -> Tensor:
    """The top probability less the second, of sets the least over the labels: (B, C) to (B,), 1 for one class."""
    asked = questions(logits.float(), sets)  # (B, Q, K)
    if asked.shape[2] == 1:
        return torch.ones(len(logits), device=logits.device)
    two = torch.softmax(asked, dim=2).topk(2, dim=2).values  # (B, Q, 2)
    return (two[..., 0] - two[..., 1]).amin(dim=1)


class Margin(Scored):
    """The top probability less the second.

        score = p_(1) - p_(2),   p = softmax(logits), sorted

    and of a set of labels, min_k |p_k - (1 - p_k)| with p = sigmoid(logits).

    Inputs: `output.logits` (B, C). Relations: with two classes, and of sets, it is 2 `confidence` - 1. Related:
    `anchor` is a margin of cosines.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.zeros(1, 1), torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.zeros(3, 1))
    >>> round(Margin(0.9).score(1, output, torch.empty(1, 0))[0].item(), 4)
    0.2
    """

    takes_sets: ClassVar[bool] = True

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How far the answer of each text is ahead."""
        return margin(output.logits, self.sets), state
