"""REPRESENTATION, LOGITS -> LOSS: cross entropy."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from offramp.objectives.base import Term
from offramp.types import ExitOutput, Loss, wide


class CrossEntropy(Term):
    """Cross entropy, mean over the batch.

        L = -1/N sum_i log softmax(logits_i)[y_i]

    Inputs: `output.logits` (B, C), `labels` (B,). Needs nothing of the batch.
    `class_weights` (C,) makes it the weighted mean; `label_smoothing` mixes in the uniform distribution. `weights` (B,)
    of the texts do the same: a text of weight 2 counts as if it stood in the batch twice.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> output = ExitOutput(torch.zeros(2, 3), logits, torch.zeros(2, 3))
    >>> round(CrossEntropy()(output, torch.tensor([0, 1])).total.item(), 4)
    0.1269
    """

    hyper: ClassVar[tuple[str, ...]] = ("label_smoothing", "class_weights")

    def __init__(self, label_smoothing: float = 0.0, class_weights: Tensor | None = None) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", class_weights, persistent=False)

    def cross_entropy(self, output: ExitOutput, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The term itself, in float32 or wider."""
        logits = wide(output.logits)
        known: Tensor | None = self.get_buffer("class_weights") if self.class_weights is not None else None
        by_class = None if known is None else known.to(logits)  # (C,)
        entropy = partial(functional.cross_entropy, weight=by_class, label_smoothing=self.label_smoothing)
        if weights is None:
            return entropy(logits, labels)
        each = entropy(logits, labels, reduction="none")  # (B,), weighted by class
        texts = weights.to(logits)  # (B,)
        return (texts * each).sum() / (texts if by_class is None else texts * by_class[labels]).sum()

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        value = self.cross_entropy(output, labels, weights)
        return Loss(main=value, parts={"ce": value.detach()})
