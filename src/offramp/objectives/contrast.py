"""REPRESENTATION, LOGITS -> LOSS: the supervised contrast that SCL and ACL share."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.types import directions


def overlaps(labels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """How much the labels of each two of V vectors have in common, (V, V), from 0 to 1: (V,) or, of sets, (V, C).

    Of single labels 1 where they are the same; of sets the Jaccard index |A and B| / |A or B|, which is the same for
    sets of one label. An empty set has nothing in common with any.

    >>> overlaps(torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 0]])).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if labels.dim() == 1:
        return (labels[:, None] == labels).to(dtype)
    has = labels.to(dtype)  # (V, C)
    both, size = has @ has.T, has.sum(dim=1)  # (V, V), (V,)
    return both / (size[:, None] + size - both).clamp(min=1.0)


def spread(labels: Tensor, most: int) -> Tensor:
    """Rows with at most `most` of each label, those of a label spread evenly over it: (V,) to (V',), in their order.

    >>> spread(torch.tensor([0, 0, 1, 0, 0, 1]), most=2).tolist()
    [1, 2, 4, 5]
    """
    seen = torch.nn.functional.one_hot(labels).cumsum(dim=0)  # (V, C), of each label up to and with each row
    before, total = seen.gather(1, labels[:, None])[:, 0] - 1, seen[-1:].flatten()[labels]  # (V,), of the same label
    share = total.clamp(max=most)  # (V,)
    return ((before + 1) * share // total > before * share // total).nonzero()[:, 0]


def supervised_contrast(
    vectors: Tensor,
    labels: Tensor,
    temperature: float,
    denominator: str = "others",
    reduction: str = "sum",
) -> Tensor:
    """Each vector against the others: those of its label are drawn near, the rest pushed away.

        sum_i -1/W(i) sum_{j != i} w_ij log[ exp(z_i.z_j/tau) / sum_{k in A(i)} exp(z_i.z_k/tau) ],   W(i) = sum_j w_ij

    with w_ij what the labels of i and j have in common (`overlaps`) and A(i) all others (SCL eq. 3), or all vectors, i
    itself included (`denominator="all"`, ACL eq. 1). Of single labels w_ij is 0 or 1 and W(i) counts the positives. An
    anchor without a positive contributes nothing; a batch without any anchor gives a zero that keeps the graph.
    `reduction="mean"` divides by the anchors counted.

    Inputs: `vectors` (V, D), not normalised; `labels` (V,), or (V, C) of sets. Similarities run in float32 or wider.
    """
    if denominator not in ("others", "all") or reduction not in ("sum", "mean"):
        raise ConfigError(
            f"`denominator` should be others or all, `reduction` sum or mean. Found `{denominator}` and `{reduction}`."
        )
    with torch.autocast(device_type=vectors.device.type, enabled=False):
        unit = directions(vectors)  # (V, D)
        similarity = unit @ unit.T / temperature  # (V, V)
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)  # (V, V)
        positives = overlaps(labels, similarity.dtype).masked_fill(itself, 0.0)  # (V, V)
        pool = similarity.masked_fill(itself, float("-inf")) if denominator == "others" else similarity
        shares = positives.sum(dim=1)  # (V,)
        anchors = shares > 0  # (V,)
        if not bool(anchors.any()):
            return unit.sum() * 0.0
        # log-sum-exp only of rows that count: a lone vector's row is all -inf, whose gradient is NaN.
        normaliser = torch.logsumexp(pool[anchors], dim=1)  # (A,)
        attraction = (similarity * positives).sum(dim=1)[anchors] / shares[anchors]  # (A,)
        losses = normaliser - attraction  # (A,)
        return losses.sum() if reduction == "sum" else losses.mean()
