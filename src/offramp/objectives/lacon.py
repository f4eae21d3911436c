"""REPRESENTATION, LOGITS -> LOSS: label anchored contrastive learning (LaCon)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from offramp.objectives.base import Term
from offramp.objectives.icl import instance_centred
from offramp.objectives.lcl import label_centred
from offramp.objectives.ler import label_spread
from offramp.types import ExitOutput, Loss


class LabelAnchored(Term):
    """Instance-centred contrast over heads, label-centred contrast, and the label regulariser.

        L = ICL(heads) + LCL + lambda LER

    Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, eq. 7. Prediction is by
    cosine to the label embeddings (eq. 8), which the exits `match` and `fusion` do.

    Inputs: `output.representation` (B, D), `output.label_embeddings` (C, D), `labels` (B,). Needs batches of at
    least two labels for its LCL part. Related: `icl`, `lcl`, `ler`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.eye(2), torch.zeros(2, 2), torch.eye(2))
    >>> loss = LabelAnchored(temperature=1.0, weight=0.5, heads=1)(output, torch.tensor([0, 1]))
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'icl': 0.3133, 'lcl': -1.0, 'ler': 1.7183}
    """

    hyper: ClassVar[tuple[str, ...]] = ("temperature", "weight", "heads")

    def __init__(self, temperature: float = 0.1, weight: float = 0.5, heads: int = 6) -> None:
        super().__init__()
        self.temperature = temperature
        self.weight = weight
        self.heads = heads

    def forward(self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None) -> Loss:
        """The loss of a batch."""
        vectors = output.representation, output.label_embeddings
        icl = instance_centred(*vectors, labels, self.temperature, self.heads)
        lcl = label_centred(*vectors, labels, self.temperature)
        ler = label_spread(output.label_embeddings)
        parts = {"icl": icl.detach(), "lcl": lcl.detach(), "ler": ler.detach()}
        return Loss(main=icl + lcl + self.weight * ler, parts=parts)
