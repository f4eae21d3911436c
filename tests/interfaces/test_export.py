"""`offramp export`: the model as ONNX segments answers as it did, in every verb, and has to be calibrated itself."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp import Classifier
from offramp.data.sources import read
from offramp.errors import ConfigError, DataError, ModelError
from offramp.runtime.certified import VoidCertificate
from offramp.types import Example

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def certified(staged: Any, held_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a certificate; no test may write to it."""
    made = Path(shutil.copytree(staged.folder, tmp_path_factory.mktemp("to-export") / "model"))
    classifier = Classifier.load(made)
    classifier.calibrate(read(held_out), max_drop=0.2, policy="confidence")
    classifier.save_certificate(made)
    return made


@pytest.fixture(scope="session")
def exported(certified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as segments, one per layer; no test may write to it."""
    folder = tmp_path_factory.mktemp("exported") / "deep" / "model"
    assert Classifier.load(certified).export(folder) == {}
    return folder


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "exported"))


def refused(ran: Any, message: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err
    assert "Traceback" not in ran.err


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# It answers as it did.


def test_a_folder_holds_segments_and_no_weights_of_torch(exported: Path) -> None:
    names = {file.name for file in exported.iterdir()}
    assert names >= {"exit-1.onnx", "exit-4.onnx", "labels.safetensors", "onnx.json", "offramp.json", "tokenizer.json"}
    assert "model.safetensors" not in names
    assert [entry.name for entry in exported.parent.iterdir()] == ["model"]
    assert not [name for name in names if name.startswith(".")]


@pytest.mark.parametrize("policy", [{}, {"threshold": 0.6}, {"policy": "patience", "threshold": 2}, {"depth": 2}])
def test_answers_are_those_of_torch(staged: Any, exported: Path, toy: Run, policy: dict[str, Any]) -> None:
    texts = toy(60, seed=7)[0]
    truth, found = (Classifier.load(folder, **policy) for folder in (staged.folder, exported))
    wanted, given = truth.decide(texts), found.decide(texts)
    assert [(a.label, a.depth, a.certified) for a in given] == [(a.label, a.depth, a.certified) for a in wanted]
    assert found.predict_proba(texts) == pytest.approx(truth.predict_proba(texts), abs=1e-4)
    assert found.predict(texts).tolist() == truth.predict(texts).tolist()


def test_the_verbs_read_it(offramp: Run, staged: Any, exported: Path, tables: Path, tmp_path: Path) -> None:
    truth = offramp("evaluate", staged.folder, tables / "test.csv", "--threshold", 0.6, "--json").json
    page = tmp_path / "page.html"
    ran = offramp("evaluate", exported, tables / "test.csv", "--threshold", 0.6, "--report", page, "--json")
    assert (ran.code, ran.err) == (0, "")
    for name in ("accuracy", "depths", "by_exit", "confusion", "policy"):
        assert ran.json[name] == truth[name]
    assert page.read_text("utf-8").rstrip().endswith("</html>")
    wanted = offramp("predict", staged.folder, tables / "test.csv", "--json").lines
    given = offramp("predict", exported, tables / "test.csv", "--json", "--threads", 1).lines
    for one, other in zip(given, wanted, strict=True):
        assert one == {**other, "probability": pytest.approx(other["probability"], abs=1e-4)}


def test_it_is_calibrated_itself_and_certified_for_its_engine(
    offramp: Run, copy: Path, held_out: Path, tables: Path
) -> None:
    ran = offramp("calibrate", copy, held_out, "--max-drop", 0.2, "--policy", "confidence", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["engine"] == "onnx"
    assert ran.json["thresholds"]
    lines = offramp("predict", copy, tables / "test.csv", "--json").lines
    assert {line["certified"] for line in lines} == {True}
    assert min(line["depth"] for line in lines) < 4


def test_a_certificate_does_not_go_along_and_is_void_beside_the_export(
    offramp: Run, certified: Path, exported: Path, copy: Path, tables: Path
) -> None:
    assert not (exported / "certificate.json").exists()
    assert Classifier.load(exported).certificate is None
    shutil.copy(certified / "certificate.json", copy)
    with pytest.warns(VoidCertificate, match=r"on another engine \(torch, not onnx\)"):
        assert Classifier.load(copy).certificate is None
    ran = offramp("predict", copy, tables / "test.csv", "--json")
    assert {line["certified"] for line in ran.lines} == {False}
    assert ran.err.startswith("warning: The certificate in `")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the export is asked to write; tracing takes seconds."""
    seen: list[Any] = []

    def spy(*given: Any) -> dict[str, Any]:
        seen.extend(given)
        return {"texts": 240, "accuracy_before": 0.95, "accuracy_after": 0.94}

    monkeypatch.setattr("offramp.classifier.export", spy)
    return seen


def test_the_exits_that_the_certified_policy_reads_are_exported(
    offramp: Run, certified: Path, staged: Any, tmp_path: Path, asked: list[Any]
) -> None:
    told = Classifier.load(certified).certificate
    assert told is not None
    ran = offramp("export", certified, "--out", tmp_path / "m")
    assert (ran.code, asked.pop(5), asked[0]) == (0, list(told.exits), tmp_path / "m")
    assert f"run `offramp calibrate {tmp_path / 'm'} DATA` again" in ran.out
    assert f"Exits exported: {', '.join(map(str, [*told.exits, 4]))}, which are those that" in ran.out
    for folder, exits, wanted in ((certified, ("--exits", "3,1"), [3, 1]), (staged.folder, (), None)):
        asked.clear()
        assert offramp("export", folder, "--out", tmp_path / "m", *exits).code == 0
        assert asked[5] == wanted


# In 8 bits.


@pytest.mark.slow
def test_an_exit_fewer_in_8_bits_is_a_model_as_any(
    offramp: Run, staged: Any, held_out: Path, tables: Path, tmp_path: Path
) -> None:
    out, table = tmp_path / "small", read(held_out)
    found = Classifier.load(staged.folder).export(out, int8=True, exits=[2], data=table, max_drop=0.5)
    assert sorted(file.name for file in out.glob("*.onnx")) == ["exit-2.onnx", "exit-4.onnx"]
    for when, name, folder in (("before", "torch", staged.folder), ("after", "onnx int8", out)):
        loaded = Classifier.load(folder, policy="never")
        assert loaded.engine_.name == name
        assert found[f"accuracy_{when}"] == (loaded.predict(table.examples) == table.labels).mean()
    assert found["texts"] == 240
    scored = offramp("evaluate", out, tables / "test.csv", "--threshold", 0, "--json").json
    assert [row["depth"] for row in scored["by_exit"]] == [2, 4]
    assert scored["depths"] == {"1": 0, "2": 30, "3": 0, "4": 0}
    refused(offramp("predict", out, tables / "test.csv", "--depth", 3), "those that were exported (2, 4). Found 3.")
    told = offramp("calibrate", out, held_out, "--max-drop", 0.3, "--policy", "margin", "--json").json
    assert told["engine"] == "onnx int8"
    assert {line["certified"] for line in offramp("predict", out, tables / "test.csv", "--json").lines} == {True}


def test_both_accuracies_are_told(offramp: Run, staged: Any, held_out: Path, tmp_path: Path, asked: list[Any]) -> None:
    arguments = ("export", staged.folder, "--out", tmp_path / "m", "--int8", "--data", held_out, "--max-drop", 0.02)
    ran = offramp(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["texts", "240"],
        ["accuracy", "before", "0.9500"],
        ["accuracy", "after", "0.9400"],
        ["model", str(tmp_path / "m")],
    ]
    assert (asked[4], asked[6].most, len(asked[6].tokens)) == (True, 0.02, 240)
    found = offramp(*arguments, "--json").json
    assert found == {
        "out": str(tmp_path / "m"),
        "texts": 240,
        "accuracy_before": 0.95,
        "accuracy_after": 0.94,
    }


def test_a_loss_above_the_limit_is_refused_and_nothing_is_written(
    offramp: Run, staged: Any, held_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([0.9, 0.8])
    monkeypatch.setattr("offramp.runtime.exported.Comparison._accuracy", lambda *_: next(accuracies))
    out = tmp_path / "new" / "deep" / "model"
    options = ("--int8", "--data", held_out, "--max-drop", 0.05, "--exits", 4)
    ran = offramp("export", staged.folder, "--out", out, *options)
    refused(ran, "should lose at most 0.05 of accuracy. Found 0.9000 before and 0.8000 after, on 240 texts.")
    assert list(tmp_path.iterdir()) == []


def test_eight_bits_need_texts(offramp: Run, staged: Any, tmp_path: Path) -> None:
    refused(offramp("export", staged.folder, "--out", tmp_path / "m", "--int8"), "should come with `--data FILE`")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("drop", ["nan", -0.1, 1])
def test_a_limit_that_is_none_is_refused(
    offramp: Run, staged: Any, held_out: Path, tmp_path: Path, drop: object
) -> None:
    ran = offramp("export", staged.folder, "--out", tmp_path / "m", "--int8", "--data", held_out, "--max-drop", drop)
    refused(ran, "`max_drop` should be 0 or more and below 1.")


def test_texts_without_labels_cannot_compare(staged: Any, tmp_path: Path) -> None:
    bare = read([Example("film"), Example("plot")], labels_required=False)
    with pytest.raises(DataError, match="Every text should have a label"):
        Classifier.load(staged.folder).export(tmp_path / "m", data=bare)


# Misuse.


def test_a_folder_that_holds_something_is_left_alone(offramp: Run, staged: Any, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    for out in (tmp_path, copy):
        refused(offramp("export", staged.folder, "--out", out), "should be empty or not exist. It holds files")
    refused(offramp("export", staged.folder, "--out", tmp_path / "notes.txt"), "Found a file: choose another folder.")
    refused(offramp("export", staged.folder, "--out", tmp_path / "notes.txt" / "m"), "cannot be written to")
    refused(offramp("export", staged.folder, "--out", tmp_path / ("m" * 300)), "cannot be written to")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("exits", ["", "two", "1;2", "1,,2", "2.5"])
def test_exits_that_are_no_depths_are_refused(offramp: Run, staged: Any, tmp_path: Path, exits: str) -> None:
    ran = offramp("export", staged.folder, "--out", tmp_path / "m", "--exits", exits)
    refused(ran, f"`--exits` should be depths such as 2,4,6. Found {exits}.")


@pytest.mark.parametrize("exits", ["0", "2,9", "-1"])
def test_exits_that_are_not_there_are_refused(offramp: Run, staged: Any, tmp_path: Path, exits: str) -> None:
    ran = offramp("export", staged.folder, "--out", tmp_path / "new" / "m", "--exits", exits)
    refused(ran, "`exits` should be between 1 and 4.")
    assert list(tmp_path.iterdir()) == []


def test_what_needs_torch_is_refused(offramp: Run, exported: Path, tmp_path: Path) -> None:
    loaded = Classifier.load(exported)
    for use in (loaded.save, loaded.export):
        with pytest.raises(ModelError, match=r"one that `offramp train` wrote\. Found an exported one\."):
            use(tmp_path / "new")
    refused(offramp("export", exported, "--out", tmp_path / "new"), "Found an exported one.")
    assert list(tmp_path.iterdir()) == []


def test_a_trained_model_does_not_go_into_the_folder_of_an_exported_one(
    offramp: Run, train_arguments: Run, staged: Any, copy: Path
) -> None:
    before = contents(copy)
    for flag in ("--overwrite", "--resume"):
        refused(offramp(*train_arguments(copy, flag)), "holds an exported model. Choose another folder.")
    with pytest.raises(ModelError, match="holds an exported model"):
        Classifier.load(staged.folder).save(copy)
    assert contents(copy) == before


@pytest.mark.parametrize("threads", [0, -2])
def test_threads_are_one_or_more(offramp: Run, exported: Path, staged: Any, tables: Path, threads: int) -> None:
    for verb, folder in itertools.product(("evaluate", "predict", "calibrate"), (exported, staged.folder)):
        ran = offramp(verb, folder, tables / "test.csv", "--threads", threads)
        refused(ran, f"`threads` should be at least 1. Found {threads}.")


def test_threads_of_a_model_in_torch_are_those_of_the_process(staged: Any) -> None:
    before = torch.get_num_threads()
    try:
        Classifier.load(staged.folder, threads=3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_threads_do_not_change_answers(exported: Path, toy: Run) -> None:
    texts = toy(40)[0]
    one, two = (Classifier.load(exported, threads=count, threshold=0.6) for count in (1, 2))
    assert [(a.label, a.depth) for a in one.decide(texts)] == [(a.label, a.depth) for a in two.decide(texts)]


# Damage.


@pytest.mark.parametrize("name", ["exit-2.onnx", "labels.safetensors", "config.json", "tokenizer.json", "offramp.toml"])
def test_a_changed_and_a_missing_file_are_named(offramp: Run, copy: Path, tables: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    refused(offramp("predict", copy, tables / "test.csv"), f"`{name}` is not what was written")
    (copy / name).unlink()
    refused(offramp("predict", copy, tables / "test.csv"), f"`{name}` is missing")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
@pytest.mark.parametrize("name", ["onnx.json", "offramp.json"])
def test_a_manifest_that_cannot_be_read_is_named(
    offramp: Run, copy: Path, tables: Path, name: str, content: bytes
) -> None:
    (copy / name).write_bytes(content)
    refused(offramp("predict", copy, tables / "test.csv"), f"is damaged: `{name}` cannot be read")


def test_a_folder_without_one_of_its_manifests_is_refused(offramp: Run, copy: Path, tables: Path) -> None:
    content = (copy / "offramp.json").read_bytes()
    (copy / "offramp.json").unlink()
    refused(offramp("predict", copy, tables / "test.csv"), "is damaged: `offramp.json` is missing. Export again.")
    (copy / "offramp.json").write_bytes(content)
    (copy / "onnx.json").unlink()
    refused(offramp("predict", copy, tables / "test.csv"), f"The model folder `{copy}` cannot be read")


def test_parts_of_two_models_are_refused(copy: Path) -> None:
    manifest = json.loads((copy / "onnx.json").read_text("utf-8"))
    (copy / "onnx.json").write_text(json.dumps(manifest | {"labels": ["good", "fine", "bad"]}))
    with pytest.raises(ModelError, match="its parts have other labels"):
        Classifier.load(copy)


def test_a_policy_that_is_not_known_is_refused_as_in_torch(exported: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'confidence'"):
        Classifier.load(exported, policy="confidense").decide(["film"])
