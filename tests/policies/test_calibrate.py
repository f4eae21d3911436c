"""Bounds against closed forms and sums, paths and choices against slow loops."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.policies.synthetic import EXITS, LAYERS, SCORERS, STATEFUL, STATELESS, Population

from offramp.errors import ConfigError, DataError
from offramp.policies.bounds import fixed_sequence, needed, p_values, upper_bound
from offramp.policies.calibrate import calibrate, calibrate_best
from offramp.policies.evidence import Evidence, differs, drops, evidence
from offramp.policies.path import path
from offramp.policies.terms import Terms, divide, texts_needed

few = settings(max_examples=50, deadline=None)
rates = st.floats(0.005, 0.5)
levels = st.floats(0.01, 0.3)


@pytest.fixture(scope="module")
def pool() -> Population:
    return Population(12_000, seed=3)


def some(pool: Population, texts: int, seed: int = 0) -> tuple[NDArray[np.int64], Evidence]:
    """A draw of texts, and the evidence on them."""
    rows = np.random.default_rng(seed).choice(pool.texts, texts, replace=False)
    return rows, evidence(drops(pool.right)[:, rows], EXITS, LAYERS, right=pool.right[:, rows])


# --- bounds


@few
@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99))
def test_a_p_value_is_the_sum_of_binomial_terms(texts: int, harms: int, percent: int) -> None:
    risk = Fraction(percent, 100)
    terms = (math.comb(texts, k) * risk**k * (1 - risk) ** (texts - k) for k in range(min(harms, texts) + 1))
    assert p_values(harms, texts, percent / 100) == pytest.approx(float(sum(terms)), rel=1e-9)


@few
@given(st.integers(1, 500), st.floats(0, 1), rates, levels)
def test_the_test_rejects_exactly_where_the_bound_is_low_enough(
    texts: int, share: float, epsilon: float, delta: float
) -> None:
    harms = int(share * texts)
    p, bound = float(p_values(harms, texts, epsilon)), upper_bound(harms, texts, delta)
    assert bound >= harms / texts
    if abs(p - delta) > 1e-9:
        assert (p <= delta) == (bound <= epsilon)


@few
@given(rates, levels)
def test_the_fewest_texts_are_the_closed_form_and_one_less_is_too_few(epsilon: float, delta: float) -> None:
    found = needed(epsilon, delta)
    assert found == pytest.approx(max(1, math.log(delta) / math.log(1 - epsilon)), abs=1 + 1e-6)
    assert p_values(0, found, epsilon) <= delta
    assert found == 1 or p_values(0, found - 1, epsilon) > delta


@few
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), levels)
def test_the_sequence_ends_at_the_first_that_is_not_rejected(p: list[float], delta: float) -> None:
    first = next((place for place, value in enumerate(p) if value > delta), len(p))
    assert fixed_sequence(np.array(p), delta).tolist() == list(range(first))


def test_neither_is_loaded_before_it_is_used() -> None:
    code = "import sys, offramp.policies.certificate; print({'mapie', 'scipy', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- harm


def test_a_drop_is_right_at_the_last_exit_and_wrong_here() -> None:
    right = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    assert drops(right).tolist() == [[False] * 4, [True, False, False, False]]
    assert drops(torch.tensor(right)).tolist() == drops(right).tolist()


@few
@given(st.integers(0, 1000))
def test_the_share_of_drops_is_at_least_what_accuracy_loses(seed: int) -> None:
    right = np.random.default_rng(seed).random((4, 30)) < 0.7
    assert (drops(right).mean(axis=1) >= right[-1].mean() - right[:-1].mean(axis=1) - 1e-12).all()


def test_a_difference_is_any_other_answer_than_the_last() -> None:
    assert differs(np.array([[1, 2, 0], [1, 0, 0]])).tolist() == [[False, True, False]]


# --- the path


def slow_thresholds(scores: NDArray[Any], harm: NDArray[Any], rate: float) -> list[float]:
    """For one rate: at each exit the lowest score of which it holds, found by trying each; infinite for none."""
    here, found = set(range(scores.shape[1])), []
    for row, harmed in zip(scores, harm, strict=True):
        lowest = math.inf
        for cut in sorted({row[text] for text in here}):
            leaving = [text for text in here if row[text] >= cut]
            if sum(harmed[text] for text in leaving) <= rate * len(leaving):
                lowest = cut
                break
        found.append(lowest)
        here -= {text for text in here if row[text] >= lowest}
    return found


tables = st.tuples(st.integers(1, 4), st.integers(1, 25), st.integers(0, 10_000), st.booleans())


def drawn(table: tuple[int, int, int, bool]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Scores and harm of some texts at some exits; with ties where asked for."""
    exits, texts, seed, tied = table
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 4, (exits, texts)) if tied else draw.normal(size=(exits, texts))
    return scores.astype(np.float32), draw.random((exits, texts)) < 0.3


