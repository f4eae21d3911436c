"""LOGITS SO FAR -> LEAVE OR STAY: leave when the logits are large enough, not only far apart."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.types import ExitOutput


class Energy(Scored):
    """The log-sum-exp of the logits: the negative free energy.

        score = log sum_k exp(logits_k)

    Reference: Liu et al., Energy-based Out-of-distribution Detection (at temperature 1).

    Differences: there it tells texts from elsewhere, here it tells when to leave. It has no scale of its own, so that
    one threshold seldom fits all exits: give one per depth.

    Inputs: `output.logits` (B, C). Related: `confidence` is exp(max logit - energy).

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.zeros(1, 1), torch.tensor([[1.0, 3.0]]).log(), torch.zeros(2, 1))
    >>> round(Energy(0.0).score(1, output, torch.empty(1, 0))[0].exp().item(), 4)
    4.0
    """

    range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """The energy of each text."""
        return torch.logsumexp(output.logits.float(), dim=1), state
