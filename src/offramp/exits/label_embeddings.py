"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: label embeddings that are looked up, and the cosine to them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from offramp.types import directions


class LabelEmbeddings(nn.Module):
    """One learnable vector per label, drawn as torch draws the rows of a linear layer (LaCon eq. 2)."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw anew."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        nn.init.uniform_(self.weight, -bound, bound)


def cosine(vectors: Tensor, label_embeddings: Tensor) -> Tensor:
    """(..., H) and (C, H) to the cosines (..., C), in float32 or wider whatever the autocast dtype.

    >>> cosine(torch.tensor([3.0, 4.0]), torch.eye(2)).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    with torch.autocast(device_type=vectors.device.type, enabled=False):
        unit = directions(vectors)  # (..., H)
        anchors = directions(label_embeddings.to(unit.dtype))  # (C, H)
        return unit @ anchors.T
