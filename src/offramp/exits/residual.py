"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: attention on top of the mean state.

    m = even(mean_t s_t),   u = tanh(D s + d),   a = tanh(MHA(mean_t u_t, u, u)),
    h = dropout(m) + U a + e,   logits = h W + b

An `mha` exit sends a text through a narrow random layer and has to learn everything anew; with few texts and many
labels a fine-tuning ends before it has. A pretrained backbone, and a sentence encoder above all, has much of it in the
mean of its states already. Here that mean is the representation, and the narrow attention adds what the mean does not
tell, as a residual block does. `even` centres a vector and gives it the length sqrt(H).

Reference: ours; the attention is that of ACL section 3.2, the mean that of Reimers and Gurevych, Sentence-BERT, 2019.

Where words have tags, the word's own state stands in the place of the mean, and its own u asks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.exits.base import of_words
from offramp.exits.mean import even, token_mean
from offramp.exits.narrow import NarrowExit
from offramp.types import ExitOutput


class ResidualExit(NarrowExit):
    """The mean of the tokens' states, what a narrow attention adds to it, linear."""

    def __init__(self, hidden: int, classes: int, size: int, heads: int, dropout: float) -> None:
        super().__init__(hidden, size, heads, dropout)
        self.up = nn.Linear(size, hidden)
        self.classifier = nn.Linear(hidden, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.classifier.weight

    def forward(self, states: Tensor, mask: Tensor, words: Tensor | None = None) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output; with marks of words, (B, T), to that of the W marked words."""
        if words is not None:
            return of_words(self.every_token(states, mask), words)
        narrow = self.narrow(states)  # (B, T, D)
        query = token_mean(narrow, mask)[:, None]  # (B, 1, D)
        return self._read(token_mean(states, mask), self.attend(query, narrow, mask)[:, 0])

    def every_token(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """What it says at every token: a representation of (B, T, H) and logits of (B, T, C)."""
        narrow = self.narrow(states)  # (B, T, D)
        # A view, so that torch does not take its short way, which exits that are read together cannot.
        return self._read(states, self.attend(narrow[:, :], narrow, mask))

    def _read(self, mean: Tensor, attended: Tensor) -> ExitOutput:
        """(..., H) and (..., D) to the output."""
        own = self.dropout(even(mean))
        representation = own + self.up(torch.tanh(attended))  # (..., H)
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)
