"""REPRESENTATION, LOGITS -> LOSS: cross entropy and the contrast of two views of each text (CE+CL)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.objectives.ce import CrossEntropy
from offramp.objectives.contrast import supervised_contrast
from offramp.types import ExitOutput, Loss


class InfoNce(CrossEntropy):
    """Cross entropy, and each view of a text against the other views of the batch.

        L = (1 - lambda) CE + lambda 1/2N sum_i -log[ exp(z_i.z_j(i)/tau) / sum_{k != i} exp(z_i.z_k/tau) ]

    over the 2N views, with j(i) the other view of i's text; `reduction="sum"` does not divide by 2N.

    Reference: van den Oord et al., Representation Learning with Contrastive Predictive Coding; ACL, eq. 5, which
    divides by N; SCL, eq. 4, the sum; the CE+CL baseline of LaCon, section 3.2, with the views of SimCSE (dropout) or
    of ConSERT. Differences: the two terms are weighed as in `scl`, where LaCon does not say how; the cross entropy is
    the mean over both views, since both have been computed.

    Inputs: `output` of 2N views, the second half those of the first half's texts: `representation` (2N, D), `logits`
    (2N, C); `labels` (2N,). Needs two texts or more: a lone one's contrast is 0. Labels play no part in the contrast.
    Related: `scl` takes the texts of a label as positives.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> output = ExitOutput(h, torch.zeros(4, 2), torch.eye(2))
    >>> loss = InfoNce(temperature=1.0, weight=0.5)(output, torch.tensor([0, 1, 0, 1]))
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'contrast': 0.5514}
    """

    hyper: ClassVar[tuple[str, ...]] = (*CrossEntropy.hyper, "temperature", "weight", "reduction")
    views: ClassVar[int] = 2

    def __init__(
        self,
        temperature: float = 0.1,
        weight: float = 0.1,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__(label_smoothing, class_weights)
        self.temperature = temperature
        self.weight = weight
        self.reduction = reduction

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; with `weight` 0 it is the cross entropy of both views."""
        texts, odd = divmod(len(labels), 2)
        if odd or not torch.equal(labels[:texts], labels[texts:]):
            raise ConfigError(
                "The objective `infonce` should be given two views of each text, the second half those of the first "
                f"half's texts. Found {len(labels)} outputs whose labels do not repeat."
            )
        entropy = self.cross_entropy(output, labels, weights)
        if self.weight == 0.0:
            return Loss(main=entropy, parts={"ce": entropy.detach()})
        # A text is a class of its own, with its two views as members.
        members = torch.arange(texts, device=labels.device).repeat(2)  # (2N,)
        contrast = supervised_contrast(
            output.representation, members, self.temperature, denominator="others", reduction=self.reduction
        )
        return Loss(
            main=entropy,
            auxiliary=contrast,
            main_weight=1.0 - self.weight,
            auxiliary_weight=self.weight,
            parts={"ce": entropy.detach(), "contrast": contrast.detach()},
        )
