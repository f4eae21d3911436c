"""The interval of an accuracy holds what it says, and is told where it means something."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.report.chance import CONFIDENCE, accuracy_between, in_words
from offramp.report.metrics import Evaluation
from offramp.report.tag_metrics import TagEvaluation


def measured(right: int, texts: int) -> Evaluation:
    truth = [0] * texts
    told = [0] * right + [1] * (texts - right)
    return Evaluation.of(truth, told, [1] * texts, {1: told}, [1], 1, ["a", "b"], {"name": "never"})


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
def test_as_many_intervals_hold_the_true_accuracy_as_is_said(accuracy: float) -> None:
    chance, texts = np.random.default_rng(0), 60
    drawn = chance.binomial(texts, accuracy, size=300)
    found = [accuracy_between(measured(int(right), texts)) for right in drawn]
    held = np.mean([pair is not None and pair[0] <= accuracy <= pair[1] for pair in found])
    assert held > CONFIDENCE - 3 * (CONFIDENCE * (1 - CONFIDENCE) / len(drawn)) ** 0.5


@pytest.mark.parametrize("right", [0, 20])
def test_none_or_all_right_is_no_certainty(right: int) -> None:
    low, high = accuracy_between(measured(right, 20)) or (0.0, 0.0)
    assert 0.1 < high - low < 0.2
    assert (low, high)[right == 20] == pytest.approx(right / 20)


def test_it_is_told_of_texts_and_not_of_words() -> None:
    assert in_words(measured(36, 40)) == "0.769 to 0.960 with 95 % confidence"
    tags, never = [["B-x", "O"]], {"name": "never"}
    tagged = TagEvaluation.of(tags, tags, [[1, 1]], {1: tags}, [1], 1, ["B-x", "O"], never)
    assert accuracy_between(tagged) is None
    assert in_words(tagged) == ""
