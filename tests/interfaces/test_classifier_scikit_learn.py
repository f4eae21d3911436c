"""A classifier is one of scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from offramp import Classifier

Toy = Callable[..., tuple[list[str], list[str]]]
Quick = Callable[..., Classifier]


def test_parameters_go_in_and_come_out() -> None:
    given = {
        "recipe": "scl",
        "backbone": "somewhere",
        "settings": {"optimise.epochs": 2},
        "seed": 3,
        "policy": "fixed",
        "threshold": 0.5,
        "depth": 2,
        "batch_size": 8,
    }
    assert Classifier(**given).get_params() == given
    assert Classifier().set_params(**given).get_params() == given
    assert "recipe='scl'" in repr(Classifier(**given))


def test_a_clone_has_the_parameters_and_nothing_learnt(fitted: Classifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    assert is_classifier(copy)


def test_a_clone_learns_the_same(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    first = quick(seed=1).fit(texts, labels)
    assert clone(first).fit(texts, labels).predict_proba(texts).tolist() == first.predict_proba(texts).tolist()


@pytest.mark.parametrize("form", [list, np.array, pd.Series])
def test_cross_validation_scores_each_fold(quick: Quick, toy: Toy, form: Callable[[list[str]], object]) -> None:
    texts, labels = toy(36)
    found = cross_val_score(quick(), form(texts), form(labels), cv=2, error_score="raise")
    assert found.shape == (2,)
    assert ((found >= 0) & (found <= 1)).all()


def test_cross_validation_of_pairs(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(36)
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert cross_val_score(quick(), pairs, labels, cv=2, error_score="raise").shape == (2,)


def test_it_is_the_last_step_of_a_pipeline(fitted: Classifier, toy: Toy) -> None:
    texts, labels = toy(30, seed=7)
    shout = FunctionTransformer(lambda rows: [row.lower() for row in rows])
    pipeline = Pipeline([("lower", shout), ("classify", fitted)])
    loud = [text.upper() for text in texts]
    assert pipeline.predict(loud).tolist() == fitted.predict(texts).tolist()
    assert pipeline.score(loud, labels) == fitted.score(texts, labels)
    assert pipeline.classes_.tolist() == ["bad", "fine", "good"]


def test_a_pipeline_fits_it(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    pipeline = Pipeline([("same", FunctionTransformer(lambda rows: rows)), ("classify", quick())])
    assert len(pipeline.fit(texts, labels).predict_proba(texts)) == 24


def test_a_search_over_its_parameters_ends_with_one_of_them(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    search = GridSearchCV(quick(), {"recipe": ["ce", "scl"]}, cv=2, error_score="raise").fit(texts, labels)
    assert search.best_params_["recipe"] in ("ce", "scl")
    assert len(search.predict(texts)) == 24
