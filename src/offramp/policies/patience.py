"""LOGITS SO FAR -> LEAVE OR STAY: leave when several exits in a row gave the same answer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.reading import answers
from offramp.types import Batch, ExitOutput


class Patience(Scored):
    """How many exits in a row, this one included, gave this answer.

        score_d = score_c + 1   where exit d answers as c did, the exit read before it;   else 1

    Reference: Zhou et al., BERT Loses Patience: Fast and Robust Inference with Early Exit (PABEE).

    Differences: the paper's counter begins at 0 and leaves at its patience t, when t + 1 exits agree: it is the score
    less 1, and a threshold of k here is a patience of t = k - 1 there. Exits that are not read do not count. Of a set
    of labels the whole set is the answer.

    Inputs: `output.logits` (B, C). State (B, 2), of sets (B, C + 1): the answer, and for how many exits it has held;
    (B, 1) before the first exit.
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
    takes_sets: ClassVar[bool] = True

    def start(self, batch: Batch) -> Tensor:
        """No answer yet."""
        return torch.zeros(len(batch), 1, dtype=torch.int64)  # (B, 1)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """For how many exits each text's answer has held."""
        answer = answers(output.logits, self.sets)  # (B,), of sets (B, C)
        answer = answer if self.sets else answer[:, None]  # (B, Q)
        before = state[:, :-1] if state.shape[1] > 1 else answer  # the first exit dissents from nobody
        held = torch.where((answer == before).all(dim=1), state[:, -1], 0) + 1  # (B,)
        return held.float(), torch.cat([answer, held[:, None]], dim=1)
