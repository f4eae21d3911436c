"""LOGITS SO FAR -> LEAVE OR STAY: leave when several exits in a row gave the same answer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.types import Batch, ExitOutput


class Patience(Scored):
    """How many exits in a row, this one included, gave this answer.

        score_d = score_c + 1   where exit d answers as c did, the exit read before it;   else 1

    Reference: Zhou et al., BERT Loses Patience: Fast and Robust Inference with Early Exit (PABEE).

    Differences: the paper's counter begins at 0 and leaves at its patience t, when t + 1 exits agree: it is the score
    less 1, and a threshold of k here is a patience of t = k - 1 there. Exits that are not read do not count.

    Inputs: `output.logits` (B, C). State (B, 2): the answer, and for how many exits it has held.
    Related: `patient-confidence` counts sure exits; `vote` forgives a dissenting one.

    >>> import torch
    >>> from offramp.types import Batch, ExitOutput
    >>> policy, output = Patience(2), ExitOutput(torch.zeros(1, 1), torch.tensor([[0.0, 3.0]]), torch.zeros(2, 1))
    >>> first, state = policy.leave(1, output, policy.start(Batch(torch.ones(1, 4), torch.ones(1, 4))))
    >>> second, state = policy.leave(2, output, state)
    >>> first.item(), second.item()
    (False, True)
    """

    range: ClassVar[tuple[float, float]] = (1.0, math.inf)

    def start(self, batch: Batch) -> Tensor:
        """No answer yet."""
        return torch.tensor([[-1, 0]]).repeat(len(batch), 1)  # (B, 2)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """For how many exits each text's answer has held."""
        answer = output.logits.argmax(dim=1)  # (B,)
        held = torch.where(answer == state[:, 0], state[:, 1], 0) + 1  # (B,)
        return held.float(), torch.stack([answer, held], dim=1)
