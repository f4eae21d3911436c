"""`offramp evaluate`: the scores of a model on labelled texts, under a policy and exit by exit."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from offramp import Classifier
from offramp.data.sources import read
from offramp.preparation import scored
from offramp.runtime import sweep
from offramp.types import Batch

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
    low, high = found["accuracy_between"]
    assert low < found["accuracy"] <= high
    assert f"accuracy on all such texts: {low:.3f} to {high:.3f} with 95 % confidence" in said
    assert said.count("untrained") == 9


def test_a_page_is_written_where_asked(offramp: Run, model: Path, tables: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    assert offramp("evaluate", model, tables / "test.csv", "--report", page).code == 0
    assert page.read_text("utf-8").rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_a_sentence(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--report", tables / "test.csv" / "page.html")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: The report should go to a file that can be written. Found `")


# A map of what an exit sees.


def heading(page: Path) -> list[str]:
    return re.findall(r'aria-label="What the exit at depth (\d) sees\.', page.read_text("utf-8"))


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_the_page_maps_the_exit_that_is_asked_for(
    offramp: Run, staged: Any, tables: Path, tmp_path: Path, depth: int
) -> None:
    page = tmp_path / "page.html"
    ran = offramp("evaluate", staged.folder, tables / "test.csv", "--report", page, "--map", depth)
    assert (ran.code, ran.err) == (0, "")
    assert heading(page) == [str(depth)]
    for name in ("bad", "fine", "good"):
        assert f">{name}</text>" in page.read_text("utf-8")


def test_the_map_counts_texts_by_the_cosine_to_their_label_embedding(
    offramp: Run, staged: Any, tables: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert offramp("evaluate", staged.folder, tables / "test.csv", "--report", page, "--map", 2).code == 0
    classifier, table = Classifier.load(staged.folder), read(tables / "test.csv")
    right = 0
    for example in table.examples:  # one at a time
        tokens = classifier.tokenizer_(example.text, return_tensors="pt")
        batch = Batch(tokens["input_ids"], tokens["attention_mask"], tokens["token_type_ids"])
        with torch.no_grad():
            output = classifier.model_.outputs(batch, [2])[2]
        cosines = torch.cosine_similarity(output.representation, output.label_embeddings)  # (C,)
        right += classifier.classes_[int(cosines.argmax())] == example.label
    assert f"is that of its label for {right / 30:.1%} of 30 texts." in page.read_text("utf-8")


def test_the_middle_exit_is_mapped_when_none_is_asked_for(
    offramp: Run, staged: Any, model: Path, tables: Path, tmp_path: Path
) -> None:
    for folder, depth in ((staged.folder, "2"), (model, "4")):
        assert offramp("evaluate", folder, tables / "test.csv", "--report", tmp_path / "page.html").code == 0
        assert heading(tmp_path / "page.html") == [depth]


@pytest.mark.parametrize("texts", [1, 2, 3, 19])
def test_few_texts_are_mapped_only_when_asked_for(
    offramp: Run, model: Path, write_table: Run, toy: Run, tmp_path: Path, texts: int
) -> None:
    data, page = write_table(tmp_path / "few.csv", list(zip(*toy(texts, seed=7), strict=True))), tmp_path / "page.html"
    assert offramp("evaluate", model, data, "--report", page).code == 0
    assert heading(page) == []
    ran = offramp("evaluate", model, data, "--report", page, "--map", 4)
    assert (ran.code, ran.err) == (0, "")
    assert heading(page) == ["4"]


@pytest.mark.parametrize(("depth", "which"), [(0, "all"), (5, "all"), (-1, "all"), (2, "last")])
def test_an_exit_that_is_not_there_or_not_trained_is_refused_with_those_that_are(
    offramp: Run, staged: Any, model: Path, tables: Path, tmp_path: Path, depth: int, which: str
) -> None:
    folder, possible = (staged.folder, "1, 2, 3, 4") if which == "all" else (model, "4")
    page = tmp_path / "page.html"
    ran = offramp("evaluate", folder, tables / "test.csv", "--report", page, "--map", depth)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: `--map` should be the depth of an exit that was trained: {possible}. Found {depth}.\n"
    assert not page.exists()


def test_a_map_without_a_page_is_refused(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--map", 4)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: `--map` should come with `--report FILE`")


def test_texts_that_are_cut_are_counted_once_though_the_map_reads_them_again(
    offramp: Run, model: Path, write_table: Run, tmp_path: Path
) -> None:
    data = write_table(tmp_path / "long.csv", [("film " * 300, "bad"), ("plot", "good")])
    ran = offramp("evaluate", model, data, "--report", tmp_path / "page.html", "--map", 4)
    assert ran.code == 0
    assert ran.err.startswith("warning: 1 of 2 texts ")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["linear", "residual", "match", "fusion", "leam", "lsan"])
def test_every_kind_of_exit_can_be_mapped(
    offramp: Run, quick: Run, toy: Run, tables: Path, tmp_path: Path, kind: str
) -> None:
    quick({"exits.kind": kind}).fit(*toy(30)).save(tmp_path / "model")
    page = tmp_path / "page.html"
    ran = offramp("evaluate", tmp_path / "model", tables / "test.csv", "--report", page, "--map", 4)
    assert (ran.code, ran.err) == (0, "")
    assert heading(page) == ["4"]


# The speed-quality curve, and the certificate.


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here looks at times."""
    monkeypatch.setattr(sweep, "ROUNDS", 1)


