"""LOGITS SO FAR -> LEAVE OR STAY: leave when enough of the exits so far gave this answer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.types import ExitOutput


class Vote(Scored):
    """The votes for this exit's answer, one per exit read, over a power of their number.

        score_d = #{c <= d : exit c answers as d does} / n^alpha,   n exits read up to d,   alpha = 0.5

    A unanimous vote scores sqrt(n): it grows with the number of exits that agree.

    Reference: Sun et al., Early Exiting with Ensemble Internal Classifiers, whose votes are divided by d^lambda.

    Differences: the paper counts the votes of the class that leads and answers with it; here the votes are those for
    the answer the text would leave with, the exit's own. The power is fixed at 0.5, n counts the exits that were read
    where d counts layers, and the paper's training for diverse exits is not part of a policy.

    Inputs: `output.logits` (B, C). State (B, C): the votes so far; (B, 0) before the first exit, which tells C.
    Related: `patience` starts again at a dissenting exit.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> policy, output = Vote(1.4), ExitOutput(torch.zeros(1, 1), torch.tensor([[0.0, 3.0]]), torch.zeros(2, 1))
    >>> first, state = policy.score(1, output, torch.empty(1, 0))
    >>> second, state = policy.score(2, output, state)
    >>> [round(score.item(), 4) for score in (first, second)]
    [1.0, 1.4142]
    """

    range: ClassVar[tuple[float, float]] = (0.0, math.inf)
    alpha: ClassVar[float] = 0.5

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How many exits stand behind each text's answer."""
        answer = output.logits.argmax(dim=1, keepdim=True)  # (B, 1)
        before = state if state.shape[1] else torch.zeros_like(output.logits, dtype=torch.float32)
        votes = before.scatter_add(1, answer, torch.ones_like(answer, dtype=before.dtype))  # (B, C)
        return votes.gather(1, answer)[:, 0] / votes.sum(dim=1) ** self.alpha, votes
