"""REPRESENTATION, LOGITS -> LOSS: cross entropy."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from offramp.errors import ConfigError
from offramp.objectives.base import Term
from offramp.types import ExitOutput, Loss, wide


class CrossEntropy(Term):
    """Cross entropy, mean over the batch.

        L = -1/N sum_i log softmax(logits_i)[y_i]

    Inputs: `output.logits` (B, C), `labels` (B,). Needs nothing of the batch.
    `label_smoothing` mixes in the uniform distribution. `class_weights` (C,) makes it the weighted mean over the texts,
    each by its label; `weights` (B,) of the texts do the same: a text of weight 2 counts as if it stood there twice.

    Of label sets, `labels` (B, C), it is the binary cross entropy of each label, mean over the labels:

        L = -1/N sum_i 1/C sum_k [ y_ik log p_ik + (1 - y_ik) log(1 - p_ik) ],   p = sigmoid(logits)

    which is the cross entropy of C questions with two options each. Smoothing then mixes in 1/2; class weights there
    are none.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> output = ExitOutput(torch.zeros(2, 3), logits, torch.zeros(2, 3))
    >>> round(CrossEntropy()(output, torch.tensor([0, 1])).total.item(), 4)
    0.1269
    """

    hyper: ClassVar[tuple[str, ...]] = ("label_smoothing", "class_weights")
    takes_sets: ClassVar[bool] = True

    def __init__(self, label_smoothing: float = 0.0, class_weights: Tensor | None = None) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", class_weights, persistent=False)

    def cross_entropy(self, output: ExitOutput, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The term itself, in float32 or wider."""
        logits = wide(output.logits)
        if labels.dim() == 2:
            return self._of_sets(logits, labels.to(logits), weights)
        entropy = partial(functional.cross_entropy, logits, labels, label_smoothing=self.label_smoothing)
        texts = None if weights is None else weights.to(logits)  # (B,)
        if self.class_weights is not None:
            # torch's own `weight` also weighs what smoothing gives to each other label: the rarest could win.
            own = self.get_buffer("class_weights").to(logits)[labels]  # (B,)
            texts = own if texts is None else texts * own
        if texts is None:
            return entropy()
        return (texts * entropy(reduction="none")).sum() / texts.sum()

    def _of_sets(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        if self.class_weights is not None:
            raise ConfigError("`class_weights` should be none where texts have sets of labels. Found some.")
        wanted = labels * (1.0 - self.label_smoothing) + self.label_smoothing / 2  # (B, C)
        each = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(dim=1)  # (B,)
        if weights is None:
            return each.mean()
        texts = weights.to(logits)  # (B,)
        return (texts * each).sum() / texts.sum()

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        value = self.cross_entropy(output, labels, weights)
        return Loss(main=value, parts={"ce": value.detach()})