@few
@given(tables, st.floats(0, 1))
def test_a_rate_has_the_thresholds_of_a_slow_search(table: tuple[int, int, int, bool], rate: float) -> None:
    scores, harm = drawn(table)
    here = np.ones(scores.shape[1], dtype=bool)
    found, truth = path(scores, harm, np.array([rate]))[-1], slow_thresholds(scores, harm, rate)
    for row, mine, slow in zip(scores, found, truth, strict=True):
        # A threshold may lie anywhere between two scores: who leaves is what counts.
        assert (here & (row >= mine)).tolist() == (here & (row >= slow)).tolist()
        here &= row < mine


@few
@given(tables)
def test_thresholds_only_fall_along_the_path_from_nobody_to_everybody(table: tuple[int, int, int, bool]) -> None:
    scores, harm = drawn(table)
    points = path(scores, harm)
    assert np.isposinf(points[0]).all()
    assert (points[1:] <= points[:-1]).all()
    assert (points[1:] < points[:-1]).any(axis=1).all()  # and no point stands twice
    assert (scores[0] >= points[-1, 0]).all()


@few
@given(tables)
def test_a_threshold_lies_apart_from_every_score_but_the_lowest(table: tuple[int, int, int, bool]) -> None:
    # A score that rounds otherwise in another batch or engine must not change sides.
    scores, harm = drawn(table)
    points = path(scores, harm)
    touching = (scores[None] == points[:, :, None]).any(axis=2)  # (P, E)
    assert (points == scores.min(axis=1))[touching].all()


@few
@given(tables, st.floats(0.05, 0.5))
def test_no_step_lets_more_than_its_share_of_texts_through(table: tuple[int, int, int, bool], step: float) -> None:
    scores, harm = drawn((*table[:3], False))
    through = (scores[None] >= path(scores, harm, step=step)[:, :, None]).sum(axis=2)  # (P, E)
    assert np.diff(through, axis=0).max(initial=0) <= math.ceil(max(1, step * scores.shape[1])) + 1


def test_a_text_without_a_score_never_leaves_and_an_endless_score_does() -> None:
    scores = np.array([[math.nan, math.inf, 0.5, 0.4, -math.inf] * 60])
    harm = np.zeros((1, 300), dtype=bool)
    kept = calibrate(scores, evidence(harm, [1], 2), Terms(epsilon=0.1))
    assert kept.thresholds == {1: pytest.approx(0.4)}
    assert kept.harms == 0
    chosen = divide(300, kept.terms)[1]
    leaving = (scores[0, chosen] >= 0.39).sum()
    assert kept.mean_depth == pytest.approx((leaving + 2 * (len(chosen) - leaving)) / len(chosen))


# --- the division


