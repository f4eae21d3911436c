"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: matching with the label embeddings (LaCon-vanilla).

    h = g(dropout(s_first)),   g = 3-layer MLP, ReLU after each hidden layer, as wide as the states; or none of it,
    logits_k = cos(h, l_k) / tau

With `reads = mean`, the mean of all states stands in the place of s_first, centred and of length sqrt(H).

Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, sections 2.1 and 2.5, eq. 1, 2
and 8.

Differences: eq. 8 takes the nearest label, which needs no temperature; here tau makes the cosines logits, so that
they give probabilities and a cross entropy. The representation is not normalised: objectives and the cosine do that.
"""

from __future__ import annotations

from torch import Tensor, nn

from offramp.exits.base import Exit
from offramp.exits.label_embeddings import LabelEmbeddings, cosine
from offramp.exits.projection import NONE, OWN, Projection
from offramp.types import ExitOutput


class MatchExit(Exit):
    """First token or mean, projection, cosine to the label embeddings."""

    apart_from = 1

    def __init__(self, hidden: int, classes: int, temperature: float, dropout: float, projection: str = OWN) -> None:
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Identity() if projection == NONE else Projection(hidden)
        self.labels = LabelEmbeddings(classes, hidden)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.labels.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        representation = self.projection(self.dropout(self.one_vector(states, mask)))  # (B, H)
        logits = cosine(representation, self.labels.weight) / self.temperature  # (B, C)
        return ExitOutput(representation, logits, self.labels.weight)
