"""REPRESENTATION, LOGITS -> LOSS: instance-centred contrast (LaCon's ICL)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from offramp.errors import ConfigError
from offramp.objectives.base import Term
from offramp.types import ExitOutput, Loss, directions


def instance_centred(
    representation: Tensor, label_embeddings: Tensor, labels: Tensor, temperature: float, heads: int
) -> Tensor:
    """Each text as anchor against the label embeddings, per slice: (B, D), (C, D), (B,) to ()."""
    width = representation.shape[1]
    if heads < 1 or width % heads:
        raise ConfigError(f"`heads` should divide the representation's width ({width}). Found {heads}.")
    with torch.autocast(device_type=representation.device.type, enabled=False):
        texts = directions(representation.unflatten(1, (heads, -1)))  # (B, M, D/M)
        classes = directions(label_embeddings.unflatten(1, (heads, -1)))  # (C, M, D/M)
        cosine = torch.einsum("bmd,cmd->mbc", texts, classes)  # (M, B, C)
        # The mean over the texts of all slices, M times: the sum over slices of the mean over texts.
        return heads * functional.cross_entropy(cosine.flatten(0, 1) / temperature, labels.repeat(heads))


class InstanceCentred(Term):
    """Each text is drawn to its label's embedding and pushed from the others'.

        L = -1/N sum_m sum_i log[ exp(cos(h_i^m, l_yi^m)/tau) / sum_p exp(cos(h_i^m, l_p^m)/tau) ]

    over `heads` slices m of the representation and the label embeddings, each normalised on its own.

    Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, eq. 3 (one head) and 4.

    Inputs: `output.representation` (B, D), `output.label_embeddings` (C, D), `labels` (B,). Needs nothing of the batch.
    Related: `lcl` takes the labels as anchors; `lacon` is both and a regulariser.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.eye(2))
    >>> round(InstanceCentred(temperature=1.0)(output, torch.tensor([0])).total.item(), 4)
    0.3133
    """

    hyper: ClassVar[tuple[str, ...]] = ("temperature", "heads")

    def __init__(self, temperature: float = 0.1, heads: int = 1) -> None:
        super().__init__()
        self.temperature = temperature
        self.heads = heads

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        value = instance_centred(output.representation, output.label_embeddings, labels, self.temperature, self.heads)
        return Loss(main=value, parts={"icl": value.detach()})
