"""REPRESENTATION, LOGITS -> LOSS: any objective with a share of soft targets."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from offramp.objectives.base import Term, check_teacher
from offramp.objectives.distill import soft_targets
from offramp.types import ExitOutput, Loss


class Softened(Term):
    """An objective whose main term is shared with the teacher's softened answers.

        main = (1 - sigma) main of the objective + sigma T^2 KL( softmax(logits^M / T) || softmax(logits^m / T) )

    The auxiliary term and both weights stay the objective's, so that alignment holds the contrast against the answers
    that are wanted, hard and soft. With `acl` it is the ACL paper's ablation with soft targets.

    Inputs: those of the objective, and `teacher.logits` (B, C). Related: `distill` is this around `ce`.

    >>> import torch
    >>> from offramp.objectives.ce import CrossEntropy
    >>> from offramp.types import ExitOutput
    >>> student = ExitOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.eye(2))
    >>> teacher = ExitOutput(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]), torch.eye(2))
    >>> loss = Softened(CrossEntropy(), share=0.5, temperature=2.0)(student, torch.tensor([0]), teacher)
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'soft': 0.4438}
    """

    taught: ClassVar[bool] = True

    def __init__(self, inner: Term, share: float, temperature: float = 2.0) -> None:
        super().__init__()
        self.inner = inner
        self.share = share
        self.temperature = temperature

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch."""
        loss = self.inner(output, labels, teacher, weights)
        taught = check_teacher("softened", "logits", output, teacher)
        soft = soft_targets(output.logits, taught.logits, self.temperature, sets=labels.dim() == 2)
        return Loss(
            main=(1.0 - self.share) * loss.main + self.share * soft,
            auxiliary=loss.auxiliary,
            main_weight=loss.main_weight,
            auxiliary_weight=loss.auxiliary_weight,
            parts={**loss.parts, "soft": soft.detach()},
        )
