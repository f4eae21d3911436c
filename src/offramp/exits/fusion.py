"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: matching after a fusion with the label embeddings (LaCon-fusion).

    z = attention of the label embeddings to the tokens' states (`label_attention`),
    h = g(dropout(z)),   logits_k = cos(h, l_k) / tau

The same label embeddings find the tokens and are matched with what the projection g makes of them.

Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, section 2.6, eq. 9; the
prediction is LaCon-vanilla's, eq. 8.

Differences: those of `match` and of `label_attention`.
"""

from __future__ import annotations

from torch import Tensor, nn

from offramp.exits.base import Exit
from offramp.exits.label_attention import LabelAttention
from offramp.exits.label_embeddings import LabelEmbeddings, cosine
from offramp.exits.mean import token_mean
from offramp.exits.projection import Projection
from offramp.types import ExitOutput


class FusionExit(Exit):
    """Label attention, projection, cosine to the label embeddings."""

    apart_from = 1

    def __init__(self, hidden: int, classes: int, window: int, temperature: float, dropout: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.attention = LabelAttention(classes, window)
        self.dropout = nn.Dropout(dropout)
        self.projection = Projection(hidden)
        self.labels = LabelEmbeddings(classes, hidden)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.labels.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        fused = self.attention(states, mask, self.labels.weight)  # (B, H)
        representation = self.projection(self.dropout(fused))  # (B, H)
        logits = cosine(representation, self.labels.weight) / self.temperature  # (B, C)
        return ExitOutput(representation, logits, self.labels.weight)

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        """The mean state of each name, (C, H): the label embeddings look for tokens like themselves."""
        return token_mean(states, mask)