@pytest.mark.usefixtures("short_rounds")
def test_a_curve_is_printed_as_json_as_a_table_and_on_the_page(
    offramp: Run, staged: Any, tables: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    asked = ("evaluate", staged.folder, tables / "test.csv", "--curve", "--policy", "margin", "--report", page)
    found = offramp(*asked, "--json").json
    curve = found["curve"]
    assert (curve["policy"], curve["texts"], curve["layers"], curve["calibrated"]) == ("margin", 30, 4, None)
    assert [point["accuracy"] for point in curve["truncated"]] == [row["accuracy"] for row in found["by_exit"][:3]]
    assert curve["full"]["accuracy"] == found["by_exit"][-1]["accuracy"]
    assert page.read_text("utf-8").count(">Speed and quality</h2>") == 1
    ran = offramp(*asked)
    assert (ran.code, ran.err) == (0, "")
    said = " ".join(ran.out.split())
    assert "nobody leaves" in said
    assert "which flatters them a little" in said
    for point in curve["points"]:
        assert f"{point['accuracy']:.4f} │ {point['mean_layers']:.2f} │" in said
    assert [f"│ {depth} │ " in said for depth in curve["auroc"]] == [True] * 4


def test_without_being_asked_for_there_is_no_curve(offramp: Run, staged: Any, tables: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = offramp("evaluate", staged.folder, tables / "test.csv", "--report", page, "--json").json
    assert not {"curve", "certificate"} & set(found)
    assert "Speed and quality" not in page.read_text("utf-8")


def test_a_model_with_one_trained_exit_has_nothing_to_sweep(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "test.csv", "--curve")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: A model should have a trained exit below the last for its policy to be swept.")
    assert "nothing to sweep: train with a recipe that trains every exit" in ran.err


@pytest.mark.usefixtures("short_rounds")
def test_the_certificate_stands_in_the_record_on_the_page_and_on_the_curve(
    offramp: Run, staged: Any, tables: Path, toy: Run, write_table: Run, tmp_path: Path
) -> None:
    model, page = Path(shutil.copytree(staged.folder, tmp_path / "model")), tmp_path / "page.html"
    held_out = write_table(tmp_path / "held-out.csv", list(zip(*toy(120, seed=5), strict=True)))
    wanted = ("--max-disagreement", 0.6, "--policy", "confidence", "--json")
    certificate = offramp("calibrate", model, held_out, *wanted).json
    found = offramp("evaluate", model, tables / "test.csv", "--curve", "--report", page, "--json").json
    assert found["certificate"] == certificate
    told = found["curve"]["calibrated"]
    assert (told["accuracy"], told["mean_layers"]) == (found["accuracy"], found["mean_depth"])
    promise = Classifier.load(model).certificate
    assert promise is not None
    assert f"<dt>certificate</dt><dd>{html.escape(promise.promises())}</dd>" in page.read_text("utf-8")
    # Under another policy nothing is promised.
    other = ("evaluate", model, tables / "test.csv", "--policy", "never", "--report", page, "--json")
    assert "certificate" not in offramp(*other).json
    assert "<dt>certificate</dt>" not in page.read_text("utf-8")


def test_a_log_from_before_there_were_phases_gives_a_page(
    offramp: Run, model: Path, tables: Path, tmp_path: Path
) -> None:
    older, page = Path(shutil.copytree(model, tmp_path / "model")), tmp_path / "page.html"
    log = older / "training" / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all(line.pop("phase") == "single" for line in lines)
    assert [line.pop("by_exit") for line in lines if line["kind"] == "epoch"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert offramp("evaluate", older, tables / "test.csv", "--report", page).code == 0
    assert page.read_text("utf-8").count(">Training</h2>") == 1
    assert "Validation by epoch" in page.read_text("utf-8")


# Texts that the model knows, and those that a protocol leaves.


def test_texts_that_the_model_was_trained_on_are_counted(offramp: Run, model: Path, tables: Path) -> None:
    ran = offramp("evaluate", model, tables / "train.csv")
    told = "texts were seen in training, to learn from or to choose the epoch: they flatter."
    assert ran.err == f"warning: 120 of 120 {told}\n"
    assert offramp("evaluate", model, tables / "test.csv").err == ""


def test_the_half_that_a_protocol_leaves_is_scored(
    offramp: Run, quick: Callable[..., Classifier], write_table: Run, fresh: Run, tables: Path, tmp_path: Path
) -> None:
    validation, folder = write_table(tmp_path / "all.csv", list(zip(*fresh(40), strict=True))), tmp_path / "model"
    classifier = quick({"protocol.split": "scl"})
    train, whole = read(tables / "train.csv"), read(validation)
    classifier.fit_table(train, whole, folder)
    ran = offramp("evaluate", folder, validation, "--json")
    assert ran.err.startswith("warning: 20 of 40 texts were seen in training")
    assert ran.err.endswith("they flatter. --protocol leaves them out.\n")
    ran = offramp("evaluate", folder, validation, "--protocol", "--json")
    assert (ran.json["n"], ran.err) == (20, "")
    left = scored(whole, train, classifier.config())
    assert ran.json["accuracy"] == classifier.score([e.text for e in left.examples], left.labels)


def test_texts_of_labels_that_a_protocol_left_out_are_not_scored(
    offramp: Run, quick: Callable[..., Classifier], model: Path, tables: Path, tmp_path: Path
) -> None:
    quick({"protocol.classes": 2}).fit_table(read(tables / "train.csv"), None, tmp_path / "model")
    ran = offramp("evaluate", tmp_path / "model", tables / "test.csv")
    assert (ran.code, ran.out) == (2, "")
    ran = offramp("evaluate", tmp_path / "model", tables / "test.csv", "--protocol", "--json")
    assert ran.json["n"] == sum(label != "good" for label in read(tables / "test.csv").labels)
    ran = offramp("evaluate", model, tables / "test.csv", "--protocol")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("Found neither: score all of them.\n")


def test_where_no_text_has_a_label_of_the_model_that_is_said(
    offramp: Run, quick: Callable[..., Classifier], write_table: Run, tables: Path, tmp_path: Path
) -> None:
    quick({"protocol.classes": 2}).fit_table(read(tables / "train.csv"), None, tmp_path / "model")
    data = write_table(tmp_path / "good.csv", [("a film", "good")])
    ran = offramp("evaluate", tmp_path / "model", data, "--protocol")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: Some texts should have a label of the model: bad, fine. Found none.\n"
