"""REPRESENTATION, LOGITS -> LOSS: label-centred contrast (LaCon's LCL)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.objectives.base import Term
from offramp.types import ExitOutput, Loss, directions


def label_centred(representation: Tensor, label_embeddings: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Each label of the batch as anchor against the batch's texts: (B, D), (C, D), (B,) to ()."""
    with torch.autocast(device_type=representation.device.type, enabled=False):
        similarity = directions(label_embeddings) @ directions(representation).T / temperature  # (C, B)
        classes = torch.arange(len(label_embeddings), device=labels.device)  # (C,)
        positives = classes[:, None] == labels  # (C, B)
        counts = positives.sum(dim=1)  # (C,)
        anchors = (counts > 0) & (counts < len(labels))  # (C,), with a positive and a negative
        if not bool(anchors.any()):
            return similarity.sum() * 0.0
        negatives = similarity.masked_fill(positives, float("-inf"))[anchors]  # (P, B)
        normaliser = torch.logsumexp(negatives, dim=1)  # (P,)
        attraction = (similarity * positives).sum(dim=1)[anchors]  # (P,)
        return (counts[anchors] * normaliser - attraction).mean()


class LabelCentred(Term):
    """Each label draws its texts near and pushes the others away; only the negatives stand in the denominator.

        L = -1/|P| sum_{p in P} sum_{a in A(p)} log[ exp(cos(L_p, H_a)/tau) / sum_{b in B(p)} exp(cos(L_p, H_b)/tau) ]

    with P the labels in the batch, A(p) the texts of label p, B(p) the others.

    Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, eq. 5. Differences: a
    label with no negative in the batch, which then is the only one there, gives 0, where the formula divides by 0.

    Inputs: `output.representation` (B, D), `output.label_embeddings` (C, D), `labels` (B,). Needs batches of at
    least two labels. Can be negative. Related: `icl`, `lacon`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.eye(2), torch.zeros(2, 2), torch.eye(2))
    >>> round(LabelCentred(temperature=1.0)(output, torch.tensor([0, 1])).total.item(), 4)
    -1.0
    """

    hyper: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        value = label_centred(output.representation, output.label_embeddings, labels, self.temperature)
        return Loss(main=value, parts={"lcl": value.detach()})
