"""LOGITS SO FAR -> LEAVE OR STAY: what k harms among n texts say of the risk, exactly.

A harm is a 0/1 loss, so the number of harms among n exchangeable texts is binomial and no approximation is needed:

    p-value of "the risk is above epsilon":      p = P[Bin(n, epsilon) <= k]
    upper bound on the risk (Clopper-Pearson):   the risk u at which P[Bin(n, u) <= k] = delta

The two agree: p <= delta exactly where the bound is at most epsilon.

Reference: C. Clopper, E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26 (1934).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def p_values(harms: ArrayLike, texts: int, epsilon: float) -> NDArray[np.float64]:
    """How likely so few harms would be if the risk were `epsilon`; small speaks for a lower risk.

    >>> p_values([0, 3], 299, 0.01).round(3)
    array([0.05 , 0.649])
    """
    return np.asarray(_stats().binom.cdf(np.asarray(harms), texts, epsilon), dtype=np.float64)


def upper_bound(harms: int, texts: int, delta: float) -> float:
    """The risk that so few harms leave possible, but for a chance of `delta`.

    >>> round(upper_bound(0, 299, 0.05), 4), round(upper_bound(3, 299, 0.05), 4)
    (0.01, 0.0257)
    """
    return 1.0 if harms >= texts else float(_stats().beta.ppf(1 - delta, harms + 1, texts - harms))


def needed(epsilon: float, delta: float) -> int:
    """The fewest texts with which no harm at all certifies `epsilon`: ceil(log delta / log(1 - epsilon)).

    >>> needed(0.01, 0.05), needed(0.02, 0.1)
    (299, 114)
    """
    texts = max(1, math.ceil(math.log(delta) / math.log1p(-epsilon)) - 1)
    while p_values(0, texts, epsilon) > delta:  # the same rounding as in the test itself
        texts += 1
    return texts


def fixed_sequence(p: NDArray[np.float64], delta: float) -> NDArray[np.int64]:
    """Places of the hypotheses that are rejected: each at level `delta`, in order, up to the first that is not.

    The chance that any true one is among them is at most `delta`, however many there are, because nothing is tested
    after the first true one that survives. MAPIE does the testing.
    """
    from mapie.risk_control import control_fwer  # for calibration only, as scipy

    return np.asarray(control_fwer(p, delta, "fixed_sequence"), dtype=np.int64)


def _stats() -> Any:
    from scipy import stats  # a second to import, and for calibration only

    return stats
