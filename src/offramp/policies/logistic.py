"""LOGITS SO FAR -> LEAVE OR STAY: the logistic regression behind the policies that are fitted.

It predicts whether an exit is right. The only file of the policies that needs more than torch, and only to fit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def fit_logistic(features: Tensor, right: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Weights (F,) and bias () such that sigmoid(features @ weights + bias) tells how probably each is right.

    `features` (N, F), dense or sparse, of like scale; `right` (N,) bool; `strength` is scikit-learn's C, the inverse of
    the weights' penalty. Where all or none are right there is nothing to tell apart: the weights are 0, and the
    bias is that of one more right and one more wrong.
    """
    count, hits = len(right), int(right.sum())
    if hits in (0, count):
        return torch.zeros(features.shape[1]), torch.tensor(math.log((hits + 1) / (count - hits + 1)))
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=10_000).fit(_plain(features.double().cpu()), right.cpu().numpy())
    return torch.from_numpy(model.coef_[0]), torch.from_numpy(model.intercept_)[0]


def _plain(features: Tensor) -> Any:
    """The features as scikit-learn takes them."""
    if not features.is_sparse:
        return features.numpy()
    from scipy.sparse import csr_matrix

    merged = features.coalesce()
    return csr_matrix((merged.values().numpy(), merged.indices().numpy()), shape=tuple(features.shape))


def standardised(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features, (N, F), in float64 with mean 0 and deviation 1 each; their means and deviations, 1 for a constant."""
    precise = features.double()
    mean, deviation = precise.mean(dim=0), precise.std(dim=0, correction=0)  # (F,)
    deviation = deviation.masked_fill(deviation < 1e-12 * (1.0 + mean.abs()), 1.0)
    return (precise - mean) / deviation, mean, deviation
