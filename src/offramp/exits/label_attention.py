"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: attention to the tokens that resemble a label (LEAM).

    G_kt = cos(l_k, s_t),   m_t = max_k relu(conv(G))_kt,   beta = softmax(m),   z = sum_t beta_t s_t

The convolution runs along the tokens, from C labels to C labels, `window` tokens wide.

Reference: Wang et al., Joint Embedding of Words and Labels for Text Classification, ACL 2018; LaCon eq. 9.

Differences: LEAM prints one filter that all labels share, LaCon prints none; here each label's filter sees all labels.
The convolution's bias begins at 0, so that ReLU lets something through: where it gives 0 everywhere, nothing learns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.errors import ConfigError
from offramp.exits.label_embeddings import cosine
from offramp.types import wide


class LabelAttention(nn.Module):
    """Cosine with each label, convolution along the tokens, ReLU, maximum over the labels, weighted sum of states."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        if window % 2 == 0:
            raise ConfigError(f"`exits.window` should be odd, with as many tokens on both sides. Found {window}.")
        self.convolution = nn.Conv1d(classes, classes, window, padding=window // 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The bias only; the convolution draws its own weights."""
        if self.convolution.bias is not None:
            nn.init.zeros_(self.convolution.bias)

    def forward(self, states: Tensor, mask: Tensor, label_embeddings: Tensor) -> Tensor:
        """(B, T, H), (B, T) and (C, H) to the attended states z, (B, H)."""
        likeness = cosine(states, label_embeddings).transpose(1, 2)  # (B, C, T)
        # Behind the text the convolution finds the zeros that it finds behind the batch.
        likeness = likeness.masked_fill(mask[:, None] == 0, 0.0).to(self.convolution.weight.dtype)
        scores = torch.relu(self.convolution(likeness)).amax(dim=1, keepdim=True)  # (B, 1, T)
        return attend(scores, states, mask)[:, 0]


def attend(scores: Tensor, states: Tensor, mask: Tensor) -> Tensor:
    """Scores (B, R, T), states (B, T, H) and mask (B, T) to R weighted sums of each text's states, (B, R, H)."""
    shares = wide(scores).masked_fill(mask[:, None] == 0, float("-inf")).softmax(dim=2)  # (B, R, T)
    return shares.to(states.dtype) @ states
