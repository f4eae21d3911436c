"""Texts in, labels out: what goes in may have many forms, what comes out has the labels' own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from offramp import Classifier
from offramp.data.tokens import TruncationWarning
from offramp.errors import ConfigError, DataError, ModelError
from offramp.types import Example

Toy = Callable[..., tuple[list[str], list[str]]]
Quick = Callable[..., Classifier]


def test_it_learns_the_toy_problem(fitted: Classifier, toy: Toy) -> None:
    assert fitted.score(*toy(90, seed=1)) > 0.9  # chance is 0.33


def test_labels_probabilities_and_decisions_agree(fitted: Classifier, toy: Toy) -> None:
    texts, _ = toy(40, seed=1)
    labels, shares, decisions = fitted.predict(texts), fitted.predict_proba(texts), fitted.decide(texts)
    assert fitted.classes_.tolist() == ["bad", "fine", "good"]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-6)
    assert fitted.classes_[shares.argmax(axis=1)].tolist() == labels.tolist() == [d.label for d in decisions]
    np.testing.assert_allclose([d.probability for d in decisions], shares.max(axis=1), atol=1e-6)
    assert {d.depth for d in decisions} == {4}


def test_the_score_is_the_share_of_right_labels(fitted: Classifier, toy: Toy) -> None:
    texts, labels = toy(40, seed=2)
    wrong = [*labels[:30], *("elsewhere" for _ in range(10))]
    right = sum(found == truth for found, truth in zip(fitted.predict(texts), wrong, strict=True))
    assert fitted.score(texts, wrong) == right / 40


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_answers_come_in_the_order_of_the_texts_whatever_the_batches(
    fitted: Classifier, toy: Toy, batch_size: int
) -> None:
    texts, _ = toy(40, seed=3)
    truth = dict(zip(texts, fitted.predict_proba(texts), strict=True))
    shuffled = random.Random(0).sample(texts, len(texts))
    fitted.set_params(batch_size=batch_size)
    np.testing.assert_allclose(fitted.predict_proba(shuffled), [truth[text] for text in shuffled], atol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        np.array,
        lambda texts: np.array(texts, dtype=object),
        lambda texts: pd.Series(texts, index=range(len(texts), 0, -1)),
        lambda texts: pd.Series(texts, dtype="string"),
        lambda texts: pd.DataFrame({"body": texts})["body"],
        lambda texts: [Example(text) for text in texts],
    ],
)
def test_texts_may_come_in_any_list(fitted: Classifier, toy: Toy, form: Callable[[list[str]], Any]) -> None:
    texts, labels = toy(20, seed=4)
    assert fitted.predict_proba(form(texts)).tolist() == fitted.predict_proba(texts).tolist()
    assert fitted.score(form(texts), labels) == fitted.score(texts, labels)


@pytest.mark.parametrize("form", [list, np.array, pd.Series, lambda x: pd.Series(x, index=range(len(x), 0, -1))])
@pytest.mark.parametrize(("names", "kind"), [((7, 10, -2), int), (("7", "10", "-2"), str)], ids=["ints", "strings"])
def test_labels_come_back_as_they_were_given(
    quick: Quick, toy: Toy, form: Callable[[list[Any]], Any], names: tuple[Any, ...], kind: type
) -> None:
    texts, words = toy(24)
    labels = [names[("bad", "fine", "good").index(word)] for word in words]
    classifier = quick().fit(form(texts), form(labels))
    assert classifier.classes_.tolist() == sorted(names)
    found = classifier.predict(texts)
    assert found.dtype == np.array(names).dtype
    assert {type(d.label) for d in classifier.decide(texts)} == {kind}
    assert set(found.tolist()) <= set(names)
    assert 0.0 <= classifier.score(texts, form(labels)) <= 1.0


def test_pairs_may_be_tuples_lists_or_rows_of_an_array(quick: Quick, toy: Toy) -> None:
    ones, labels = toy(24)
    pairs = list(zip(ones, toy(24, seed=5)[0], strict=True))
    classifier = quick({"optimise.lr_backbone": 1e-3}).fit(pairs, labels)
    truth = classifier.predict_proba(pairs)
    for form in ([list(pair) for pair in pairs], np.array(pairs), [Example(*pair) for pair in pairs]):
        assert classifier.predict_proba(form).tolist() == truth.tolist()
    turned = classifier.predict_proba([(b, a) for a, b in pairs])
    assert np.abs(turned - truth).max() > 1e-4
    classifier.pairs_ = None
    joined = classifier.predict_proba([f"{a} {b}" for a, b in pairs])
    assert np.abs(joined - truth).max() > 1e-4


def test_no_texts_get_no_answers(fitted: Classifier) -> None:
    assert fitted.predict([]).tolist() == []
    assert fitted.predict_proba([]).shape == (0, 3)
    assert fitted.decide([]) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.predict("one text"), r"Texts should be a list\. Found one string"),
        (lambda c: c.predict(pd.DataFrame({"text": ["good"]})), r"Texts should be a list\. Found a frame"),
        (lambda c: c.predict(["good", " "]), r"A text should not be empty\. Found an empty one in the list, row 2"),
        (lambda c: c.predict(["good", None]), r"An item should be .*Found None .*row 2"),
        (lambda c: c.predict(["good", ("a", "b")]), r"All texts should be pairs, or none"),
        (lambda c: c.fit(["a", "b"], ["x"]), r"as many labels as texts\. Found 2 texts and 1 labels"),
        (lambda c: c.fit(["a", "b"], ["x", "x"]), r"at least two different labels .*Found only `x`"),
        (lambda c: c.fit(["a", "b"], ["x", None]), r"A label should not be empty"),
        (lambda c: c.fit(["a", "b"], ["x", 0.5]), r"A label should be a word or a whole number\. Found 0\.5"),
    ],
)
def test_bad_texts_and_labels_get_a_sentence(
    fitted_once: Classifier, ask: Callable[[Classifier], Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        ask(fitted_once)


def test_an_unseen_label_among_the_validation_texts_is_named_with_its_place(quick: Quick, toy: Toy) -> None:
    with pytest.raises(DataError, match=r"Found `goood` in validation texts, row 2\. Did you mean `good`\?"):
        quick().fit(*toy(24), validation=(["a", "b"], ["good", "goood"]))


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.predict(["a"]),
        lambda c: c.predict_proba(["a"]),
        lambda c: c.decide(["a"]),
        lambda c: c.score(["a"], ["b"]),
        lambda c: c.evaluate(None),
        lambda c: c.policy_in_force(),
        lambda c: list(c.stream([Example("a")])),
        lambda c: c.save(Path("nowhere")),
    ],
)
def test_asking_before_fitting_gets_a_sentence(ask: Callable[[Classifier], Any]) -> None:
    with pytest.raises(ModelError, match=r"should be fitted or loaded first: call fit\(texts, labels\)"):
        ask(Classifier())


def test_the_policy_may_change_after_fitting(fitted: Classifier, toy: Toy) -> None:
    texts, _ = toy(20, seed=6)
    fitted.model_.config.trained_exits = [1, 2, 3, 4]
    depths = lambda **policy: [d.depth for d in fitted.set_params(**policy).decide(texts)]  # noqa: E731
    assert depths(policy="confidence", threshold=0.0) == [1] * 20
    assert depths(policy="confidence", threshold=1.0) == [4] * 20
    assert depths(policy="fixed", depth=2) == [2] * 20
    assert depths(policy="fixed", depth=0) == [4] * 20
    assert depths(policy="never") == [4] * 20
    assert depths(policy=None) == [4] * 20


def test_nobody_leaves_at_an_exit_that_was_not_trained(fitted: Classifier, toy: Toy) -> None:
    assert fitted.model_.config.trained_exits == [4]
    fitted.set_params(policy="confidence", threshold=0.0)
    assert {d.depth for d in fitted.decide(toy(20)[0])} == {4}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"policy": "confidnce"}, r"`confidnce` is not a known policy\. Did you mean 'confidence' or"),
        ({"policy": "confidence", "threshold": 1.7}, r"^`threshold` should be between 0 and 1\. Found 1\.7\.$"),
        ({"policy": "fixed", "depth": 5}, r"^`depth` should be between 1 and 4\. Found 5\.$"),
        ({"policy": "fixed", "depth": -1}, r"^`depth` should be between 1 and 4\. Found -1\.$"),
        ({"batch_size": 0}, r"^`batch_size` should be 1 or more\. Found 0\.$"),
    ],
)
def test_a_wrong_policy_gets_a_sentence(fitted: Classifier, policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fitted.set_params(**policy).predict(["good film"])


@pytest.mark.parametrize("kept", [True, False])
def test_a_setting_may_be_true_or_false(kept: bool) -> None:
    assert Classifier(settings={"stage2.keep_cache": kept}).config().stage2.keep_cache is kept


def test_settings_may_be_a_mapping_or_a_list(backbone_folder: Path) -> None:
    mapping = Classifier("ce", str(backbone_folder), {"optimise.epochs": 3, "data.text": ("a, b", 'c "d"')}, seed=5)
    listed = Classifier(
        "ce", None, [f"encoder.backbone={backbone_folder}", "optimise.epochs=3", 'data.text=["a, b", "c \\"d\\""]'], 5
    )
    assert mapping.config() == listed.config()
    assert mapping.config().data.text == ("a, b", 'c "d"')
    assert mapping.config().optimise.seed == 5


def test_one_warning_counts_the_texts_that_were_cut(fitted: Classifier, quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    texts[3] = texts[17] = "good " * 80
    with pytest.warns(TruncationWarning) as caught:
        fitted.predict(texts)
    assert [str(w.message) for w in caught] == ["2 of 24 texts are longer than 64 tokens and were cut."]
    with pytest.warns(TruncationWarning) as caught:
        quick().fit(texts, labels)
    assert [str(w.message) for w in caught] == ["2 of 24 texts are longer than 64 tokens and were cut."]


def test_a_threshold_or_a_depth_alone_says_which_policy_is_meant(fitted: Classifier) -> None:
    fitted.set_params(policy=None, threshold=0.7, depth=None)
    assert fitted.policy_in_force() == {"name": "confidence", "threshold": 0.7}
    fitted.set_params(threshold=None, depth=2)
    assert fitted.policy_in_force() == {"name": "fixed", "depth": 2}
    fitted.set_params(policy="never", threshold=0.7)
    assert fitted.policy_in_force() == {"name": "never"}
