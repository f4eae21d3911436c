"""What is claimed, by the papers mostly, held against our results: whether it shows here, and how sure that is.

A claim is about two variants. Every task and seed gives a difference of runs that share them, the mean over the values
of a sweep; for a claim about a trend it gives the slope of the differences along the values, in points per step, and
for one about how much the values matter the difference of how far the scores of the two reach over them. The
paired Wilcoxon test asks whether these numbers lie on one side of nothing, and Student's t gives an interval for their
mean. A claim that one stays `within` a deviation of the other is no test: it holds on every task, or it does not.
A task that neither variant learns hardly tells the two apart: it is named, and its pairs count like the others.

A study is a family: Holm's correction for its own claims decides whether one shows, so that its table says the same
wherever it stands. Where many studies are told together some would show by luck: what still stands after a correction
for all of their claims shows clearly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from offramp.report.grid import NOTHING, Cell, Grid, Row
from offramp.report.significance import LEVEL, Comparison, Spread, compare, holm, together, written_p
from offramp.study.kinds import Claim
from offramp.study.learnt import unlearnt
from offramp.study.pairs import Draw, Shared, differences, shared, sweeps
from offramp.study.results import Found
from offramp.study.views import Shown, near

COVERED = 0.95
CLEARLY = " clearly"
WITHIN = "within"


@dataclass(frozen=True)
class Verdict:
    """A claim with what our results say of it."""

    shown: Shown
    claim: Claim
    numbers: tuple[float, ...]  # differences in points, or slopes in points per step; above 0 where the claim says so
    draws: tuple[Draw, ...]  # task and seed of each
    found: Comparison  # corrected for the claims of its study
    apart: tuple[str, ...] = ()  # tasks that a claim of nearness does not hold on
    among_all: float | None = None  # p after the correction for all claims that are told together

    @property
    def of_paper(self) -> bool:
        """Whether a paper says so."""
        return bool(self.shown.study.paper) and not self.claim.own

    @property
    def clear(self) -> bool:
        """Whether it stands among all claims too."""
        return self.found.significant and self.among_all is not None and self.among_all < LEVEL

    @property
    def words(self) -> str:
        """Whether it shows, for people."""
        if self.claim.holds == WITHIN:
            return self._within
        if not self.found.enough:
            return "too few pairs to tell"
        clearly = CLEARLY if self.clear else ""
        if self.claim.holds == "not-below":
            wrong = self.found.significant and self.found.side < 0
            return f"contradicted{clearly}" if wrong else "not contradicted"
        if not self.found.significant:
            return "does not show"
        return f"shows{clearly}" if self.found.side > 0 else f"the opposite shows{clearly}"

    @property
    def _within(self) -> str:
        """Whether it stays within a deviation, of which there is none with one seed."""
        seeds = Counter(task for task, _ in self.draws)
        if min(seeds.values()) < 2:
            return "too few pairs to tell"
        if self.apart:
            return f"does not hold: {', '.join(self.apart)}"
        return "holds on every task" if set(seeds) == set(self.shown.tasks) else f"holds on {', '.join(seeds)} so far"

    @property
    def told(self) -> str:
        """The same, with the tasks that neither of the two learns."""
        return f"{self.words} (not learnt: {', '.join(self.unlearnt)})" if self.unlearnt else self.words

    @property
    def unlearnt(self) -> list[str]:
        """The tasks that neither of the two learns."""
        return unlearnt(self.shown, (self.claim.first, self.claim.second))

    @property
    def empty(self) -> bool:
        """Whether no task of it was learnt."""
        return bool(self.unlearnt) and {task for task, _ in self.draws} <= set(self.unlearnt)

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
        place = f"{study.paper} {study.place}" if self.of_paper else study.name
        between = "" if self.interval is None else f" ({self.interval[0]:+.1f} to {self.interval[1]:+.1f})"
        pairs = _counted(self.draws) + ("" if self.whole else "; not all made")
        cells = [self.claim.says, self.told, self.points + between, pairs, _p(self.found.corrected)]
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
    """How many claims show and how many do not, in a sentence for those of the papers and one for our own."""
    ours = [each for each in verdicts if not each.of_paper]
    theirs = [each for each in verdicts if each.of_paper]
    told = (("of the papers", theirs), ("of our own", ours))
    return " ".join(_counts(whose, mine) for whose, mine in told if mine)


def _counts(whose: str, verdicts: Sequence[Verdict]) -> str:
    by_words: dict[str, list[Verdict]] = defaultdict(list)
    for each in verdicts:
        by_words[each.words.removesuffix(CLEARLY)].append(each)
    told = [_told(words, by_words[words]) for words in sorted(by_words, key=lambda words: -len(by_words[words]))]
    return f"Of {len(verdicts)} claims {whose}, by what our runs say of them: {', '.join(told)}."


def _told(words: str, verdicts: Sequence[Verdict]) -> str:
    """How many claims end so, how many of those that are more than chance are so among all claims, and how many rest on
    nothing that was learnt.
    """
    clear, empty = sum(each.clear for each in verdicts), sum(each.empty for each in verdicts)
    more = [f"{clear or 'none'} clearly"] * any(
        each.among_all is not None and each.found.significant for each in verdicts
    )
    more += [f"{empty} on tasks that were not learnt"] * bool(empty)
    return f"{words} {len(verdicts)}" + (f" ({', '.join(more)})" if more else "")


def _of_study(shown: Shown) -> list[Verdict]:
    """The claims of one study, corrected for the number of those that are tested."""
    measured = [(claim, _numbers(shown, claim)) for claim in shown.study.claims]
    told = {str(place): each for place, each in enumerate(measured) if each[1]}
    compared = {place: compare(list(found.values()), [0.0] * len(found)) for place, (_, found) in told.items()}
    # What is no test has no p.
    untested = {place: replace(compared[place], p=None) for place, (claim, _) in told.items() if claim.holds == WITHIN}
    found_of = untested | together({place: each for place, each in compared.items() if place not in untested})
    return [
        Verdict(shown, claim, tuple(found.values()), tuple(found), found_of[place], _apart(shown, claim))
        for place, (claim, found) in told.items()
    ]


def _apart(shown: Shown, claim: Claim) -> tuple[str, ...]:
    """Tasks on which the mean of the first is below that of the second by more than the deviation of the second."""
    if claim.holds != WITHIN:
        return ()
    first, second = (_by_task(shown, claim, name) for name in (claim.first, claim.second))
    both = [task for task in first if task in second]
    return tuple(t for t in both if second[t].mean - first[t].mean > (second[t].deviation or 0.0))


def _by_task(shown: Shown, claim: Claim, variant: str) -> dict[str, Spread]:
    """Mean and deviation over the seeds of every task, values averaged."""
    found = _measured(shown, claim, variant)
    scores: dict[str, list[float]] = defaultdict(list)
    for (task, _), sweep in sweeps(found).items():
        scores[task].append(mean(found[place] for place in sweep))
    return {task: Spread.of(own) for task, own in scores.items()}


def _counted(draws: Sequence[Draw]) -> str:
    """How many pairs there are, by task where some tasks have more than others.

    >>> _counted([("a", 0), ("b", 0)]), _counted([("a", 0), ("a", 1), ("b", 0)])
    ('2', '3 (2 a, 1 b)')
    """
    counts = Counter(task for task, _ in draws)
    parts = ", ".join(f"{count} {task}" for task, count in counts.items())
    return str(len(draws)) + (f" ({parts})" if len(set(counts.values())) > 1 else "")


def _p(chance: float | None) -> str:
    return NOTHING if chance is None else written_p(chance)


def _numbers(shown: Shown, claim: Claim) -> dict[Draw, float]:
    """Of every task and seed, above 0 on the side of the claim: the difference in points, or the slope per step."""
    if claim.holds == "falling":
        return {draw: -slope for draw, slope in _numbers(shown, replace(claim, holds="rising")).items()}
    first, second = (_measured(shown, claim, name) for name in (claim.first, claim.second))
    if claim.measure == "range":
        swept = sweeps(place for place in first if place in second).items()
        return {draw: _range(first, sweep) - _range(second, sweep) for draw, sweep in swept if len(sweep) > 1}
    if claim.holds not in ("rising", "falling"):
        return differences(first, second)
    both = sweeps(place for place in first if place in second)
    if claim.along == "values":
        gaps = {draw: [first[place] - second[place] for place in sweep] for draw, sweep in both.items()}
        return {draw: _slope(gap) for draw, gap in gaps.items() if len(gap) > 1}
    ours, theirs = (_by_exit(shown, name) for name in (claim.first, claim.second))
    slopes = {draw: [_along_depths(ours[place], theirs[place]) for place in sweep] for draw, sweep in both.items()}
    return {draw: mean(known) for draw, found in slopes.items() if (known := [s for s in found if s is not None])}


def _range(scores: Mapping[Shared, float], sweep: Sequence[Shared]) -> float:
    """How far the scores of a sweep reach."""
    mine = [scores[place] for place in sweep]
    return max(mine) - min(mine)


def _along_depths(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The slope of the differences of two runs; None where they share one depth at most."""
    depths = sorted(ours.keys() & theirs.keys())
    return _slope([100 * (ours[depth] - theirs[depth]) for depth in depths]) if len(depths) > 1 else None


def _measured(shown: Shown, claim: Claim, variant: str) -> dict[Shared, float]:
    found = {shared(each.run): _number(shown, claim, each) for each in shown.of_variant(variant)}
    return {place: number for place, number in found.items() if number is not None}


def _number(shown: Shown, claim: Claim, each: Found) -> float | None:
    if claim.measure == "conflicts":
        share = each.record.get("angles", {}).get("after", {}).get("above")
        return None if share is None else 100 * float(share)
    if claim.measure == "near":
        return 100 * near(each) if "map" in each.record else None
    off = shown.score(each, claim.beyond) if claim.beyond else 0.0
    return shown.score(each, claim.metric, claim.exit) - off


def _by_exit(shown: Shown, variant: str) -> dict[Shared, dict[int, float]]:
    return {shared(each.run): each.by_exit for each in shown.of_variant(variant)}


def _slope(numbers: Sequence[float]) -> float:
    """Of the straight line through numbers that stand one step apart.

    >>> _slope([1.0, 3.0, 5.0])
    2.0
    """
    from statistics import linear_regression

    return linear_regression(range(len(numbers)), numbers).slope
