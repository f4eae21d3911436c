"""REPRESENTATION, LOGITS -> LOSS: a student layer near a teacher layer."""

from __future__ import annotations

from torch import Tensor

from offramp.types import wide


def hidden_distance(states: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """The mean squared difference of the states of the tokens; also for embeddings.

        L_hidn = MSE(S, S'),   L_embd = MSE(E, E')

    Reference: Jiao et al., TinyBERT (2020), eq. 8 and 9. Differences: student and teacher are equally wide, so that
    nothing is projected; the padding does not count.

    Inputs: (B, T, H) twice, (B, T) with 1 where there is a token. The teacher's is detached.

    >>> import torch
    >>> own = torch.tensor([[[1.0, 0.0], [9.0, 9.0]]])
    >>> hidden_distance(own, torch.tensor([[[0.0, 3.0], [0.0, 0.0]]]), torch.tensor([[1, 0]])).item()
    5.0
    """
    inside = mask.bool()  # (B, T)
    return (wide(states[inside]) - wide(teacher.detach()[inside])).square().mean()


def attention_distance(scores: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """The mean squared difference of the attention scores, over the heads and the pairs of tokens.

        L_attn = 1/h sum_i MSE(A_i, A_i')

    with A the scores before the softmax. Reference: TinyBERT, eq. 7. Differences: the padding does not count.

    Inputs: (B, heads, T, T) twice, (B, T). The teacher's is detached.

    >>> import torch
    >>> own, teacher = torch.zeros(1, 2, 2, 2), torch.tensor([[[[1.0, 8.0], [8.0, 8.0]], [[3.0, 8.0], [8.0, 8.0]]]])
    >>> attention_distance(own, teacher, torch.tensor([[1, 0]])).item()
    5.0
    """
    inside = mask.bool()  # (B, T)
    pairs = inside[:, None, :, None] & inside[:, None, None, :]  # (B, 1, T, T)
    apart = (wide(scores) - wide(teacher.detach())).square()  # (B, heads, T, T)
    return apart.masked_select(pairs).mean()
