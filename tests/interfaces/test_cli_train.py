"""`offramp train`: a table of labelled texts becomes a model folder, once."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp import Classifier

Run = Callable[..., Any]
Arguments = Callable[..., list[object]]
OF_RUN = {"score", "metric", "best_epoch", "epochs", "updates", "seconds", "stopped_early", "by_exit"}
KEYS = {"out", "report", "validation"} | OF_RUN


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, and what is in it."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """The trained model, to write to."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def test_the_result_is_one_json_document_on_standard_output(trained: Any) -> None:
    assert trained.ran.code == 0
    found = trained.ran.json
    assert set(found) == KEYS
    assert (found["out"], found["report"]) == (str(trained.folder), str(trained.folder / "report.html"))
    assert (found["epochs"], found["updates"], found["metric"]) == (2, 14, "accuracy")  # 108 of 120 texts by 16, twice
    assert found["validation"]["n"] == 12
    assert found["score"] == found["validation"]["accuracy"]
    assert found["by_exit"] == {"4": found["score"]}


def test_progress_goes_to_standard_error_alone(trained: Any) -> None:
    assert [line.split()[:2] for line in trained.ran.err.splitlines()] == [["epoch", "1"], ["epoch", "2"]]
    assert trained.ran.out.count("\n") == 1


def test_the_folder_holds_a_model_its_configuration_and_a_report(model: Path, backbone_folder: Path) -> None:
    assert Classifier.load(model).classes_.tolist() == ["bad", "fine", "good"]
    written = tomllib.loads((model / "offramp.toml").read_text("utf-8"))
    assert (written["recipe"], written["optimise"]["epochs"], written["exits"]["size"]) == ("ce", 2, 16)
    assert written["encoder"]["backbone"] == str(backbone_folder)
    page = (model / "report.html").read_text("utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert not list(model.glob("training/checkpoint-*"))


def test_people_read_the_score_and_the_paths(offramp: Run, train_arguments: Arguments, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "model"
    out.mkdir(parents=True)  # an empty folder is as good as none
    ran = offramp(*train_arguments(out, "--seed", 3, **{"optimise.epochs": 1}))
    assert ran.code == 0, ran.err
    first, *paths = ran.out.splitlines()
    assert first.startswith("epoch 1 of 1 is kept: validation accuracy 0.")
    assert paths == [f"model   {out}", f"report  {out / 'report.html'}"]
    assert Classifier.load(out).config_.optimise.seed == 3


def test_a_validation_file_is_what_chooses_the_epoch(
    offramp: Run, train_arguments: Arguments, tables: Path, tmp_path: Path
) -> None:
    ran = offramp(
        *train_arguments(tmp_path / "m", "--validation", tables / "test.csv", "--json", **{"optimise.epochs": 1})
    )
    assert ran.json["validation"]["n"] == 30
    assert ran.json["updates"] == 8  # all 120 texts by 16


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (("sentence", "label"), []),
        (("sentence1", "sentence2", "label"), []),
        (("question", "answer, short", "class"), ["--text", "question", "--text", "answer, short", "--label", "class"]),
    ],
)
def test_the_columns_are_the_usual_ones_or_the_named_ones(
    offramp: Run,
    train_arguments: Arguments,
    write_table: Callable[..., Path],
    toy: Callable[..., Any],
    tmp_path: Path,
    header: tuple[str, ...],
    flags: list[str],
) -> None:
    texts, labels = toy(40)
    paired = len(header) == 3
    rows = [(t, t[::-1], label) if paired else (t, label) for t, label in zip(texts, labels, strict=True)]
    data = write_table(tmp_path / "data.csv", rows, header)
    ran = offramp(*train_arguments(tmp_path / "m", *flags, data=data, **{"optimise.epochs": 1}))
    assert ran.code == 0, ran.err
    # What was named in training need not be named again.
    assert offramp("evaluate", tmp_path / "m", data, "--json").json["n"] == 40
    truth = Classifier.load(tmp_path / "m").decide([row[:2] for row in rows] if paired else texts)
    answers = offramp("predict", tmp_path / "m", data, "--json").lines
    assert [answer["label"] for answer in answers] == [p.label for p in truth]
    assert [answer["probability"] for answer in answers] == pytest.approx([p.probability for p in truth], abs=1e-5)


# Two stages.


def test_two_stages_train_every_exit_and_say_its_score(staged: Any) -> None:
    found = staged.ran.json
    assert set(found) == KEYS
    # 108 of 120 texts: twice by 16, then twice by 32.
    assert (found["epochs"], found["updates"]) == (2, 2 * 7 + 2 * 4)
    exits = found["validation"]["by_exit"]
    assert [(row["depth"], row["trained"]) for row in exits] == [(depth, True) for depth in (1, 2, 3, 4)]
    # Each exit's weights are those of its own best epoch.
    assert found["by_exit"] == {str(row["depth"]): row["accuracy"] for row in exits}
    assert Classifier.load(staged.folder).model_.config.trained_exits == [1, 2, 3, 4]


def test_the_progress_of_two_stages_tells_them_apart(staged: Any) -> None:
    first, second = staged.ran.err.splitlines()[:2], staged.ran.err.splitlines()[2:]
    assert [line.split()[:2] for line in first] == [["epoch", "1"], ["epoch", "2"]]
    assert [line.split()[:3] for line in second] == [["exits,", "epoch", "1"], ["exits,", "epoch", "2"]]
    assert all("(mean of 3 exits, " in line for line in second)