@few
@given(st.integers(2, 400), st.integers(0, 5), st.floats(0.1, 0.9))
def test_every_text_is_in_one_part_and_the_seed_decides(texts: int, seed: int, share: float) -> None:
    terms = Terms(budget=3.0, seed=seed, share=share)
    if texts < texts_needed(terms):
        return
    selection, certification = divide(texts, terms)
    assert sorted([*selection, *certification]) == list(range(texts))
    assert len(selection)
    assert len(certification)
    assert all(np.array_equal(a, b) for a, b in zip(divide(texts, terms), (selection, certification), strict=True))


def test_other_seeds_divide_otherwise() -> None:
    first, second = (divide(100, Terms(budget=3.0, seed=seed))[0].tolist() for seed in (0, 1))
    assert first != second


@few
@given(rates, levels, st.floats(0.1, 0.9), st.integers(1, 3))
def test_the_texts_needed_are_the_fewest_that_can_certify(
    epsilon: float, delta: float, share: float, tried: int
) -> None:
    terms = Terms(epsilon=epsilon, delta=delta, share=share)
    least = texts_needed(terms, tried)
    assert len(divide(least, terms, tried)[1]) >= needed(epsilon, delta / tried)
    with pytest.raises(DataError, match=f"at least {least} "):
        divide(least - 1, terms, tried)


def test_too_few_texts_say_how_many_and_what_can_be_done() -> None:
    with pytest.raises(DataError) as caught:
        divide(277, Terms(epsilon=0.01))
    assert str(caught.value) == (
        "A risk of at most 1 % with 95 % confidence should have at least 426 held-out texts: 299 to certify with, the "
        "others to choose by. Found 277. Give at least 426, or tolerate a larger risk or less confidence. What 277 "
        "texts can certify is a risk of 1.6 % or more."
    )
    divide(277, Terms(epsilon=0.016))
    with pytest.raises(DataError, match=r"a risk of 2.1 % or more, of one policy that is named 1.6 %\.$"):
        divide(277, Terms(epsilon=0.01), 3)
    divide(277, Terms(epsilon=0.021), 3)


# --- calibration


@pytest.mark.parametrize("name", SCORERS)
def test_what_is_told_of_the_thresholds_is_what_the_policy_does(pool: Population, name: str) -> None:
    rows, known = some(pool, 700)
    kept = calibrate(pool.given(name, rows), known, Terms(epsilon=0.05, delta=0.1))
    assert kept.thresholds
    assert set(kept.thresholds) <= set(kept.exits)
    assert name in STATEFUL or set(kept.thresholds) == set(kept.exits)
    chosen = rows[divide(700, kept.terms)[1]]
    depths = pool.depths(name, kept.thresholds, kept.exits)[chosen]
    right = pool.right[depths - 1, chosen]
    assert kept.harms == (pool.right[-1, chosen] & ~right).sum()
    assert kept.mean_depth == pytest.approx(depths.mean())
    assert kept.accuracy_early == pytest.approx(right.mean())
    assert kept.accuracy_full == pytest.approx(pool.right[-1, chosen].mean())
    read = [sum(exit <= depth for exit in kept.exits) for depth in depths]
    assert kept.cost == pytest.approx(np.mean(depths + 0.06 * np.array(read)))
    assert kept.measured <= kept.bound <= 0.05
    assert kept.cost < LAYERS


@pytest.mark.parametrize("name", SCORERS)
def test_the_seed_decides_everything(pool: Population, name: str) -> None:
    rows, known = some(pool, 500)
    first, again = (calibrate(pool.given(name, rows), known, Terms(epsilon=0.05, seed=4)) for _ in range(2))
    assert first == again


def test_tensors_and_arrays_give_the_same(pool: Population) -> None:
    rows, known = some(pool, 500)
    scores = pool.given("confidence", rows)
    told = evidence(torch.tensor(known.harm), EXITS, LAYERS, right=torch.tensor(known.right))
    assert isinstance(scores, np.ndarray)
    assert calibrate(torch.tensor(scores), told, Terms(epsilon=0.05)) == calibrate(scores, known, Terms(epsilon=0.05))


