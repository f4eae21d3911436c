"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the label-embedding attentive exit (LEAM).

    z = attention of the label embeddings to the tokens' states (`label_attention`),
    h = dropout(z),   logits = h W + b

Reference: Wang et al., Joint Embedding of Words and Labels for Text Classification, ACL 2018, as LaCon section 3.2
describes it for a BERT encoder.

Differences: those of `label_attention`. The tokens are the backbone's states, not word vectors. LEAM's regulariser,
which has the classifier classify the label embeddings too, is left out. The label embeddings of the output are those
that attend, not the rows of W.
"""

from __future__ import annotations

from torch import Tensor, nn

from offramp.exits.base import Exit
from offramp.exits.label_attention import LabelAttention
from offramp.exits.label_embeddings import LabelEmbeddings
from offramp.exits.mean import token_mean
from offramp.types import ExitOutput


class LeamExit(Exit):
    """Label attention, linear."""

    apart_from = 32

    def __init__(self, hidden: int, classes: int, window: int, dropout: float) -> None:
        super().__init__()
        self.labels = LabelEmbeddings(classes, hidden)
        self.attention = LabelAttention(classes, window)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.labels.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        representation = self.dropout(self.attention(states, mask, self.labels.weight))  # (B, H)
        return ExitOutput(representation, self.classifier(representation), self.labels.weight)

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        """The mean state of each name, (C, H): the label embeddings look for tokens like themselves."""
        return token_mean(states, mask)