def test_the_report_of_two_stages_has_every_exit_their_mean_and_both_stages(staged: Any) -> None:
    page = (staged.folder / "report.html").read_text("utf-8")
    exits = staged.ran.json["validation"]["by_exit"]
    for row in exits:
        assert f'<th scope="row">{row["depth"]}</th><td class="n">{row["accuracy"]:.3f}</td>' in page
    mean = sum(row["accuracy"] for row in exits) / 4
    assert f'<th scope="row">Mean</th><td class="n">{mean:.3f}</td>' in page
    assert f"the mean over 4 exits is {mean:.3f}." in page
    assert f"mean accuracy {mean:.3f}</text>" in page
    assert [page.count(f">{heading}</h2>") for heading in ("Training", "Training of the exits below the last")] == [
        1,
        1,
    ]
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


# A folder that is not empty.


def test_resuming_a_finished_run_trains_nothing_and_says_so(offramp: Run, trained: Any, copy: Path) -> None:
    before = content(copy)
    ran = offramp(*(copy if word == trained.folder else word for word in trained.arguments), "--resume")
    assert ran.code == 0, ran.err
    assert ran.err == f"The model in `{copy}` was finished before: nothing was trained.\n"
    assert {**ran.json, "out": "", "report": ""} == {**trained.ran.json, "out": "", "report": ""}
    after = content(copy)
    assert set(after) == set(before)
    assert [name for name in before if after[name] != before[name]] in ([], ["report.html"])


def test_resuming_a_finished_run_with_other_settings_or_texts_is_refused(
    offramp: Run, train_arguments: Arguments, tables: Path, copy: Path
) -> None:
    before = content(copy)
    ran = offramp(*train_arguments(copy, "--resume", **{"optimise.epochs": 5}))
    assert (ran.code, ran.out) == (2, "")
    assert "should have the settings it began with. Changed: optimise.epochs" in ran.err
    ran = offramp(*train_arguments(copy, "--resume", data=tables / "test.csv"))
    assert ran.code == 2
    assert "should have the texts it began with" in ran.err
    assert content(copy) == before


def test_resuming_a_model_without_its_run_is_refused(offramp: Run, train_arguments: Arguments, copy: Path) -> None:
    shutil.rmtree(copy / "training")
    before = content(copy)
    ran = offramp(*train_arguments(copy, "--resume"))
    assert ran.code == 2
    assert "holds a model without its run" in ran.err
    assert content(copy) == before


def test_a_folder_with_a_model_is_not_written_over_unless_asked(
    offramp: Run, train_arguments: Arguments, copy: Path
) -> None:
    (copy / "notes.txt").write_text("mine")
    before = content(copy)
    ran = offramp(*train_arguments(copy))
    assert (ran.code, content(copy)) == (2, before)
    assert f"`{copy}` holds a model already. Choose another folder, or add --overwrite." in ran.err
    ran = offramp(*train_arguments(copy, "--overwrite", "--seed", 9, **{"optimise.epochs": 1}))
    assert ran.code == 0, ran.err
    assert Classifier.load(copy).config_.optimise.seed == 9
    assert (copy / "notes.txt").read_text() == "mine"


def test_a_damaged_model_can_be_overwritten(offramp: Run, train_arguments: Arguments, copy: Path) -> None:
    (copy / "offramp.json").write_text('{"files": ')
    ran = offramp(*train_arguments(copy, "--overwrite", **{"optimise.epochs": 1}))
    assert ran.code == 0, ran.err
    assert Classifier.load(copy).config_.optimise.epochs == 1


def test_an_unfinished_run_is_not_written_over_unless_asked(
    offramp: Run, train_arguments: Arguments, copy: Path
) -> None:
    (copy / "offramp.json").unlink()
    before = content(copy)
    ran = offramp(*train_arguments(copy))
    assert (ran.code, content(copy)) == (2, before)
    assert "holds an unfinished run. Add --resume to go on, or --overwrite to begin anew." in ran.err


@pytest.mark.parametrize("flag", [(), ("--resume",), ("--overwrite",)], ids=str)
@pytest.mark.parametrize("name", ["photo.jpg", "training/songs.csv"])
def test_a_foreign_folder_is_refused_and_left_alone(
    offramp: Run, train_arguments: Arguments, tmp_path: Path, flag: tuple[str, ...], name: str
) -> None:
    out = tmp_path / "mine"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("precious")
    ran = offramp(*train_arguments(out, *flag))
    assert (ran.code, ran.out) == (2, "")
    assert f"`{out}` should be empty or not exist. It holds other files: choose another folder." in ran.err
    assert content(out) == {name: b"precious"}


@pytest.mark.parametrize("flag", [(), ("--resume",), ("--overwrite",)], ids=str)
def test_a_file_in_the_place_of_the_folder_is_refused(
    offramp: Run, train_arguments: Arguments, tmp_path: Path, flag: tuple[str, ...]
) -> None:
    (tmp_path / "out").write_text("precious")
    ran = offramp(*train_arguments(tmp_path / "out", *flag))
    assert ran.code == 2
    assert f"`{tmp_path / 'out'}` should be a folder. Found a file." in ran.err
    ran = offramp(*train_arguments(tmp_path / "out" / "below", *flag))
    assert ran.code == 2
    assert "should be writable" in ran.err
    assert (tmp_path / "out").read_text() == "precious"


def test_labels_that_look_like_sets_are_named_before_the_training(
    offramp: Run, train_arguments: Callable[..., list[object]], write_table: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [(f"film {n}", ("good", "bad", "good|bad")[n % 3]) for n in range(60)]
    ran = offramp(*train_arguments(tmp_path / "m", data=write_table(tmp_path / "sets.csv", rows)))
    assert ran.code == 0
    assert ran.err.startswith("warning: 20 of 60 labels, such as `good|bad`")
    assert ran.err.count("--set data.labels=set") == 1
