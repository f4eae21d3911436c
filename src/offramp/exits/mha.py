"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the multi-head attention exit (ACL section 3.2).

    u = tanh(D s + d),   a = MHA(u, u, u)_first,   h = tanh(a),   logits = h W + b

Only the first token's vector is read, so only its query is computed; the keys and values are
those of all tokens, the padding masked.

Where words have tags, each word's first token t is read, and its own vector is added to what it attends to:

    h_t = tanh(u_t + MHA(u, u, u)_t)

Without that, a word would be told by a mean over all tokens until the attention has learnt to look at the word itself,
and a fine-tuning ends before it has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.exits.base import of_words
from offramp.exits.narrow import NarrowExit
from offramp.types import ExitOutput


class MhaExit(NarrowExit):
    """Down to `size`, tanh, self-attention, first token, tanh, linear."""

    def __init__(self, hidden: int, classes: int, size: int, heads: int, dropout: float) -> None:
        super().__init__(hidden, size, heads, dropout)
        self.classifier = nn.Linear(size, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, D)."""
        return self.classifier.weight

    def forward(self, states: Tensor, mask: Tensor, words: Tensor | None = None) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output; with marks of words, (B, T), to that of the W marked words."""
        if words is not None:
            return of_words(self.every_token(states, mask), words)
        narrow = self.narrow(states)  # (B, T, D)
        query = self.first(narrow, mask)[:, None] if self.window else narrow[:, :1]  # (B, 1, D)
        return self._read(self.attend(query, narrow, mask)[:, 0])

    def every_token(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """What it says at every token: a representation of (B, T, D) and logits of (B, T, C)."""
        narrow = self.narrow(states)  # (B, T, D)
        # A view, so that torch does not take its short way, which exits that are read together cannot.
        return self._read(narrow + self.attend(narrow[:, :], narrow, mask))

    def _read(self, attended: Tensor) -> ExitOutput:
        representation = torch.tanh(attended)  # (..., D)
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)
