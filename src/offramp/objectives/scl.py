"""REPRESENTATION, LOGITS -> LOSS: supervised contrastive fine-tuning (SCL)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from offramp.objectives.ce import CrossEntropy
from offramp.objectives.contrast import spread, supervised_contrast
from offramp.types import ExitOutput, Loss


class SupervisedContrastive(CrossEntropy):
    """Cross entropy and the contrast among the batch's texts.

        L = (1 - lambda) CE + lambda SCL
        SCL = sum_i -1/(N_yi - 1) sum_{j != i, yj = yi} log[ exp(z_i.z_j/tau) / sum_{k != i} exp(z_i.z_k/tau) ]

    Reference: Gunel et al., Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning,
    eq. 1-3. Differences: an anchor without a positive contributes nothing, where the formula divides by 0.

    Of label sets, `labels` (B, C), CE is the binary one and the positives of a text are all texts with which it shares
    a label, each weighted by the Jaccard index of the two sets (`offramp.objectives.contrast`):

        SCL = sum_i -1/W(i) sum_{j != i} w_ij log[ exp(z_i.z_j/tau) / sum_{k != i} exp(z_i.z_k/tau) ]
        w_ij = |Y_i and Y_j| / |Y_i or Y_j|,   W(i) = sum_{j != i} w_ij

    Inputs: `output.representation` (B, D), `output.logits` (B, C), `labels` (B,). Needs batches in which
    labels repeat. With `alike`, at most so many texts of each label are contrasted, spread evenly over the batch: where
    rows are words, most of which are outside of all spans, the contrast is then not among those alone, and its
    similarities take C^2 alike^2 numbers at most. The cross entropy is that of all. Related: `acl` adds the label
    embeddings to the contrast.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> h = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> output = ExitOutput(h, torch.zeros(3, 2), torch.eye(2))
    >>> loss = SupervisedContrastive(temperature=1.0, weight=0.5)(output, torch.tensor([0, 0, 1]))
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'contrast': 0.6265}
    """

    hyper: ClassVar[tuple[str, ...]] = (
        *CrossEntropy.hyper,
        "temperature",
        "weight",
        "denominator",
        "reduction",
        "alike",
    )

    def __init__(
        self,
        temperature: float = 0.3,
        weight: float = 0.9,
        denominator: str = "others",
        reduction: str = "sum",
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
        alike: int = 0,
    ) -> None:
        super().__init__(label_smoothing, class_weights)
        self.alike = alike
        self.temperature = temperature
        self.weight = weight
        self.denominator = denominator
        self.reduction = reduction

    def vectors(self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None) -> tuple[Tensor, Tensor]:
        """Who takes part in the contrast, (V, D), and their labels, (V,), or (V, C) of sets."""
        return output.representation, labels

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; with `weight` 0 it is the cross entropy, bit for bit."""
        entropy = self.cross_entropy(output, labels, weights)
        if self.weight == 0.0:
            return Loss(main=entropy, parts={"ce": entropy.detach()})
        if self.alike and labels.dim() == 1:
            rows = spread(labels, self.alike)
            output, labels = _at(output, rows), labels[rows]
            teacher = None if teacher is None else _at(teacher, rows)
        contrast = supervised_contrast(
            *self.vectors(output, labels, teacher), self.temperature, self.denominator, self.reduction
        )
        return Loss(
            main=entropy,
            auxiliary=contrast,
            main_weight=1.0 - self.weight,
            auxiliary_weight=self.weight,
            parts={"ce": entropy.detach(), "contrast": contrast.detach()},
        )


def _at(output: ExitOutput, rows: Tensor) -> ExitOutput:
    return ExitOutput(output.representation[rows], output.logits[rows], output.label_embeddings)
