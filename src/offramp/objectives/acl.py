"""REPRESENTATION, LOGITS -> LOSS: aligned contrastive learning (ACL-Embed)."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.objectives.scl import SupervisedContrastive
from offramp.types import ExitOutput


class AlignedContrastive(SupervisedContrastive):
    """Cross entropy and the contrast among the texts and the label embeddings.

        L = (1 - lambda) CE + lambda SCL over the N + K vectors {(h_i, y_i)} and {(l_k, k)}

    Reference: ACL: Aligned Contrastive Learning Improves BERT and Multi-exit BERT Fine-tuning, section 4.2.
    Differences: eq. 1 prints the denominator over all vectors, the anchor itself included; that is
    `denominator="all"`. The label embedding of a class that is absent from the batch has no positive and
    contributes nothing as an anchor; it stays a negative of the others.

    Of label sets, `labels` (B, C), label embedding k is a vector of the set {k}, so that its overlap with a text of |Y|
    labels is 1/|Y| where k is among them, and 0 else: see `scl`.

    Inputs: `output` with `representation` (B, D), `logits` (B, C), `label_embeddings` (C, D); `labels` (B,).
    Needs nothing of the batch: a lone text has its label embedding as positive. Related: `scl`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.eye(2))
    >>> loss = AlignedContrastive(temperature=1.0, weight=0.5)(output, torch.tensor([0]))
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'contrast': 0.6265}
    """

    def __init__(
        self,
        temperature: float = 0.5,
        weight: float = 0.02,
        denominator: str = "others",
        reduction: str = "sum",
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
        alike: int = 0,
    ) -> None:
        super().__init__(temperature, weight, denominator, reduction, label_smoothing, class_weights, alike)

    def vectors(self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None) -> tuple[Tensor, Tensor]:
        """The texts and the label embeddings, (B + C, D), and their labels, (B + C,), or (B + C, C) of sets."""
        count = len(output.label_embeddings)
        classes = torch.arange(count, device=labels.device)  # (C,)
        if labels.dim() == 2:
            classes = torch.eye(count, dtype=labels.dtype, device=labels.device)  # (C, C)
        # `cat` takes the wider of the two types: the label embeddings are not rounded to autocast's.
        return torch.cat([output.representation, output.label_embeddings]), torch.cat([labels, classes])
