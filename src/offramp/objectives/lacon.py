"""REPRESENTATION, LOGITS -> LOSS: label anchored contrastive learning (LaCon)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.objectives.base import Term
from offramp.objectives.icl import instance_centred
from offramp.objectives.lcl import label_centred
from offramp.objectives.ler import label_spread
from offramp.types import ExitOutput, Loss


class LabelAnchored(Term):
    """Instance-centred contrast over heads, label-centred contrast, and the label regulariser.

        L = ICL(heads) + LCL + lambda LER

    or the sum of some of these `parts` (its Tables 3 and 6); one of them should be ICL or LCL, which see the texts.

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

    hyper: ClassVar[tuple[str, ...]] = ("temperature", "weight", "heads", "parts")

    def __init__(
        self,
        temperature: float = 0.1,
        weight: float = 0.5,
        heads: int = 6,
        parts: Sequence[str] = ("icl", "lcl", "ler"),
    ) -> None:
        super().__init__()
        if not {"icl", "lcl"} & set(parts):
            found = ", ".join(parts) or "none"
            raise ConfigError(f"`parts` should name icl or lcl, which see the texts. Found {found}.")
        self.temperature = temperature
        self.weight = weight
        self.heads = heads
        self.parts = parts

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        vectors = output.representation, output.label_embeddings
        terms: dict[str, Tensor] = {}
        if "icl" in self.parts:
            terms["icl"] = instance_centred(*vectors, labels, self.temperature, self.heads)
        if "lcl" in self.parts:
            terms["lcl"] = label_centred(*vectors, labels, self.temperature)
        if "ler" in self.parts:
            terms["ler"] = label_spread(output.label_embeddings)
        weighted = [self.weight * term if name == "ler" else term for name, term in terms.items()]
        main = functools.reduce(torch.add, weighted)  # in the formula's order, which decides the last bits
        return Loss(main=main, parts={name: term.detach() for name, term in terms.items()})
