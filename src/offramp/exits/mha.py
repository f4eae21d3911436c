"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the multi-head attention exit (ACL section 3.2).

    u = tanh(D s + d),   a = MHA(u, u, u)_first,   h = tanh(a),   logits = h W + b

Only the first token's vector is read, so only its query is computed; the keys and values are
those of all tokens, the padding masked.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.errors import ConfigError
from offramp.exits.base import Exit
from offramp.types import ExitOutput


class MhaExit(Exit):
    """Down to `size`, tanh, self-attention, first token, tanh, linear."""

    def __init__(self, hidden: int, classes: int, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        if size % heads:
            raise ConfigError(f"`exits.size` should be a multiple of `exits.heads` ({heads}). Found {size}.")
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, size)
        self.attention = nn.MultiheadAttention(size, heads, dropout=dropout, batch_first=True)
        self.classifier = nn.Linear(size, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, D)."""
        return self.classifier.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        narrow = torch.tanh(self.down(self.dropout(states)))  # (B, T, D)
        query = self.first(narrow, mask)[:, None] if self.window else narrow[:, :1]  # (B, 1, D)
        # Here True means "ignore", the opposite of Hugging Face's mask.
        attended, _ = self.attention(query, narrow, narrow, key_padding_mask=mask == 0, need_weights=False)  # (B, 1, D)
        representation = torch.tanh(attended[:, 0])  # (B, D)
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)
