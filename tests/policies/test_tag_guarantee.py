"""The promise where words leave one by one: a share of texts, over many calibrations. The check must be able to fail.

A population of texts whose words are told better with depth. Words of a text are alike: in some texts all are hard.
Whoever counts words as if they were independent texts believes to know far more than there is, and breaks the promise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from offramp.errors import ConfigError
from offramp.policies import calibrate as module
from offramp.policies.calibrate import Calibration, calibrate
from offramp.policies.evidence import drops, evidence
from offramp.policies.terms import Terms

POPULATION, SPLITS, TEXTS, EPSILON, DELTA = 8_000, 120, 300, 0.08, 0.1
LAYERS, LABELS = 5, 4
EXITS = tuple(range(1, LAYERS))


class Population:
    """Many texts of one to twelve words, to draw from and to know the truth by."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        sizes = draw.integers(1, 13, POPULATION)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        owner, words = np.repeat(np.arange(POPULATION), sizes), int(sizes.sum())
        truth = draw.integers(0, LABELS, words)
        ease = draw.normal(size=POPULATION)[owner] + 0.5 * draw.normal(size=words)  # shared by the words of a text
        carried, layers = draw.normal(size=(words, LABELS)), []
        for depth in range(1, LAYERS + 1):
            carried = 0.85 * carried + 0.5 * draw.normal(size=carried.shape)
            signal = np.maximum(1.6 * depth + 1.0 + 1.2 * ease, 0.2)
            layers.append(carried + signal[:, None] * (np.arange(LABELS) == truth[:, None]))
        logits = np.stack(layers)  # (L, W, C)
        chance = np.exp(logits - logits.max(axis=2, keepdims=True))
        self.scores = (chance.max(axis=2) / chance.sum(axis=2)).astype(np.float32)[:-1]  # (E, W), as `confidence`
        self.right = logits.argmax(axis=2) == truth  # (L, W)
        self.harm = drops(self.right)  # (E, W)

    def words(self, texts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([np.arange(self.starts[t], self.starts[t + 1]) for t in texts])

    def risk(self, thresholds: dict[int, float]) -> float:
        """The share of the whole population's texts that have a harmed word."""
        here, harmed = np.ones(self.scores.shape[1], dtype=bool), np.zeros(self.scores.shape[1], dtype=bool)
        for place, depth in enumerate(EXITS):
            gone = here & (self.scores[place] >= np.float32(thresholds.get(depth, np.inf)))
            harmed |= gone & self.harm[place]
            here &= ~gone
        return float(np.logical_or.reduceat(harmed, self.starts[:-1]).mean())


@pytest.fixture(scope="module")
def population() -> Population:
    return Population()


def calibrated(population: Population, split: int, by_text: bool = True) -> Calibration:
    rows = np.sort(np.random.default_rng(split).choice(POPULATION, TEXTS, replace=False))
    words = population.words(rows)
    starts = np.concatenate([[0], np.cumsum(np.diff(population.starts)[rows])]) if by_text else None
    known = evidence(population.harm[:, words], EXITS, LAYERS, right=population.right[:, words], starts=starts)
    return calibrate(population.scores[:, words], known, Terms(epsilon=EPSILON, delta=DELTA, seed=split))


def risks(population: Population, by_text: bool = True) -> list[float]:
    """The risk in the population of what was calibrated on each of many draws of a few texts."""
    return [population.risk(dict(calibrated(population, split, by_text).thresholds)) for split in range(SPLITS)]


def too_often(found: Sequence[float]) -> bool:
    """Whether more of them are too high than chance explains: 99.9 % of honest methods have fewer."""
    return sum(risk > EPSILON for risk in found) > binom.ppf(0.999, len(found), DELTA)


def test_texts_have_a_harmed_word_no_more_often_than_was_said(population: Population) -> None:
    found = risks(population)
    assert not too_often(found)
    assert np.mean(found) > EPSILON / 4, "no word leaves: nothing was put to the test"


def test_the_check_fails_for_a_bound_that_is_none(population: Population, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(harms: ArrayLike, texts: int, epsilon: float) -> NDArray[np.float64]:
        return np.where(np.asarray(harms) <= epsilon * texts, 0.0, 1.0)

    monkeypatch.setattr(module, "p_values", measured)
    assert too_often(risks(population))


def test_the_check_fails_where_words_are_counted_as_texts(population: Population) -> None:
    assert too_often(risks(population, by_text=False))


def test_what_is_counted_is_what_a_loop_over_texts_and_words_counts(population: Population) -> None:
    found = calibrated(population, split=3)
    assert found.thresholds
    rows = np.sort(np.random.default_rng(3).choice(POPULATION, TEXTS, replace=False))
    from offramp.policies.terms import divide

    _, certification = divide(TEXTS, found.terms)
    harms, depths = 0, []
    for text in rows[certification]:
        harmed, last = False, 0
        for word in range(population.starts[text], population.starts[text + 1]):
            depth = next(
                (d for d in EXITS if d in found.thresholds and population.scores[d - 1, word] >= found.thresholds[d]),
                LAYERS,
            )
            harmed |= depth < LAYERS and bool(population.harm[depth - 1, word])
            last = max(last, depth)
        harms += harmed
        depths.append(last)
    assert found.harms == harms
    assert found.mean_depth == pytest.approx(np.mean(depths))
    assert found.certification == len(certification)


def test_texts_without_words_are_never_harmed() -> None:
    harm = np.array([[True, False, False]])
    known = evidence(harm, [1], 2, starts=[0, 0, 2, 2, 3, 3])
    texts = np.arange(5)
    assert known.texts == 5
    assert known.answers(texts).tolist() == [0, 1, 2]
    assert known.answers(np.array([3, 1])).tolist() == [2, 0, 1]
    assert known.worst(harm.astype(np.int64), texts).tolist() == [[0, 1, 0, 0, 0]]


def test_starts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="`starts` should rise from 0 to the number of words, 3"):
        evidence(np.zeros((1, 3)), [1], 2, starts=[0, 2])
