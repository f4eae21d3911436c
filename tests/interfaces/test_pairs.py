"""A model of pairs answers pairs, one of single texts those: an answer to the other kind would mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp import Classifier
from offramp.errors import DataError
from offramp.preparation import as_table

Toy = Callable[..., tuple[list[str], list[str]]]
Quick = Callable[..., Classifier]
Texts = list[Any]

CUT = {"compress.method": "truncate", "compress.layers": 2}


def of_kind(toy: Toy, paired: bool, count: int = 24) -> tuple[Texts, list[str]]:
    texts, labels = toy(count)
    return list(zip(texts, reversed(texts), strict=True)) if paired else texts, labels


def refuses(classifier: Classifier, learnt: Texts, other: Texts, labels: list[str]) -> None:
    """It answers what it learnt, and whatever is asked about the other kind is refused."""
    assert len(classifier.predict(learnt)) == len(learnt)
    table = as_table(other, labels, "others")
    for asked in (
        lambda: classifier.predict(other),
        lambda: classifier.predict_proba(other),
        lambda: list(classifier.stream(table.examples)),
        lambda: classifier.evaluate(table),
        lambda: classifier.calibrate(table),
    ):
        with pytest.raises(DataError, match=r"The model learnt (pairs of|single) texts and should be given those"):
            asked()
    assert len(classifier.predict([])) == 0


@pytest.mark.parametrize("settings", [{}, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("paired", [False, True])
def test_the_other_kind_of_texts_is_refused_also_by_what_was_saved(
    quick: Quick, toy: Toy, tmp_path: Path, paired: bool, settings: dict[str, Any]
) -> None:
    learnt, labels = of_kind(toy, paired)
    other, _ = of_kind(toy, not paired)
    classifier = quick(settings).fit(learnt, labels)
    refuses(classifier, learnt, other, labels)
    classifier.save(tmp_path / "saved")
    refuses(Classifier.load(tmp_path / "saved"), learnt, other, labels)


@pytest.mark.parametrize("paired", [False, True])
def test_an_export_refuses_it_too(quick: Quick, toy: Toy, tmp_path: Path, paired: bool) -> None:
    learnt, labels = of_kind(toy, paired)
    quick().fit(learnt, labels).export(tmp_path / "exported")
    refuses(Classifier.load(tmp_path / "exported"), learnt, of_kind(toy, not paired)[0], labels)


@pytest.mark.parametrize("paired", [False, True])
def test_texts_to_validate_with_are_of_the_kind_that_is_learnt(quick: Quick, toy: Toy, paired: bool) -> None:
    with pytest.raises(DataError, match="The model learnt"):
        quick().fit(*of_kind(toy, paired), validation=of_kind(toy, not paired))


def test_a_model_of_elsewhere_takes_both(quick: Quick, toy: Toy) -> None:
    texts, labels = toy(24)
    model, tokenizer = (fitted := quick().fit(texts, labels)).model_, fitted.tokenizer_
    model.config.pairs = None
    anybodys = Classifier.of(model, tokenizer)
    assert len(anybodys.predict(texts)) == len(anybodys.predict(of_kind(toy, True)[0])) == 24


def test_a_folder_of_before_takes_both(quick: Quick, toy: Toy, tmp_path: Path) -> None:
    texts, labels = toy(24)
    classifier = quick().fit(texts, labels)
    del classifier.model_.config.pairs  # nothing of it is then written
    classifier.save(tmp_path / "old")
    assert "pairs" not in (tmp_path / "old" / "config.json").read_text("utf-8")
    assert len(Classifier.load(tmp_path / "old").predict(of_kind(toy, True)[0])) == 24


def test_the_command_line_says_so(offramp: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sentence1,sentence2\ngood,bad\n")
    ran = offramp("predict", model, tmp_path / "a.csv")
    assert (ran.code, ran.out) == (2, "")
    assert "The model learnt single texts and should be given those. Found pairs: give one text each." in ran.err
