"""The promise of label sets: for every label at once, over many calibrations. The check must be able to fail.

A population of texts with four labels, whose decisions get better with depth; one label is harder than the others, and
it is the one whose risk breaks a promise that is made of their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from offramp.policies import calibrate as module
from offramp.policies.bounds import p_values
from offramp.policies.calibrate import calibrate
from offramp.policies.evidence import drops, evidence
from offramp.policies.terms import Terms

POPULATION, SPLITS, TEXTS, EPSILON, DELTA = 20_000, 150, 400, 0.05, 0.1
LAYERS, LABELS = 5, 4
EXITS = tuple(range(1, LAYERS))


class Population:
    """Many texts, to draw from and to know the truth by."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        truth = draw.random((POPULATION, LABELS)) < 0.35
        ease = draw.normal(size=(POPULATION, 1))
        hard = np.array([0.0, 0.0, 0.0, 1.1])  # the last label is told late
        carried = draw.normal(size=(POPULATION, LABELS))
        layers = []
        for depth in range(1, LAYERS + 1):
            carried = 0.8 * carried + 0.6 * draw.normal(size=carried.shape)
            signal = np.maximum(1.1 * depth - 0.6 + 0.7 * ease - hard * (LAYERS - depth) / 2, -0.5)
            layers.append(np.where(truth, 1.0, -1.0) * signal + carried)
        logits = np.stack(layers)  # (L, N, C)
        yes = 1.0 / (1.0 + np.exp(-logits))
        self.scores = np.maximum(yes, 1.0 - yes).min(axis=2).astype(np.float32)[:-1]  # (E, N), as `confidence`
        self.harm = np.moveaxis(drops((yes >= 0.5) == truth), 2, 0)  # (C, E, N)

    def risks(self, thresholds: dict[int, float]) -> NDArray[np.float64]:
        """The share of the whole population that is harmed, of each label, (C,)."""
        here, found = np.ones(POPULATION, dtype=bool), np.zeros(LABELS)
        for place, depth in enumerate(EXITS):
            gone = here & (self.scores[place] >= np.float32(thresholds.get(depth, np.inf)))
            found += (self.harm[:, place] & gone).mean(axis=1)
            here &= ~gone
        return found


@pytest.fixture(scope="module")
def population() -> Population:
    return Population()


def worst_risks(population: Population, whose: Callable[[NDArray[np.bool_]], ArrayLike]) -> list[float]:
    """The worst label's risk in the population, of what was calibrated on each of many draws of a few texts."""
    found = []
    for split in range(SPLITS):
        rows = np.random.default_rng(split).choice(POPULATION, TEXTS, replace=False)
        known = evidence(whose(population.harm[:, :, rows]), EXITS, LAYERS)
        kept = calibrate(population.scores[:, rows], known, Terms(epsilon=EPSILON, delta=DELTA, seed=split))
        found.append(float(population.risks(dict(kept.thresholds)).max()))
    return found


def too_often(risks: Sequence[float]) -> bool:
    """Whether more of them are too high than chance explains: 99.9 % of honest methods have fewer."""
    return sum(risk > EPSILON for risk in risks) > binom.ppf(0.999, len(risks), DELTA)


def test_no_label_has_too_high_a_risk_in_more_calibrations_than_was_said(population: Population) -> None:
    risks = worst_risks(population, lambda harm: harm)
    assert not too_often(risks)
    assert np.mean(risks) > EPSILON / 5, "nobody leaves: nothing was put to the test"


def test_the_check_fails_for_a_bound_that_is_none(population: Population, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(harms: ArrayLike, texts: int, epsilon: float) -> NDArray[np.float64]:
        return np.where(np.asarray(harms) <= epsilon * texts, 0.0, 1.0)

    monkeypatch.setattr(module, "p_values", measured)
    assert too_often(worst_risks(population, lambda harm: harm))


def test_the_check_fails_for_a_test_of_one_label_alone(population: Population) -> None:
    assert too_often(worst_risks(population, lambda harm: harm[:1]))


def test_the_p_value_of_the_worst_label_is_the_largest_of_all() -> None:
    harms = np.array([[0, 3, 7], [2, 2, 1]])  # (P, C)
    each = np.stack([p_values(column, 200, EPSILON) for column in harms.T], axis=1)  # (P, C)
    assert p_values(harms.max(axis=1), 200, EPSILON).tolist() == each.max(axis=1).tolist()
