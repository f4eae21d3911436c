"""A classifier that was saved and loaded is the same classifier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from offramp import Classifier
from offramp.errors import ConfigError

Toy = Callable[..., tuple[list[str], list[str]]]
Quick = Callable[..., Classifier]


def test_a_loaded_classifier_gives_the_same_answers(fitted: Classifier, toy: Toy, tmp_path: Path) -> None:
    texts, labels = toy(40, seed=8)
    fitted.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    assert loaded.predict_proba(texts).tolist() == fitted.predict_proba(texts).tolist()
    assert loaded.decide(texts) == fitted.decide(texts)
    assert loaded.predict(texts).tolist() == fitted.predict(texts).tolist()
    assert loaded.score(texts, labels) == fitted.score(texts, labels)
    assert loaded.config_ == fitted.config_
    assert loaded.model_.config.trained_exits == [4]
    assert not loaded.model_.training


def test_saving_twice_and_over_another_model_is_the_same(
    fitted: Classifier, quick: Quick, toy: Toy, tmp_path: Path
) -> None:
    texts, labels = toy(24)
    quick().fit(texts, labels).save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        fitted.save(str(tmp_path))
        assert Classifier.load(str(tmp_path)).decide(texts) == fitted.decide(texts)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


@pytest.mark.parametrize("names", [(3, 20, 100), ("3", "20", "100"), ("é", "日本", 'a"b\\c')])
def test_labels_keep_their_type_and_spelling_on_disk(
    quick: Quick, toy: Toy, tmp_path: Path, names: tuple[str | int, ...]
) -> None:
    texts, words = toy(24)
    labels = [names[("bad", "fine", "good").index(word)] for word in words]
    classifier = quick().fit(texts, labels)
    classifier.save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.classes_.tolist() == classifier.classes_.tolist() == sorted(names)
    assert loaded.predict(texts).dtype == np.array(names).dtype
    assert loaded.decide(texts) == classifier.decide(texts)


def test_a_loaded_classifier_fits_again_as_it_was_fitted(
    fitted: Classifier, toy: Toy, quick: Quick, tmp_path: Path
) -> None:
    texts, labels = toy(24)
    first = quick({"optimise.seed": 5, "data.text": ["a", "b"]}).fit(texts, labels)
    first.save(tmp_path)
    again = Classifier.load(tmp_path)
    assert again.config() == first.config_
    assert again.fit(texts, labels).predict_proba(texts).tolist() == first.predict_proba(texts).tolist()
    assert Classifier.load(tmp_path, settings=None).config().optimise.seed == 0


def test_the_policy_may_be_chosen_when_loading(fitted: Classifier, toy: Toy, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    texts, _ = toy(10)
    assert {d.depth for d in Classifier.load(tmp_path, policy="fixed", depth=3).decide(texts)} == {3}
    with pytest.raises(ConfigError, match=r"Did you mean 'fixed'\?"):
        Classifier.load(tmp_path, policy="fixd").decide(texts)


def test_the_policy_of_the_configuration_is_saved(quick: Quick, toy: Toy, tmp_path: Path) -> None:
    texts, labels = toy(24)
    quick({"policy.name": "fixed", "policy.depth": 2}).fit(texts, labels).save(tmp_path)
    loaded = Classifier.load(tmp_path)
    assert loaded.policy_in_force() == {"name": "fixed", "depth": 2}
    assert {d.depth for d in loaded.decide(texts)} == {2}
