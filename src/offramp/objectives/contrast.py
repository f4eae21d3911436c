"""REPRESENTATION, LOGITS -> LOSS: the supervised contrast that SCL and ACL share."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.types import directions


def supervised_contrast(
    vectors: Tensor,
    labels: Tensor,
    temperature: float,
    denominator: str = "others",
    reduction: str = "sum",
) -> Tensor:
    """Each vector against the others: those of its label are drawn near, the rest pushed away.

        sum_i -1/|P(i)| sum_{j in P(i)} log[ exp(z_i.z_j/tau) / sum_{k in A(i)} exp(z_i.z_k/tau) ]

    with P(i) the other vectors of i's label and A(i) all others (SCL eq. 3), or all vectors, i itself
    included (`denominator="all"`, ACL eq. 1). An anchor without a positive contributes nothing; a batch
    without any anchor gives a zero that keeps the graph. `reduction="mean"` divides by the anchors counted.

    Inputs: `vectors` (V, D), not normalised; `labels` (V,). Similarities run in float32 or wider.
    """
    if denominator not in ("others", "all") or reduction not in ("sum", "mean"):
        raise ConfigError(
            f"`denominator` should be others or all, `reduction` sum or mean. Found `{denominator}` and `{reduction}`."
        )
    with torch.autocast(device_type=vectors.device.type, enabled=False):
        unit = directions(vectors)  # (V, D)
        similarity = unit @ unit.T / temperature  # (V, V)
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)  # (V, V)
        positives = (labels[:, None] == labels) & ~itself  # (V, V)
        pool = similarity.masked_fill(itself, float("-inf")) if denominator == "others" else similarity
        counts = positives.sum(dim=1)  # (V,)
        anchors = counts > 0  # (V,)
        if not bool(anchors.any()):
            return unit.sum() * 0.0
        # log-sum-exp only of rows that count: a lone vector's row is all -inf, whose gradient is NaN.
        normaliser = torch.logsumexp(pool[anchors], dim=1)  # (A,)
        attraction = (similarity * positives).sum(dim=1)[anchors] / counts[anchors]  # (A,)
        losses = normaliser - attraction  # (A,)
        return losses.sum() if reduction == "sum" else losses.mean()
