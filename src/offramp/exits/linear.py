"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the linear exit.

The classification head Hugging Face puts on the family: the first token's state, a dense layer with
the family's activation (BERT's pooler), dropout, and a linear layer.

    h = dropout(act(P s_first + p)),   logits = h W + b
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers.activations import ACT2FN

from offramp.exits.base import Exit
from offramp.types import ExitOutput


class LinearExit(Exit):
    """First token, pooler where the family has one, linear."""

    def __init__(self, hidden: int, classes: int, dropout: float, activation: str | None) -> None:
        super().__init__()
        self.pool = nn.Linear(hidden, hidden) if activation else None
        self.activation = ACT2FN[activation] if activation else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.classifier.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        first = self.first(states, mask)  # (B, H)
        pooled = first if self.pool is None else self.activation(self.pool(first))
        representation = self.dropout(pooled)  # (B, H)
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)