def test_a_matrix_and_a_function_that_forgets_choose_alike_where_all_exits_are_free(pool: Population) -> None:
    rows, known = some(pool, 600)
    scores = pool.given("confidence", rows)
    terms = Terms(epsilon=0.05, exit_cost=0.0)
    by_function = calibrate(lambda exits: pool.scores("confidence", exits)[:, rows], known, terms)
    by_matrix = calibrate(scores, known, terms)
    assert (by_function.thresholds, by_function.harms) == (by_matrix.thresholds, by_matrix.harms)


def test_more_texts_save_more_on_average(pool: Population) -> None:
    costs = {}
    for texts in (150, 600, 2400):
        draws = [some(pool, texts, seed) for seed in range(12)]
        terms = [Terms(epsilon=0.05, delta=0.1, seed=seed) for seed in range(12)]
        found = [calibrate(pool.given("confidence", r), k, t) for (r, k), t in zip(draws, terms, strict=True)]
        costs[texts] = np.mean([kept.cost for kept in found])
    assert costs[150] > costs[600] > costs[2400]


def test_a_larger_risk_saves_more(pool: Population) -> None:
    rows, known = some(pool, 2000)
    costs = [calibrate(pool.given("confidence", rows), known, Terms(epsilon=e)).cost for e in (0.01, 0.03, 0.1)]
    assert costs[0] > costs[1] > costs[2]


def test_where_every_early_answer_is_wrong_nobody_leaves() -> None:
    draw = np.random.default_rng(0)
    kept = calibrate(draw.random((2, 400)), evidence(np.ones((2, 400)), [1, 2], 3), Terms(epsilon=0.02))
    assert kept.thresholds == {}
    assert kept.exits == ()
    assert (kept.harms, kept.mean_depth, kept.cost) == (0, 3.0, 3.0)
    assert kept.certified


def test_where_no_early_answer_harms_everybody_leaves_at_once() -> None:
    scores = np.random.default_rng(0).random((2, 2000))
    kept = calibrate(scores, evidence(np.zeros((2, 2000)), [1, 2], 3), Terms(epsilon=0.02))
    assert set(kept.thresholds) == {1}  # the second exit has nothing left to save
    assert kept.mean_depth == pytest.approx(1.0, abs=0.02)  # a few lie below the lowest score of the selection part


def test_a_model_with_one_exit_has_nothing_to_calibrate() -> None:
    kept = calibrate(np.empty((0, 400)), evidence(np.empty((0, 400)), [], 4), Terms(epsilon=0.02))
    assert (kept.thresholds, kept.mean_depth) == ({}, 4.0)


# --- exits that do not pay


def test_an_exit_where_nobody_could_leave_is_not_read() -> None:
    draw = np.random.default_rng(0)
    harm = np.vstack([np.ones(900), np.zeros(900)])
    kept = calibrate(draw.random((2, 900)), evidence(harm, [1, 4], 6), Terms(epsilon=0.02))
    assert set(kept.thresholds) == {4}


@pytest.mark.parametrize(("exit_cost", "read"), [(0.06, {1, 2}), (0.8, {1, 2}), (1.2, {2})])
def test_an_exit_is_read_as_long_as_it_saves_more_than_it_costs(exit_cost: float, read: set[int]) -> None:
    # Half of the texts can leave at the first exit, and save a layer and the reading of the second, where all can.
    # The reading of the first costs all: it pays as long as (1 + exit_cost) / 2 > exit_cost.
    draw = np.random.default_rng(0)
    easy = np.arange(2000) % 2 == 0
    scores = np.vstack([easy + 0.1 * draw.random(2000), draw.random(2000)])
    harm = np.vstack([~easy, np.zeros(2000)])
    kept = calibrate(scores, evidence(harm, [1, 2], 6), Terms(epsilon=0.02, exit_cost=exit_cost))
    assert set(kept.thresholds) == read


