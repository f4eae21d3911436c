"""REPRESENTATION, LOGITS -> LOSS: a student's last states in the direction of its teacher's."""

from __future__ import annotations

from torch import Tensor

from offramp.types import directions


def cosine_distance(states: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """One minus the cosine of the student's and the teacher's state, mean over the tokens.

        L = 1/|tokens| sum_t 1 - cos(s_t, s_t')

    Reference: Sanh et al., DistilBERT (2019), section 2. Differences: there it is one of three terms of pre-training;
    here it stands beside the objective of the task and its soft targets.

    Inputs: (B, T, H) twice, (B, T) with 1 where there is a token. The teacher's states are detached.

    >>> import torch
    >>> own = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [9.0, 9.0]]])
    >>> cosine_distance(own, torch.tensor([[[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]), torch.tensor([[1, 1, 0]])).item()
    0.5
    """
    inside = mask.bool()  # (B, T)
    like = (directions(states[inside]) * directions(teacher.detach()[inside])).sum(dim=1)  # (tokens,)
    return (1.0 - like).mean()
