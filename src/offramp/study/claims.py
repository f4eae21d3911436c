"""What is claimed, by the papers mostly, held against our results: whether it shows here, and how sure that is.

A claim is about two variants. Every task and seed gives a difference of runs that share them, the mean over the values
of a sweep; for a claim about a trend it gives the slope of the differences along the values, in points per step. The
paired Wilcoxon test asks whether these numbers lie on one side of nothing, and Student's t gives an interval for their
mean.

A study is a family: Holm's correction for its own claims decides whether one shows, so that its table says the same
wherever it stands. Where many studies are told together some would show by luck: what still stands after a correction
for all of their claims shows clearly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from offramp.report.grid import NOTHING, Cell, Grid, Row
from offramp.report.significance import LEVEL, Comparison, compare, holm, together
from offramp.study.kinds import Claim
from offramp.study.pairs import Shared, differences, shared, sweeps
from offramp.study.results import Found
from offramp.study.views import Shown, near

COVERED = 0.95
CLEARLY = " clearly"


@dataclass(frozen=True)
class Verdict:
    """A claim with what our results say of it."""

    shown: Shown
    claim: Claim
    numbers: tuple[float, ...]  # differences in points, or slopes in points per step
    found: Comparison  # corrected for the claims of its study
    among_all: float | None = None  # p after the correction for all claims that are told together

    @property
    def clear(self) -> bool:
        """Whether it stands among all claims too."""
        return self.found.significant and self.among_all is not None and self.among_all < LEVEL

    @property
    def words(self) -> str:
        """Whether it shows, for people."""
        if not self.found.enough:
            return "too few pairs to tell"
        clearly = CLEARLY if self.clear else ""
        if self.claim.holds == "not-below":
            wrong = self.found.significant and self.found.side < 0
            return f"contradicted{clearly}" if wrong else "not contradicted"
        if not self.found.significant:
            return "does not show"
        up = self.claim.holds in ("above", "rising")
        return f"shows{clearly}" if (self.found.side > 0) == up else f"the opposite shows{clearly}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the mean lies with the confidence `COVERED`; None for fewer than two numbers."""
        if len(self.numbers) < 2:
            return None
        from scipy.stats import t

        half = float(t.ppf((1 + COVERED) / 2, len(self.numbers) - 1)) * stdev(self.numbers) / len(self.numbers) ** 0.5
        middle = mean(self.numbers)
        return middle - half, middle + half

    @property
    def points(self) -> str:
        """The mean of the numbers, for people."""
        unit = " a step" if self.claim.holds in ("rising", "falling") else ""
        return f"{self.found.difference:+.1f}{unit}"

    def row(self, among_others: bool = False) -> Row:
        """For the table, of one study or of several."""
        study = self.shown.study
        place = f"{study.paper} {study.place}".strip() or study.name
        between = "" if self.interval is None else f" ({self.interval[0]:+.1f} to {self.interval[1]:+.1f})"
        pairs = str(len(self.numbers)) + ("" if self.whole else ", not all made")
        cells = [self.claim.says, self.words, self.points + between, pairs, _p(self.found.corrected)]
        cells += [_p(self.among_all)] * among_others
        return Row(place, tuple(map(Cell, cells)))

    @property
    def whole(self) -> bool:
        """Whether all runs of the two variants are there."""
        names = {self.claim.first, self.claim.second}
        made = sum(len(self.shown.of_variant(name)) for name in names)
        return made == sum(run.variant in names for run in self.shown.runs)


def judged(studies: Sequence[Shown]) -> list[Verdict]:
    """Every claim of some studies that has results on both sides."""
    found = [each for shown in studies for each in _of_study(shown)]
    if len(studies) < 2:
        return found
    among_all = holm({str(place): each.found.p for place, each in enumerate(found) if each.found.p is not None})
    return [replace(each, among_all=among_all.get(str(place))) for place, each in enumerate(found)]


def claims_table(studies: Sequence[Shown]) -> Grid | None:
    """A row per claim; None where there is nothing to tell."""
    rows = tuple(each.row(len(studies) > 1) for each in judged(studies))
    head = ("", "what is claimed", "here", "difference in points (95 % interval)", "pairs", "p, Holm")
    return Grid("", (*head, "p, all claims") if len(studies) > 1 else head, rows) if rows else None


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims show and how many do not, in a sentence."""
    counts = Counter(each.words.removesuffix(CLEARLY) for each in verdicts)
    clear = Counter(each.words.removesuffix(CLEARLY) for each in verdicts if each.clear)
    told = [
        f"{words} {count}" + (f" ({clear[words]} clearly)" if clear[words] else "")
        for words, count in counts.most_common()
    ]
    return f"Of {len(verdicts)} claims, by what our runs say of them: {', '.join(told)}."


def _of_study(shown: Shown) -> list[Verdict]:
    """The claims of one study, corrected for their number."""
    measured = ((claim, tuple(_numbers(shown, claim))) for claim in shown.study.claims)
    told = {str(place): each for place, each in enumerate(measured) if each[1]}
    found = together({place: compare(numbers, [0.0] * len(numbers)) for place, (_, numbers) in told.items()})
    return [Verdict(shown, *told[place], each) for place, each in found.items()]


def _p(chance: float | None) -> str:
    return NOTHING if chance is None else "< 0.001" if chance < 0.001 else f"{chance:.3f}"


def _numbers(shown: Shown, claim: Claim) -> list[float]:
    first, second = (_measured(shown, claim, name) for name in (claim.first, claim.second))
    if claim.holds not in ("rising", "falling"):
        return list(differences(first, second).values())
    both = [place for place in first if place in second]
    if claim.along == "values":
        gaps = ([first[place] - second[place] for place in sweep] for sweep in sweeps(both).values())
    else:
        ours, theirs = (_by_exit(shown, name) for name in (claim.first, claim.second))
        depths = {place: sorted(ours[place].keys() & theirs[place].keys()) for place in both}
        gaps = ([100 * (ours[place][d] - theirs[place][d]) for d in depths[place]] for place in both)
    return [_slope(gap) for gap in gaps if len(gap) > 1]


def _measured(shown: Shown, claim: Claim, variant: str) -> dict[Shared, float]:
    found = {shared(each.run): _number(shown, claim, each) for each in shown.of_variant(variant)}
    return {place: number for place, number in found.items() if number is not None}


def _number(shown: Shown, claim: Claim, each: Found) -> float | None:
    if claim.measure == "conflicts":
        share = each.record.get("angles", {}).get("after", {}).get("above")
        return None if share is None else 100 * float(share)
    if claim.measure == "near":
        return 100 * near(each) if "map" in each.record else None
    return shown.score(each, claim.metric, claim.exit)


def _by_exit(shown: Shown, variant: str) -> dict[Shared, dict[int, float]]:
    return {shared(each.run): each.by_exit for each in shown.of_variant(variant)}


def _slope(numbers: Sequence[float]) -> float:
    """Of the straight line through numbers that stand one step apart.

    >>> _slope([1.0, 3.0, 5.0])
    2.0
    """
    from statistics import linear_regression

    return linear_regression(range(len(numbers)), numbers).slope