def test_an_exit_that_a_state_needs_is_read_though_nobody_leaves_there(pool: Population) -> None:
    rows, known = some(pool, 1500)
    kept = calibrate(pool.given("patient-confidence", rows), known, Terms(epsilon=0.05))
    assert min(kept.exits) < min(kept.thresholds)  # two exits in a row must be sure
    assert max(kept.exits) == max(kept.thresholds)  # nothing is read after the last that lets somebody leave


def test_costs_in_another_unit_choose_the_same(pool: Population) -> None:
    rows, known = some(pool, 800)
    milliseconds = evidence(known.harm, EXITS, LAYERS, cost=[2.5 * depth for depth in (*EXITS, LAYERS)])
    terms = Terms(epsilon=0.05)
    layers, time = (calibrate(pool.given("confidence", rows), e, terms) for e in (known, milliseconds))
    assert time.thresholds == layers.thresholds
    assert time.cost == pytest.approx(2.5 * layers.cost)


# --- budgets


@pytest.mark.parametrize("budget", [2.0, 3.5, 5.0])
def test_a_budget_is_kept_with_the_least_harm_of_the_path(pool: Population, budget: float) -> None:
    rows, known = some(pool, 4000)
    kept = calibrate(pool.given("confidence", rows), known, Terms(budget=budget))
    assert kept.within_budget is True
    assert not kept.certified
    assert kept.cost == pytest.approx(budget, abs=0.2)  # on other texts than it was chosen on
    assert kept.bound > kept.measured


def test_a_larger_budget_harms_less(pool: Population) -> None:
    rows, known = some(pool, 4000)
    harms = [calibrate(pool.given("confidence", rows), known, Terms(budget=b)).harms for b in (2.0, 3.0, 4.0, 6.0)]
    assert harms == sorted(harms, reverse=True)
    assert harms[-1] < harms[0] / 10


def test_a_budget_below_the_first_exit_is_refused(pool: Population) -> None:
    rows, known = some(pool, 300)
    with pytest.raises(ConfigError, match=r"The budget should be at least 1\.06, .* Found 0\.5\."):
        calibrate(pool.given("confidence", rows), known, Terms(budget=0.5))


def test_a_budget_within_a_risk_is_certified(pool: Population) -> None:
    rows, known = some(pool, 2000)
    scores = pool.given("confidence", rows)
    boldest = calibrate(scores, known, Terms(epsilon=0.05))
    both = calibrate(scores, known, Terms(epsilon=0.05, budget=5.5))
    assert both.certified
    assert both.within_budget is True
    assert both.harms < boldest.harms  # no bolder than the budget asks for


def test_a_budget_that_the_risk_forbids_is_said_not_to_be_kept(pool: Population) -> None:
    rows, known = some(pool, 2000)
    scores = pool.given("confidence", rows)
    both = calibrate(scores, known, Terms(epsilon=0.02, budget=2.0))
    assert both.certified
    assert both.within_budget is False
    assert both.bound <= 0.02


# --- several policies


def test_the_best_policy_is_found_and_pays_for_the_choice(pool: Population) -> None:
    rows, known = some(pool, 2000)
    noise = np.random.default_rng(0).random((len(EXITS), 2000))
    given_scores = {"noise": noise, **{name: pool.given(name, rows) for name in SCORERS}, "more noise": 1 - noise}
    terms = Terms(epsilon=0.05)
    name, kept = calibrate_best(given_scores, known, terms)
    assert kept.tried == 3
    assert kept.bound == pytest.approx(upper_bound(kept.harms, kept.certification, 0.05 / 3))
    assert name in STATELESS
    alone = {other: calibrate(pool.given(other, rows), known, terms) for other in SCORERS}
    assert kept.cost >= min(found.cost for found in alone.values())  # a third of delta certifies less
    assert kept.cost < alone["patience"].cost


def test_without_a_risk_the_selection_part_alone_chooses(pool: Population) -> None:
    rows, known = some(pool, 2000)
    noise = np.random.default_rng(0).random((len(EXITS), 2000))
    name, kept = calibrate_best(
        {"noise": noise, "confidence": pool.given("confidence", rows)}, known, Terms(budget=4.0)
    )
    assert (name, kept.tried) == ("confidence", 1)


