"""DECISIONS -> NUMBERS, PICTURES: between what the accuracy on all such texts lies, when it was measured on a few."""

from __future__ import annotations

from offramp.report.tag_metrics import Evaluated, TagEvaluation

CONFIDENCE = 0.95


def accuracy_between(evaluation: Evaluated) -> tuple[float, float] | None:
    """Wilson's interval, at `CONFIDENCE`; None of words with tags, which are not drawn one by one."""
    from scipy.stats import binomtest

    if isinstance(evaluation, TagEvaluation):
        return None
    right = round(evaluation.accuracy * evaluation.n)
    low, high = binomtest(right, evaluation.n).proportion_ci(CONFIDENCE, method="wilson")
    return float(low), float(high)


def in_words(evaluation: Evaluated) -> str:
    """The interval as `0.769 to 0.960 with 95 % confidence`; nothing where there is none."""
    found = accuracy_between(evaluation)
    return "" if found is None else f"{found[0]:.3f} to {found[1]:.3f} with {100 * CONFIDENCE:.0f} % confidence"
