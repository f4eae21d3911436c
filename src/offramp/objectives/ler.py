"""REPRESENTATION, LOGITS -> LOSS: the label embedding regulariser (LaCon's LER)."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.objectives.base import Term
from offramp.types import ExitOutput, Loss, directions


def label_spread(label_embeddings: Tensor) -> Tensor:
    """How near the label embeddings are to each other: (C, D) to ()."""
    with torch.autocast(device_type=label_embeddings.device.type, enabled=False):
        unit = directions(label_embeddings)  # (C, D)
        if len(unit) < 2:
            return unit.sum() * 0.0
        nearness = torch.expm1(1.0 + unit @ unit.T)  # (C, C)
        others = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)  # (C, C)
        return nearness[others].mean()


class LabelRegulariser(Term):
    """Spreads the label embeddings over the sphere.

        L = mean over pairs i != j of exp(1 + cos(L_i, L_j)) - 1

    Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, eq. 6.
    One label gives 0, where there is no pair to average over.

    Inputs: `output.label_embeddings` (C, D). Needs nothing of the batch. Related: `lacon`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.eye(2))
    >>> round(LabelRegulariser()(output, torch.tensor([0])).total.item(), 4)
    1.7183
    """

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; the texts take no part."""
        value = label_spread(output.label_embeddings)
        return Loss(main=value, parts={"ler": value.detach()})
