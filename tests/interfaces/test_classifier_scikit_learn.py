"""A classifier is one of scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from offramp import Classifier
from offramp.errors import ConfigError, DataError

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
        "class_weight": "balanced",
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


def test_a_search_goes_over_fields_of_the_recipe(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    grid = {"objective__weight": [0.1, 0.6], "optimise__epochs": [2]}
    search = GridSearchCV(quick(recipe="scl"), grid, cv=2, error_score="raise").fit(texts, labels)
    best = search.best_estimator_
    assert best.config_.objective.weight == search.best_params_["objective__weight"]
    assert best.config_.optimise.epochs == 2
    assert best.config_.exits.size == 16  # a setting that stood there before


def test_a_search_through_a_pipeline_names_the_step_and_the_field(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    pipeline = Pipeline([("same", FunctionTransformer(lambda rows: rows)), ("classify", quick())])
    search = GridSearchCV(pipeline, {"classify__optimise__batch_size": [8, 16]}, cv=2, error_score="raise")
    assert search.fit(texts, labels).best_estimator_["classify"].config_.optimise.batch_size in (8, 16)


def test_a_field_that_does_not_exist_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"optimise\.epochs"):
        Classifier().set_params(optimise__epoch=3)


def test_settings_given_as_a_list_take_a_field_more() -> None:
    classifier = Classifier(settings=["optimise.epochs=3"]).set_params(optimise__batch_size=8)
    assert (classifier.config().optimise.epochs, classifier.config().optimise.batch_size) == (3, 8)


# --- weights


def weights_of(classifier: Classifier) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in classifier.model_.state_dict().values()]


def same(one: Classifier, other: Classifier) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights_of(one), weights_of(other), strict=True))


def test_equal_sample_weights_are_no_weights(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    assert same(quick().fit(texts, labels), quick().fit(texts, labels, sample_weight=np.ones(24)))


def test_a_text_of_weight_0_is_not_learnt_from(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(30)
    kept = quick().fit(texts[:24], labels[:24])
    found = quick().fit(texts, labels, sample_weight=[1.0] * 24 + [0.0] * 6)
    assert same(kept, found)
    assert kept.seen_.tolist() == found.seen_.tolist()


def test_the_weight_of_a_label_is_the_weight_of_its_texts(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    by_label = quick(class_weight={"bad": 5.0}).fit(texts, labels)
    by_text = quick().fit(texts, labels, sample_weight=[5.0 if label == "bad" else 1.0 for label in labels])
    assert same(by_label, by_text)
    assert not same(by_label, quick().fit(texts, labels))


def test_balanced_is_the_setting(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    skewed = ["bad"] * 12 + labels[12:]
    found = quick(class_weight="balanced").fit(texts, skewed)
    assert same(found, quick({"objective.class_weights": "balanced"}).fit(texts, skewed))


def test_a_search_passes_weights_on(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    search = GridSearchCV(quick(), {"seed": [1]}, cv=2, error_score="raise")
    found = search.fit(texts, labels, sample_weight=np.linspace(1, 3, 24)).best_estimator_
    assert not same(found, quick(seed=1).fit(texts, labels))


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1.0] * 5, "one weight for each"),
        ([-1.0] * 24, "0 or more"),
        ([float("nan")] * 24, "finite"),
        ([0.0] * 24, "none"),
    ],
)
def test_weights_that_make_no_sense_are_refused(quick: Quick, toy: Toy, weights: list[float], said: str) -> None:
    texts, labels = toy(24)
    with pytest.raises(DataError, match=said):
        quick().fit(texts, labels, sample_weight=weights)


def test_weights_without_a_cross_entropy_are_refused(quick: Quick, toy: Toy) -> None:
    with pytest.raises(ConfigError, match="no cross entropy"):
        quick(recipe="lacon", class_weight={"bad": 2.0}).fit(*toy(24))
    below = quick(recipe="2st", settings={"stage2.objective": "lcl"}, class_weight={"bad": 2.0})
    with pytest.raises(ConfigError, match=r"`stage2\.objective` lcl, which has no cross entropy"):
        below.fit(*toy(24))


def test_class_weights_that_make_no_sense_are_refused(quick: Quick, toy: Toy) -> None:
    with pytest.raises(ConfigError, match="balanced"):
        quick(class_weight="even").fit(*toy(24))
    with pytest.raises(DataError, match="`worst`"):
        quick(class_weight={"worst": 2.0}).fit(*toy(24))


def test_a_score_takes_weights(fitted: Classifier, toy: Toy) -> None:
    texts, labels = toy(12, seed=3)
    wrong = ["bad" if label != "bad" else "good" for label in labels]
    mixed = [*labels[:6], *wrong[6:]]
    assert fitted.score(texts, mixed, sample_weight=[1.0] * 6 + [0.0] * 6) == fitted.score(texts[:6], labels[:6])


def test_whoever_has_not_learnt_says_so_in_scikit_learns_words() -> None:
    with pytest.raises(NotFittedError, match="fitted or loaded first"):
        Classifier().predict(["a"])
