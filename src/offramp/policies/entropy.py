"""LOGITS SO FAR -> LEAVE OR STAY: leave when the probabilities are concentrated enough."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from offramp.policies.scored import Scored
from offramp.reading import questions
from offramp.types import ExitOutput


def concentration(logits: Tensor, sets: bool = False) -> Tensor:
    """One less the entropy of the probabilities in units of the largest it can be: (B, C) to (B,), 1 for one class.

    Of sets, the mean over the labels.
    """
    asked = questions(logits.float(), sets)  # (B, Q, K)
    options = asked.shape[2]
    if options == 1:
        return torch.ones(len(logits), device=logits.device)
    logs = torch.log_softmax(asked, dim=2)  # (B, Q, K)
    # The log of a probability of 0 is finite here: 0 times it is 0, where 0 times minus infinity is not a number.
    terms = logs.exp() * logs.clamp(min=torch.finfo(logs.dtype).min)  # (B, Q, K)
    # Equal probabilities may round to a little less than 0.
    return (1.0 + terms.sum(dim=2) / math.log(options)).clamp(min=0.0).mean(dim=1)


class Entropy(Scored):
    """How far the probabilities are from equal.

        score = 1 - H / log K,   H = -sum_k p_k log p_k,   p = softmax(logits)

    0 where all classes are equally probable, 1 where one is certain. Of a set of labels, the mean over the labels of
    1 - H_k / log 2, with H_k the entropy of p_k and 1 - p_k, p = sigmoid(logits).

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

    takes_sets: ClassVar[bool] = True

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How concentrated the probabilities of each text are."""
        return concentration(output.logits, self.sets), state
