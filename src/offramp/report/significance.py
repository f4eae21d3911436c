"""DECISIONS -> NUMBERS, PICTURES: whether a difference between two methods is more than chance.

Scores are paired: the same task, the same seed, the same setting. The paired Wilcoxon signed-rank test (two-sided,
pairs without a difference left out, exact where they are few) asks whether one method tends to be above the other, and
Holm's correction holds the chance of any false alarm over several comparisons at `LEVEL`.

References: Wilcoxon, Individual Comparisons by Ranking Methods; Holm, A Simple Sequentially Rejective Multiple Test
Procedure; Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from statistics import mean, stdev

import numpy as np

LEVEL = 0.05
FEW = 13  # differences up to which all ways that their signs could have fallen are gone through


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of n scores."""

    mean: float
    deviation: float | None  # of a sample (n - 1); None for one score
    n: int

    @classmethod
    def of(cls, scores: Sequence[float]) -> Spread:
        """Of at least one score.

        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, deviation=1.0, n=3)
        """
        return cls(mean(scores), stdev(scores) if len(scores) > 1 else None, len(scores))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method against a baseline."""

    difference: float  # mean of method minus baseline
    pairs: int
    unequal: int  # pairs with a difference, which are all that the test looks at
    p: float | None  # None: too few of them for any result
    side: int  # where they lie by their ranks, as the test has it: 1 above, -1 below; one large pair may turn the mean
    needed: int  # pairs with a difference that could fall below `LEVEL` beside what else was tested
    corrected: float | None = None  # p after Holm's correction

    @property
    def enough(self) -> bool:
        """Whether the test could find anything at all, after the correction."""
        return self.unequal >= self.needed

    @property
    def significant(self) -> bool:
        """Whether the difference is more than chance."""
        return self.chance is not None and self.chance < LEVEL

    @property
    def chance(self) -> float | None:
        """p after the correction, where there was one."""
        return self.p if self.corrected is None else self.corrected

    @property
    def equation(self) -> str:
        """The same, for people; empty where nothing was tested."""
        told = "" if self.chance is None else written_p(self.chance)
        return f"p {told}" if told.startswith("<") else told and f"p = {told}"

    def words(self) -> str:
        """What was found, for people."""
        if not self.enough:
            return f"too few pairs for a test ({self.unequal} that differ, it takes {self.needed})"
        return self.equation if self.significant else f"no difference shown ({self.equation})"


def written_p(chance: float) -> str:
    """A p-value for people, with as many digits as tell on which side of `LEVEL` it lies.

    >>> written_p(0.00012), written_p(0.04999), written_p(0.0502), written_p(0.2)
    ('< 0.001', '0.04999', '0.0502', '0.200')
    """
    if chance < 0.001:
        return "< 0.001"
    digits = next(n for n in range(3, 17) if chance == LEVEL or float(f"{chance:.{n}f}") != LEVEL)
    return f"{chance:.{digits}f}"


def least_pairs(beside: Collection[float] = ()) -> int:
    """Pairs with a difference from which a two-sided test can fall below `LEVEL`, corrected beside other p-values.

    Pairs that all lie on one side have 2 / 2^n, the lowest p there is.

    >>> least_pairs(), least_pairs([0.5] * 4), least_pairs([0.001] * 4)
    (6, 8, 6)
    """
    others = {str(place): p for place, p in enumerate(beside)}
    return next(n for n in count(1) if holm({"it": 2.0 ** (1 - n), **others})["it"] < LEVEL)


def compare(method: Sequence[float], baseline: Sequence[float]) -> Comparison:
    """The paired test of two lists of scores in the same order.

    >>> compare([2.0, 3.0, 4.5, 5.5, 6.0, 7.0], [1.0, 2.5, 3.0, 5.3, 5.9, 6.3]).p
    0.03125
    """
    from scipy.stats import rankdata

    # Scores are ratios: what should be a tie may differ in its last bits.
    differences = [round(a - b, 10) for a, b in zip(method, baseline, strict=True)]
    unequal = [difference for difference in differences if difference]
    average = mean(differences) if differences else math.nan
    ranked = sum(math.copysign(rank, own) for rank, own in zip(rankdata(np.abs(unequal)), unequal, strict=True))
    side = (ranked > 0) - (ranked < 0)
    needed = least_pairs()
    chance = _chance(tuple(unequal)) if len(unequal) >= needed else None
    return Comparison(average, len(differences), len(unequal), chance, side, needed)


@cache
def _chance(unequal: tuple[float, ...]) -> float:
    """The p-value of the signed-rank test; a page asks for the same one in several places."""
    from scipy.stats import permutation_test, rankdata, wilcoxon

    if len(unequal) > FEW:
        return float(wilcoxon(unequal).pvalue)
    # What `wilcoxon` does with ties in as few, but all ways at once: it takes a second to rank each of them anew.
    signed = np.copysign(rankdata(np.abs(unequal)), unequal)  # (n,)
    every = permutation_test((signed,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    return float(every.pvalue)


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Each p-value corrected for all of them: the k-th smallest of m times m - k + 1, never below the one before.

    >>> {name: round(p, 6) for name, p in holm({"a": 0.01, "b": 0.04, "c": 0.03}).items()}
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    found: dict[str, float] = {}
    highest = 0.0
    for place, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        highest = max(highest, min(1.0, (len(chances) - place) * chances[name]))
        found[name] = highest
    return {name: found[name] for name in chances}


def against(baseline: Sequence[float | None], methods: Mapping[str, Sequence[float | None]]) -> dict[str, Comparison]:
    """Every method against the baseline with Holm's correction; a place where one of the two is None is no pair."""
    found: dict[str, Comparison] = {}
    for name, scores in methods.items():
        pairs = [(a, b) for a, b in zip(scores, baseline, strict=True) if a is not None and b is not None]
        found[name] = compare([a for a, _ in pairs], [b for _, b in pairs])
    return together(found)


def together(found: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Comparisons that are told together, each corrected for all of them that a test can be made of."""
    chances = {name: each.p for name, each in found.items() if each.p is not None}
    corrected = holm(chances)
    return {
        name: replace(
            each,
            corrected=corrected.get(name),
            needed=least_pairs([p for other, p in chances.items() if other != name]),
        )
        for name, each in found.items()
    }
