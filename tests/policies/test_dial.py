"""The dial: points as the certification texts met them, and a promise that all certified ones keep at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom
from tests.policies.synthetic import EXITS, LAYERS, Population

from offramp.errors import ModelError
from offramp.policies.calibrate import Calibration, calibrate
from offramp.policies.dial import Dial, spread
from offramp.policies.evidence import drops, evidence
from offramp.policies.terms import Terms, divide

SPLITS, TEXTS, EPSILON, DELTA = 150, 400, 0.05, 0.1


@pytest.fixture(scope="module")
def pool() -> Population:
    return Population(12_000, seed=3)


def calibrated(pool: Population, name: str, seed: int = 0) -> tuple[Calibration, np.ndarray]:
    """A calibration on a few texts, and which of the population its certification texts are."""
    rows = np.random.default_rng(seed).choice(pool.texts, TEXTS, replace=False)
    terms = Terms(epsilon=EPSILON, delta=DELTA, seed=seed)
    known = evidence(drops(pool.right)[:, rows], EXITS, LAYERS, right=pool.right[:, rows])
    return calibrate(pool.given(name, rows), known, terms), rows[divide(TEXTS, terms)[1]]


@pytest.mark.parametrize("name", ["confidence", "prior", "patience", "patient-confidence"])
def test_every_point_tells_what_its_thresholds_did(pool: Population, name: str) -> None:
    found, texts = calibrated(pool, name)
    dial = found.dial
    assert dial is not None
    assert dial.texts == len(texts) == found.certification
    for point in dial.points:
        depths = pool.depths(name, point.thresholds, point.exits)[texts]
        right = pool.right[depths - 1, texts]
        assert point.mean_depth == pytest.approx(depths.mean(), abs=1e-12)
        assert point.accuracy == pytest.approx(right.mean(), abs=1e-12)
        assert point.harms == int((pool.right[-1, texts] & ~right).sum())
    chosen = dial.points[dial.chosen]
    assert (chosen.thresholds, chosen.exits, chosen.harms) == (found.thresholds, found.exits, found.harms)
    assert chosen.certified
    assert dial.by_exit == pytest.approx({depth: pool.right[depth - 1, texts].mean() for depth in (*EXITS, LAYERS)})


def test_it_begins_where_nobody_leaves_and_certified_points_come_first(pool: Population) -> None:
    dial = calibrated(pool, "confidence")[0].dial
    assert dial is not None
    assert (dial.points[0].thresholds, dial.points[0].mean_depth, dial.points[0].harms) == ({}, LAYERS, 0)
    depths = [point.mean_depth for point in dial.points]
    assert depths == sorted(depths, reverse=True)
    certified = [point.certified for point in dial.points]
    assert certified == sorted(certified, reverse=True)
    assert not certified[-1]
    for safer, bolder in pairwise(dial.points):
        assert all(bolder.thresholds.get(depth, np.inf) <= limit for depth, limit in safer.thresholds.items())


def test_all_certified_points_keep_the_risk_at_once_as_often_as_was_said(pool: Population) -> None:
    harm = np.vstack([drops(pool.right), np.zeros(pool.texts, dtype=bool)])  # (L, N), at the last exit none
    broken = bold = 0
    for seed in range(SPLITS):
        dial = calibrated(pool, "confidence", seed)[0].dial
        if dial is None:
            continue
        risks = []
        for point in dial.points:
            depths = pool.depths("confidence", point.thresholds, point.exits)
            risks.append((harm[depths - 1, np.arange(pool.texts)].mean(), point.certified))
        broken += any(risk > EPSILON for risk, certified in risks if certified)
        bold += any(risk > EPSILON for risk, certified in risks if not certified)
    assert broken <= binom.ppf(0.999, SPLITS, DELTA)
    assert bold > SPLITS / 2, "no point was too bold: nothing was put to the test"


def test_for_a_budget_nothing_is_certified(pool: Population) -> None:
    rows = np.arange(TEXTS)
    known = evidence(drops(pool.right)[:, rows], EXITS, LAYERS)
    dial = calibrate(pool.given("confidence", rows), known, Terms(budget=3.5)).dial
    assert dial is not None
    assert {point.certified for point in dial.points} == {False}
    assert {point.accuracy for point in dial.points} == {None}
    assert dial.by_exit == {}


def test_it_comes_back_as_it_was(pool: Population) -> None:
    dial = calibrated(pool, "confidence")[0].dial
    assert dial is not None
    assert Dial.from_json(dial.to_json()) == dial


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"points": [], "chosen": 0, "texts": 1, "by_exit": {}}'])
def test_what_is_no_dial_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="Run `offramp calibrate` again"):
        Dial.from_json(text)


def test_a_long_path_is_thinned_to_even_depths() -> None:
    depths = np.linspace(6, 1, 501).tolist()
    places = spread(depths, chosen=333, points=11)
    assert {0, 333, 500} <= set(places)
    assert len(places) <= 12
    assert max(depths[a] - depths[b] for a, b in pairwise(places)) <= 0.5 + 1e-9
