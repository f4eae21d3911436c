"""REPRESENTATION, LOGITS -> LOSS: soft targets from a teacher exit."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from offramp.objectives.base import check_teacher
from offramp.objectives.ce import CrossEntropy
from offramp.reading import questions
from offramp.types import ExitOutput, Loss, wide


def soft_targets(logits: Tensor, teacher: Tensor, temperature: float, sets: bool = False) -> Tensor:
    """T^2 times the divergence of the student's distribution from the teacher's: (B, C), (B, C) to ().

    Of label sets it is the divergence of each label's, mean over the labels.
    """
    with torch.autocast(device_type=logits.device.type, enabled=False):
        mine, theirs = (
            questions(wide(given) / temperature, sets).flatten(0, 1) for given in (logits, teacher.detach())
        )  # (B Q, K)
        student, wanted = functional.log_softmax(mine, dim=1), functional.log_softmax(theirs, dim=1)
        return functional.kl_div(student, wanted, reduction="batchmean", log_target=True) * temperature**2


class Distillation(CrossEntropy):
    """Cross entropy with the labels, and with the last exit's softened answers.

        L = (1 - lambda) CE + lambda T^2 KL( softmax(logits^M / T) || softmax(logits^m / T) )

    with m the student exit, M the teacher, T the `temperature`, and the divergence the mean over the batch. Of label
    sets, `labels` (B, C), the softmax is the sigmoid of each label and its complement, and both terms are means over
    the labels.

    Reference: Hinton et al., Distilling the Knowledge in a Neural Network, section 2; ACL, section 3.3. Differences:
    the divergence in place of the cross entropy with the soft targets. It is less by the teacher's entropy, which
    does not depend on the student, so that the gradient is the same and a perfect student has 0.

    Inputs: `output.logits` and `teacher.logits` (B, C), `labels` (B,). Needs nothing of the batch. Related: `acl-cl`
    learns from the teacher's vectors.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> student = ExitOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.eye(2))
    >>> teacher = ExitOutput(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]), torch.eye(2))
    >>> loss = Distillation(temperature=2.0, weight=0.5)(student, torch.tensor([0]), teacher)
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'distill': 0.4438}
    """

    hyper: ClassVar[tuple[str, ...]] = (*CrossEntropy.hyper, "temperature", "weight")
    taught: ClassVar[bool] = True

    def __init__(
        self,
        temperature: float = 2.0,
        weight: float = 0.5,
        label_smoothing: float = 0.0,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__(label_smoothing, class_weights)
        self.temperature = temperature
        self.weight = weight

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; with `weight` 0 it is the cross entropy, bit for bit."""
        entropy = self.cross_entropy(output, labels, weights)
        if self.weight == 0.0:
            return Loss(main=entropy, parts={"ce": entropy.detach()})
        teacher = check_teacher("distill", "logits", output, teacher)
        soft = soft_targets(output.logits, teacher.logits, self.temperature, sets=labels.dim() == 2)
        return Loss(
            main=entropy,
            auxiliary=soft,
            main_weight=1.0 - self.weight,
            auxiliary_weight=self.weight,
            parts={"ce": entropy.detach(), "distill": soft.detach()},
        )
