"""`offramp evaluate`: the scores of a model on labelled texts, under a policy and exit by exit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from offramp.data.sources import read

Run = Callable[..., Any]


def test_the_scores_are_those_of_the_predictions(offramp: Run, model: Path, tables: Path) -> None:
    found = offramp("evaluate", model, tables / "test.csv", "--json").json
    predicted = [row["label"] for row in offramp("predict", model, tables / "test.csv", "--json").lines]
    truth = read(tables / "test.csv").labels
    assert found["n"] == len(predicted) == 30
    assert found["accuracy"] == sum(a == b for a, b in zip(predicted, truth, strict=True)) / 30
    assert found["macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(truth, predicted))
    assert found["labels"] == ["bad", "fine", "good"]
    assert sum(map(sum, found["confusion"])) == 30


def test_every_exit_has_its_scores_and_the_last_ones_are_the_models(offramp: Run, model: Path, tables: Path) -> None:
    found = offramp("evaluate", model, tables / "test.csv", "--json").json
    assert (found["mean_depth"], found["depths"]) == (4.0, {"1": 0, "2": 0, "3": 0, "4": 30})
    assert [row["depth"] for row in found["by_exit"]] == [1, 2, 3, 4]
    assert [row["trained"] for row in found["by_exit"]] == [False, False, False, True]
    assert found["by_exit"][-1]["accuracy"] == found["accuracy"]
    assert found["policy"] == {"name": "never"}


def test_a_fixed_depth_scores_as_that_exit_and_warns_that_it_was_not_trained(
    offramp: Run, model: Path, tables: Path
) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--policy", "fixed", "--depth", 2, "--json")
    assert ran.err == "warning: the exit at depth 2 was not trained; trained: 4\n"
    assert (ran.json["mean_depth"], ran.json["depths"]["2"]) == (2.0, 30)
    assert ran.json["accuracy"] == ran.json["by_exit"][1]["accuracy"]
    assert ran.json["policy"] == {"name": "fixed", "depth": 2}


def test_nobody_leaves_at_an_untrained_exit_under_confidence(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--policy", "confidence", "--threshold", 0, "--json")
    assert ran.json["mean_depth"] == 4.0
    assert ran.json["policy"] == {"name": "confidence", "threshold": 0.0}


def test_people_read_a_line_and_a_table(offramp: Run, model: Path, tables: Path) -> None:
    found = offramp("evaluate", model, tables / "test.csv", "--json").json
    ran = offramp("evaluate", model, tables / "test.csv")
    assert (ran.code, ran.err) == (0, "")
    said = " ".join(ran.out.split())
    assert f"accuracy {found['accuracy']:.4f} macro-F1 {found['macro_f1']:.4f}" in said
    assert "30 texts, mean depth 4.00 of 4" in said
    assert said.count("untrained") == 9


def test_a_page_is_written_where_asked(offramp: Run, model: Path, tables: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    assert offramp("evaluate", model, tables / "test.csv", "--report", page).code == 0
    assert page.read_text("utf-8").rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_a_sentence(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--report", tables / "test.csv" / "page.html")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: The report should go to a file that can be written. Found `")
