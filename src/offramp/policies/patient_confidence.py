"""LOGITS SO FAR -> LEAVE OR STAY: leave when several exits in a row were sure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.confidence import confidence
from offramp.policies.scored import Scored
from offramp.types import Batch, ExitOutput

PATIENCE = 2
"""Exits in a row that should be sure, unless told."""


class PatientConfidence(Scored):
    """The lowest top probability over the last `patience` exits that were read.

        score_d = min of max_k softmax(logits_c)[k]   over the last `patience` exits c read up to d

    and minus infinity, which reaches no threshold, where fewer have been read.

    Reference: Zhang et al., PCEE-BERT: Accelerating BERT Inference via Patient and Confident Early Exiting.

    Differences: the paper tells by the entropy how sure an exit is, here it is the top probability. As in the paper,
    the exits need not agree. Of several thresholds, that of the exit where the text would leave is asked of them all.
    Of a set of labels, the top probability is that of the label that is told least surely, as in `confidence`.

    Inputs: `output.logits` (B, C). State (B, patience - 1): the last top probabilities.
    Relations: with a patience of 1 it is `confidence`. Related: `patience` asks for agreement instead.

    >>> import torch
    >>> from offramp.types import Batch, ExitOutput
    >>> output = ExitOutput(torch.zeros(1, 1), torch.tensor([[0.0, 3.0]]), torch.zeros(2, 1))
    >>> policy = PatientConfidence(0.9, patience=2)
    >>> first, state = policy.leave(1, output, policy.start(Batch(torch.ones(1, 4), torch.ones(1, 4))))
    >>> second, state = policy.leave(2, output, state)
    >>> first.item(), second.item()
    (False, True)
    """

    takes_sets: ClassVar[bool] = True

    def __init__(self, thresholds: float | Mapping[int, float], patience: int = PATIENCE, sets: bool = False) -> None:
        super().__init__(thresholds, sets)
        if patience < 1:
            raise ConfigError(f"`patience` should be 1 or more. Found {patience}.")
        self.patience = patience

    def start(self, batch: Batch) -> Tensor:
        """No exit was sure yet."""
        return torch.full((len(batch), self.patience - 1), -math.inf)  # (B, patience - 1)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """The least sure of the last exits, for each text."""
        recent = torch.cat([state, confidence(output.logits, self.sets)[:, None]], dim=1)  # (B, patience)
        return recent.amin(dim=1), recent[:, 1:]
