"""LOSS -> PARAMETERS: the word embeddings' gradient as the rows a batch touched.

Half of a small backbone's parameters are word embeddings, and a batch touches a few hundred of its
thirty thousand rows. A dense gradient means filling, measuring and scaling all of it for every batch. Here
the gradient stays sparse until the optimiser wants it, and then lies in one buffer that is zero everywhere
else: the update is AdamW's, unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RowGradients:
    """Keeps one embedding's gradient as rows between the backward pass and the update."""

    def __init__(self, embedding: nn.Embedding) -> None:
        self.embedding = embedding
        self.before = embedding.sparse
        embedding.sparse = True
        self.buffer: Tensor | None = None
        self.rows: Tensor | None = None

    def values(self) -> Tensor | None:
        """The gradient's rows, summed over the batch: what a norm is taken of and a clipping scales."""
        gradient = self.embedding.weight.grad
        if gradient is None:
            return None
        if not gradient.is_coalesced():
            gradient = self.embedding.weight.grad = gradient.coalesce()
        return gradient.values()

    def spread(self) -> None:
        """Give the optimiser a dense gradient."""
        weight = self.embedding.weight
        values = self.values()
        if weight.grad is None or values is None:
            return
        if self.buffer is None:
            self.buffer = torch.zeros_like(weight)
        self.rows = weight.grad.indices()[0]
        self.buffer.index_copy_(0, self.rows, values)
        weight.grad = self.buffer

    def clear(self) -> None:
        """Forget the gradient, and zero the rows it filled."""
        self.embedding.weight.grad = None
        if self.buffer is not None and self.rows is not None:
            self.buffer.index_fill_(0, self.rows, 0.0)
            self.rows = None

    def close(self) -> None:
        """Leave the embedding as it was found."""
        self.clear()
        self.embedding.sparse = self.before
