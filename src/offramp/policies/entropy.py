"""LOGITS SO FAR -> LEAVE OR STAY: leave when the probabilities are concentrated enough."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.types import ExitOutput


def concentration(logits: Tensor) -> Tensor:
    """One less the entropy of the probabilities in units of the largest it can be: (B, C) to (B,), 1 for one class."""
    classes = logits.shape[1]
    if classes == 1:
        return torch.ones(len(logits), device=logits.device)
    logs = torch.log_softmax(logits.float(), dim=1)  # (B, C)
    # The log of a probability of 0 is finite here: 0 times it is 0, where 0 times minus infinity is not a number.
    terms = logs.exp() * logs.clamp(min=torch.finfo(logs.dtype).min)  # (B, C)
    # Equal probabilities may round to a little less than 0.
    return (1.0 + terms.sum(dim=1) / math.log(classes)).clamp(min=0.0)


class Entropy(Scored):
    """How far the probabilities are from equal.

        score = 1 - H / log K,   H = -sum_k p_k log p_k,   p = softmax(logits)

    0 where all classes are equally probable, 1 where one is certain.

    Reference: Xin et al., DeeBERT: Dynamic Early Exiting for Accelerating BERT Inference, leave where the entropy is
    low; Liu et al., FastBERT: a Self-distilling BERT with Adaptive Inference Time, divide it by log K.

    Differences: the score is one less theirs, so that here too a higher one is surer.

    Inputs: `output.logits` (B, C). Related: `confidence`, `margin`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.zeros(2, 1), torch.tensor([[0.0, 0.0], [0.0, 99.0]]), torch.zeros(2, 1))
    >>> Entropy(0.9).score(1, output, torch.empty(2, 0))[0].tolist()
    [0.0, 1.0]
    """

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How concentrated the probabilities of each text are."""
        return concentration(output.logits), state
