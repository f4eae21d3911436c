"""The promise itself: over many calibrations, the risk in the whole population is too high as rarely as was said.

The check must be able to fail: with a bound that is none it does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom
from tests.policies.synthetic import EXITS, LAYERS, SCORERS, Population

from offramp.policies import POLICIES
from offramp.policies import calibrate as module
from offramp.policies.calibrate import calibrate_best
from offramp.policies.evidence import differs, drops, evidence
from offramp.policies.scored import Scored
from offramp.policies.terms import Terms

SPLITS, TEXTS, EPSILON, DELTA = 200, 400, 0.05, 0.1
HARMS = {"accuracy drop": lambda pool: drops(pool.right), "disagreement": lambda pool: differs(pool.answers)}


@pytest.fixture(scope="module")
def pool() -> Population:
    return Population(20_000)


def true_risks(
    pool: Population, names: Sequence[str], risk: str = "accuracy drop", splits: int = SPLITS
) -> list[float]:
    """The risk in the population of what was calibrated on each of many draws of a few texts."""
    harm = HARMS[risk](pool)  # (E, N)
    padded = np.vstack([harm, np.zeros(pool.texts, dtype=bool)])  # (L, N), at the last exit none
    found = []
    for split in range(splits):
        rows = np.random.default_rng(split).choice(pool.texts, TEXTS, replace=False)
        terms = Terms(epsilon=EPSILON, delta=DELTA, seed=split)
        given = {name: pool.given(name, rows) for name in names}
        name, kept = calibrate_best(given, evidence(harm[:, rows], EXITS, LAYERS), terms)
        depths = pool.depths(name, kept.thresholds, kept.exits)
        found.append(float(padded[depths - 1, np.arange(pool.texts)].mean()))
    return found


def too_often(risks: Sequence[float]) -> bool:
    """Whether more of them are too high than chance explains: 99.9 % of honest methods have fewer."""
    return sum(risk > EPSILON for risk in risks) > binom.ppf(0.999, len(risks), DELTA)


@pytest.mark.parametrize("name", SCORERS)
def test_the_risk_is_too_high_in_no_more_calibrations_than_was_said(pool: Population, name: str) -> None:
    risks = true_risks(pool, [name])
    assert not too_often(risks)
    assert np.mean(risks) > EPSILON / 5, "nobody leaves: nothing was put to the test"


def test_disagreement_is_kept_as_well(pool: Population) -> None:
    assert not too_often(true_risks(pool, ["confidence"], "disagreement"))


def test_the_best_of_all_policies_keeps_the_risk_too(pool: Population) -> None:
    risks = true_risks(pool, list(SCORERS))
    assert not too_often(risks)
    assert np.mean(risks) > EPSILON / 5


def _measured(harms: ArrayLike, texts: int, epsilon: float) -> NDArray[np.float64]:
    """No p-value: certain of whatever was measured."""
    return np.where(np.asarray(harms) <= epsilon * texts, 0.0, 1.0)


def test_every_policy_with_a_threshold_is_put_to_the_test() -> None:
    assert set(SCORERS) == {name for name, kind in POLICIES.items() if issubclass(kind, Scored)}


# `patience` and `vote` have a handful of scores: their path has too few points for the best of them to flatter itself.
@pytest.mark.parametrize("name", [name for name in SCORERS if name not in ("patience", "vote")])
def test_the_check_fails_for_a_bound_that_is_none(pool: Population, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "p_values", _measured)
    assert too_often(true_risks(pool, [name]))
