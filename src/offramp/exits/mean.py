"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the mean state of a text."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import layer_norm


def token_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of each text's states, special tokens included, (B, T, H) and (B, T) to (B, H)."""
    inside = mask[:, :, None].to(states.dtype)  # (B, T, 1)
    return (states * inside).sum(dim=1) / inside.sum(dim=1)


def even(states: Tensor) -> Tensor:
    """Vectors (..., H) centred and of length sqrt(H), so that those of every depth and backbone are of one size."""
    return layer_norm(states, states.shape[-1:])
