"""Means and deviations by hand, the paired test against scipy and against all sign flips, Holm by its definition."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from offramp.report.significance import LEVEL, Comparison, Spread, against, compare, holm, least_pairs


def flips(differences: list[float]) -> float:
    """The two-sided p-value from every way the signs could have fallen."""
    ranks = stats.rankdata(np.abs(differences))
    observed = sum(rank for rank, each in zip(ranks, differences, strict=True) if each > 0)
    middle = ranks.sum() / 2
    sums = [
        sum(rank for rank, up in zip(ranks, signs, strict=True) if up)
        for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    return sum(abs(each - middle) >= abs(observed - middle) - 1e-9 for each in sums) / len(sums)


def test_mean_and_deviation_are_those_of_a_sample() -> None:
    found = Spread.of([3.0, 5.0, 10.0])
    assert (found.mean, found.n) == (6.0, 3)
    assert found.deviation == pytest.approx(math.sqrt((9 + 1 + 16) / 2), rel=1e-12)
    assert Spread.of([2.0]).deviation is None


@pytest.mark.parametrize("seed", range(5))
def test_few_pairs_are_tested_exactly(seed: int) -> None:
    chance = random.Random(seed)
    method, baseline = ([chance.random() for _ in range(9)] for _ in range(2))
    differences = [a - b for a, b in zip(method, baseline, strict=True)]
    assert compare(method, baseline).p == pytest.approx(flips(differences), abs=1e-12)


def test_ties_in_few_pairs_are_tested_exactly() -> None:
    differences = [1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 1.0]
    assert compare(differences, [0.0] * 7).p == pytest.approx(flips(differences), abs=1e-12)


@pytest.mark.parametrize("pairs", [20, 80])
def test_many_pairs_give_the_p_value_of_scipy(pairs: int) -> None:
    chance = random.Random(pairs)
    method = [chance.random() + 0.2 for _ in range(pairs)]
    baseline = [chance.random() for _ in range(pairs)]
    assert compare(method, baseline).p == pytest.approx(stats.wilcoxon(method, baseline).pvalue, rel=1e-6)


def test_the_difference_is_the_mean_of_the_differences() -> None:
    assert compare([1.0, 2.0, 4.0], [0.0, 3.0, 1.0]).difference == pytest.approx(1.0, abs=1e-12)


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    found = compare([2.0] * 5, [1.0] * 5)
    assert (found.p, found.enough, found.significant) == (None, False, False)
    assert found.words() == "too few pairs for a test (5 that differ, it takes 6)"


@pytest.mark.parametrize("among", [1, 5, 8])
def test_the_least_number_of_pairs_is_the_first_that_can_be_significant(among: int) -> None:
    least = least_pairs([1.0] * (among - 1))
    for pairs, enough in ((least - 1, False), (least, True)):
        zeros = [0.0] * pairs
        # Nothing to be found in the others, which have twice the pairs, up and down.
        others = {str(n): [1.0, -1.0] * pairs for n in range(among - 1)}
        found = against([*zeros, *zeros], {"it": [1.0] * pairs + [None] * pairs, **others})["it"]
        assert (found.enough, found.significant) == (enough, enough)
    assert found.corrected == pytest.approx(among * 2 / 2**pairs)


def test_what_others_found_leaves_enough_pairs_for_a_null_result() -> None:
    around = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]
    methods = {"up": [1.0 + k for k in range(12)], "around": [*around, *[None] * 6]}
    found = against([0.0] * 12, methods)["around"]  # after `up`, Holm tests it at the whole level
    assert (found.enough, found.significant) == (True, False)
    least = against([0.0] * 12, {**methods, "around": [*map(abs, around), *[None] * 6]})["around"]
    assert least.significant


def test_the_side_is_that_of_the_ranks_which_one_large_pair_does_not_turn() -> None:
    found = compare([-1.0 - k / 100 for k in range(11)] + [100.0], [0.0] * 12)
    assert found.significant
    assert found.difference > 0
    assert found.side == -1
    assert (compare([1.0, -1.0], [0.0, 0.0]).side, compare([], []).side) == (0, 0)


def test_too_few_pairs_for_so_many_comparisons_are_no_null_result() -> None:
    up, around = [1.0] * 7, [1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0]
    found = against([0.0] * 7, {"up": up, **{str(n): around for n in range(5)}})
    assert found["up"].words() == "too few pairs for a test (7 that differ, it takes 8)"


def test_pairs_without_a_difference_do_not_count() -> None:
    found = compare([1.0] * 20 + [2.0] * 3, [1.0] * 20 + [1.0] * 3)
    assert (found.pairs, found.unequal, found.enough) == (23, 3, False)


def test_rounding_noise_is_no_difference() -> None:
    assert compare([0.1 + 0.2] * 9, [0.3] * 9).unequal == 0


def test_a_null_result_is_told_as_one() -> None:
    found = compare([1.0, 0.0, 2.0, 0.0, 3.0, 0.0], [0.0, 1.1, 0.0, 2.1, 0.0, 3.1])
    assert not found.significant
    assert found.words().startswith("no difference shown (p = ")


@pytest.mark.parametrize("seed", range(6))
def test_holm_rejects_what_its_steps_reject(seed: int) -> None:
    chance = random.Random(seed)
    chances = {f"m{k}": chance.random() ** 3 * 0.1 for k in range(6)}
    rejected = set()
    for place, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        if chances[name] > LEVEL / (len(chances) - place):
            break
        rejected.add(name)
    assert {name for name, p in holm(chances).items() if p <= LEVEL} == rejected


def test_holm_never_lowers_a_p_value_and_keeps_their_order() -> None:
    chances = {"a": 0.04, "b": 0.9, "c": 0.001, "d": 0.04}
    found = holm(chances)
    assert list(found) == list(chances)
    assert all(chances[name] <= found[name] <= 1.0 for name in chances)
    assert found["c"] <= found["a"] == found["d"] <= found["b"]


def test_a_place_where_one_is_missing_is_no_pair_and_all_are_corrected_together() -> None:
    baseline = [0.0, None, *[0.0] * 8]
    methods = {"up": [1.0 + k / 10 for k in range(10)], "gone": [None] * 10}
    found = against(baseline, methods)
    assert found["up"].pairs == 9
    assert found["up"].corrected == found["up"].p  # the other has no p-value to be corrected with
    assert found["gone"] == Comparison(found["gone"].difference, 0, 0, None, 0, least_pairs())
