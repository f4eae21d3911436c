"""REPRESENTATION, LOGITS -> LOSS: cross-layer aligned contrastive learning (ACL-CL)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from offramp.objectives.acl import AlignedContrastive
from offramp.objectives.base import check_teacher
from offramp.types import ExitOutput


class CrossLayerContrastive(AlignedContrastive):
    """Cross entropy, and the contrast of a student exit's vectors with those of its teacher.

        L = (1 - lambda) CE + lambda SCL over the 2N + 2K vectors
            {(h_i^m, y_i)}, {(l_k^m, k)}, {(h_i^M, y_i)}, {(l_k^M, k)}

    with m the student exit and M the teacher, the last exit.

    Reference: ACL: Aligned Contrastive Learning Improves BERT and Multi-exit BERT Fine-tuning, section 4.4, where the
    teacher's parameters are fixed: its vectors are detached here. They are anchors too, as eq. 1 sums over all
    vectors; what that moves are the student's. Differences: those of `acl`; a class that is absent from the batch
    does have an anchor, as its two label embeddings are each other's positive. Label sets are as in `acl`.

    Inputs: as `acl`, and `teacher` with `representation` (B, D) and `label_embeddings` (C, D). Needs nothing of the
    batch: a text has its label embeddings and its teacher's vector as positives. Related: `acl`, `distill`.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> student = ExitOutput(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2), torch.eye(2))
    >>> loss = CrossLayerContrastive(temperature=1.0, weight=0.5)(student, torch.tensor([0]), student)
    >>> {name: round(value.item(), 4) for name, value in loss.parts.items()}
    {'ce': 0.6931, 'contrast': 7.0815}
    """

    taught: ClassVar[bool] = True

    def vectors(self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None) -> tuple[Tensor, Tensor]:
        """The student's texts and label embeddings and the teacher's, (2B + 2C, D), and their labels."""
        teacher = check_teacher("acl-cl", "representation", output, teacher)
        teacher = check_teacher("acl-cl", "label_embeddings", output, teacher)
        mine, whose = super().vectors(output, labels, None)
        theirs, _ = super().vectors(teacher, labels, None)
        return torch.cat([mine, theirs.detach()]), torch.cat([whose, whose])
