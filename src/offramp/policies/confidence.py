"""LOGITS SO FAR -> LEAVE OR STAY: leave when the top probability reaches a threshold."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.reading import questions
from offramp.types import ExitOutput


def confidence(logits: Tensor, sets: bool = False) -> Tensor:
    """The top probability, of sets that of the label that is told least surely: (B, C) to (B,)."""
    return torch.softmax(questions(logits.float(), sets), dim=2).amax(dim=2).amin(dim=1)


class Confidence(Scored):
    """The top probability.

        score = max_k softmax(logits)[k]

    and of a set of labels, each of which is given or not, that of the least sure of them:

        score = min_k max(p_k, 1 - p_k),   p = sigmoid(logits)

    Inputs: `output.logits` (B, C). Related: `margin` and `entropy` look at the other probabilities too;
    `patient-confidence` wants several exits in a row to be sure.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.zeros(2, 1), torch.tensor([[0.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 1))
    >>> Confidence(0.9).leave(1, output, torch.empty(2, 0))[0].tolist()
    [False, True]
    """

    takes_sets: ClassVar[bool] = True

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """The top probability of each text."""
        return confidence(output.logits, self.sets), state