def test_a_policy_that_cannot_keep_the_budget_is_passed_over(pool: Population) -> None:
    rows, known = some(pool, 1000)
    given_scores = {name: pool.given(name, rows) for name in ("patient-confidence", "confidence")}
    assert calibrate_best(given_scores, known, Terms(budget=1.5))[0] == "confidence"


def test_no_policy_is_refused(pool: Population) -> None:
    with pytest.raises(ConfigError, match="at least one policy"):
        calibrate_best({}, some(pool, 500)[1], Terms(epsilon=0.05))


# --- bad input


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Calibration should have a largest risk or a budget. Found neither."),
        ({"epsilon": 0.0}, "`epsilon` should be between 0 and 1, both excluded. Found 0."),
        ({"epsilon": 1.5}, "`epsilon` should be between 0 and 1, both excluded. Found 1.5."),
        ({"epsilon": math.nan}, "`epsilon` should be between 0 and 1, both excluded. Found nan."),
        ({"epsilon": 0.1, "delta": 1}, "`delta` should be between 0 and 1, both excluded. Found 1."),
        ({"epsilon": 0.1, "share": 0}, "`share` should be between 0 and 1, both excluded. Found 0."),
        ({"budget": -1}, "`budget` should be above 0. Found -1."),
        ({"budget": 2, "exit_cost": -0.5}, "`exit_cost` should be 0 or more. Found -0.5."),
    ],
)
def test_terms_that_make_no_sense_are_named(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Terms(**fields)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("harm", "exits", "layers", "more", "message"),
    [
        (np.zeros((2, 9)), [2, 1], 4, {}, "`exits` should be depths from 1 to 3, ascending"),
        (np.zeros((2, 9)), [1, 4], 4, {}, "`exits` should be depths from 1 to 3, ascending"),
        (np.zeros((3, 9)), [1, 2], 4, {}, "`harm` should have a row for each of 2 exits"),
        (np.full((2, 9), 0.5), [1, 2], 4, {}, "`harm` should be 0 or 1"),
        (np.zeros((2, 9)), [1, 2], 4, {"right": np.zeros((2, 9))}, "`right` should have shape"),
        (np.zeros((2, 9)), [1, 2], 4, {"cost": [1.0, 2.0]}, "`cost` should be 3 numbers"),
        (np.zeros((2, 9)), [1, 2], 4, {"cost": [3.0, 2.0, 4.0]}, "`cost` should be 3 numbers that do not fall"),
    ],
)
def test_evidence_that_makes_no_sense_is_named(
    harm: NDArray[Any], exits: list[int], layers: int, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        evidence(harm, exits, layers, **more)


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"`scores` should have shape \(1, 100\): exits by texts\. Found \(2, 100\)\."):
        calibrate(np.zeros((2, 100)), evidence(np.zeros((1, 100)), [1], 2), Terms(budget=1.5))


# --- the page


def test_the_page_on_calibration_tells_the_numbers_of_the_formula() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "calibration.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [\d.]+ % \|", line)]
    assert len(rows) > 3
    for risk, *cells in rows:
        epsilon = float(risk.removesuffix(" %")) / 100
        expected = [(delta, tried) for tried in (1, 3) for delta in (0.1, 0.05, 0.01)]
        for cell, (delta, tried) in zip(cells, expected, strict=True):
            least = math.ceil(math.log(delta / tried) / math.log(1 - epsilon))
            assert needed(epsilon, delta / tried) == least
            assert int(cell) == texts_needed(Terms(epsilon=epsilon, delta=delta), tried)


def test_the_python_of_the_page_runs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "calibration.md").read_text("utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {"scores": draw.random((5, 900)), "right": draw.random((6, 900)) < 0.9}
    exec(compile(code, "calibration.md", "exec"), made)
    assert made["certificate"].epsilon == 0.01
