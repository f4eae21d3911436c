"""scikit-learn's own checks of an estimator, on words that stand for numbers.

`check_estimator` gives rows of numbers and `Classifier` takes texts, so scikit-learn leaves all of its checks out by
itself. Here a row of numbers is written as words, one for each number, and the checks run on what is learnt from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from offramp import Classifier

WORDS = ("bad", "dull", "slow", "fine", "quick", "bright", "good")
QUICK = {"exits.size": 16, "optimise.epochs": 1, "optimise.batch_size": 16}

LEFT_OUT = {
    "check_classifiers_one_label": "one label is refused, in a sentence that says `labels`, not `class`",
    "check_classifiers_one_label_sample_weights": "the same, when the texts of all other labels have weight 0",
    "check_fit2d_1sample": "the same of one text; scikit-learn wants the sentence to say `1 sample`",
    "check_sample_weight_equivalence_on_dense_data": "a text that stands twice meets others in its batches than one of "
    "weight 2; that its loss counts twice is tested in tests/objectives/test_text_weights.py",
}
"""Checks that fail, and why they may."""


class OfNumbers(Classifier):
    """A classifier of rows of numbers: each number becomes one of seven words, the higher the kinder."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        tags.classifier_tags.poor_score = True  # one epoch of a random backbone
        return tags

    def fit(self, X: Any, y: Any, validation: None = None, sample_weight: Sequence[float] | None = None) -> Classifier:
        rows, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, rows)
        return super().fit(_texts(rows), labels, sample_weight=weights)

    def predict(self, X: Any) -> Any:
        return super().predict(self._rows(X))

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self._rows(X))

    def _rows(self, X: Any) -> list[str]:
        check_is_fitted(self)
        return _texts(validate_data(self, X, reset=False))


def _texts(X: Any) -> list[str]:
    places = np.clip(np.round(np.asarray(X, float)) + 3, 0, len(WORDS) - 1).astype(int)
    return [" ".join(WORDS[place] for place in row) for row in places]


def _checks() -> list[Any]:
    found = []
    for _, check in estimator_checks_generator(OfNumbers("ce", settings=QUICK)):
        name = check.func.__name__
        why = [pytest.mark.xfail(strict=True, reason=LEFT_OUT[name])] if name in LEFT_OUT else []
        if name != "check_array_api_input":  # texts are not arrays
            found.append(pytest.param(check, id=name, marks=why))
    return found


@pytest.mark.parametrize("check", _checks())
def test_scikit_learns_check(check: Callable[[Any], None], backbone_folder: Path) -> None:
    check(OfNumbers("ce", str(backbone_folder), QUICK))


def test_a_classifier_says_that_it_takes_texts() -> None:
    tags = Classifier().__sklearn_tags__()
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array
