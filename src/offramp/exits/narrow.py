"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: what exits share that attend in a narrow space.

    u = tanh(D s + d),   MHA(q, u, u)

The attention is narrow, `size` wide, so that an exit stays small beside a layer. Padding is neither asked nor answers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.errors import ConfigError
from offramp.exits.base import Exit


class NarrowExit(Exit):
    """Down to `size`, tanh, self-attention; who asks and what is classified is for the exit to say."""

    def __init__(self, hidden: int, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        if size % heads:
            raise ConfigError(f"`exits.size` should be a multiple of `exits.heads` ({heads}). Found {size}.")
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, size)
        self.attention = nn.MultiheadAttention(size, heads, dropout=dropout, batch_first=True)

    def narrow(self, states: Tensor) -> Tensor:
        """(B, T, H) to (B, T, D)."""
        return torch.tanh(self.down(self.dropout(states)))

    def attend(self, query: Tensor, narrow: Tensor, mask: Tensor) -> Tensor:
        """(B, Q, D), (B, T, D) and (B, T) to (B, Q, D)."""
        # Here True means "ignore", the opposite of Hugging Face's mask.
        attended, _ = self.attention(query, narrow, narrow, key_padding_mask=mask == 0, need_weights=False)
        return torch.as_tensor(attended)
