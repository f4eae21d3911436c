"""A model folder that is not whole is refused and named; pickles are not loaded, and no code in it is run."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.exits.manifest import FORMAT

Run = Callable[..., Any]
Arguments = Callable[..., list[object]]


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """A whole model, to damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def write_manifest(folder: Path, **changes: object) -> None:
    """Make the manifest agree with the folder, as somebody who forges a model would."""
    names = [file.name for file in folder.iterdir() if file.is_file() and file.name != "offramp.json"]
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "offramp.json").write_text(json.dumps({"format": 1, "offramp": "0.1.0", "files": sums, **changes}))


@pytest.fixture
def refused(offramp: Run, tables: Path) -> Callable[..., None]:
    """Both verbs that read a model exit with 2 and a sentence that names the folder."""

    def check(folder: Path, message: str) -> None:
        before = sorted(folder.rglob("*"))
        for verb in ("evaluate", "predict"):
            ran = offramp(verb, folder, tables / "test.csv")
            assert (ran.code, ran.out) == (2, "")
            assert ran.err.startswith("error: ")
            assert ran.err.count("\n") == 1
            assert f"`{folder}`" in ran.err
            assert message in ran.err
            assert "Traceback" not in ran.err
        assert sorted(folder.rglob("*")) == before

    return check


def test_a_name_that_no_disk_takes(offramp: Run, tmp_path: Path, tables: Path) -> None:
    ran = offramp("predict", tmp_path / ("m" * 300), tables / "test.csv")
    assert (ran.code, ran.out) == (2, "")
    assert "There is no folder" in ran.err
    ran = offramp("train", tables / "test.csv", "--out", tmp_path / ("m" * 300))
    assert (ran.code, ran.out) == (2, "")
    assert "File name too long" in ran.err


def test_a_folder_that_is_not_there(refused: Run, tmp_path: Path, tables: Path) -> None:
    refused(tmp_path / "nowhere", "There is no folder")
    (tmp_path / "my-model").mkdir()
    refused(tmp_path / "my-modle", f"Near it: `{tmp_path / 'my-model'}`")
    refused(tables / "test.csv", "There is no folder")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "offramp.toml"])
def test_a_changed_file(refused: Run, copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    refused(copy, f"is damaged: `{name}` is not what was written")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "offramp.toml"])
def test_a_missing_file(refused: Run, copy: Path, name: str) -> None:
    (copy / name).unlink()
    refused(copy, f"is damaged: `{name}` is missing")


def test_a_file_that_was_cut_short(refused: Run, copy: Path) -> None:
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    refused(copy, "is damaged: `model.safetensors` is not what was written")


@pytest.mark.parametrize(
    "content", [b"", b'{"files": {', b"[]", b'{"format": 1}', b'{"files": 3, "format": 1}', b"\xff"]
)
def test_a_manifest_that_cannot_be_read(refused: Run, copy: Path, content: bytes) -> None:
    (copy / "offramp.json").write_bytes(content)
    refused(copy, "is damaged: `offramp.json` cannot be read")


def test_a_manifest_of_a_newer_offramp(refused: Run, copy: Path) -> None:
    write_manifest(copy, format=FORMAT + 1, offramp="7.0")
    refused(copy, "was written by a newer offramp (7.0)")


def test_a_manifest_that_points_outside(refused: Run, copy: Path) -> None:
    (copy.parent / "secret").write_text("mine")
    write_manifest(copy, files={"../secret": hashlib.sha256(b"mine").hexdigest()})
    refused(copy, "is damaged: `../secret` is missing")


def test_a_half_written_model(refused: Run, copy: Path) -> None:
    (copy / "offramp.json").unlink()
    refused(copy, "is half-written: it has no `offramp.json`. Finish it with --resume.")


def test_a_run_that_was_killed_before_its_model(refused: Run, copy: Path) -> None:
    for file in copy.iterdir():
        if file.is_file():
            file.unlink()
    refused(copy, "is half-written")


def test_a_foreign_folder(refused: Run, backbone_folder: Path, tables: Path) -> None:
    refused(backbone_folder, "is not an offramp model: it has no `offramp.json`. Train one with `offramp train`.")
    refused(tables, "is not an offramp model")


@pytest.mark.parametrize("forged", [False, True], ids=["bare", "with-manifest"])
def test_a_folder_with_pickles_only(refused: Run, copy: Path, tmp_path: Path, forged: bool) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    if forged:
        write_manifest(copy)
    refused(copy, "cannot be read" if forged else "`model.safetensors` is missing")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(("name", "code"), [("config.json", 0), ("tokenizer_config.json", 2)])
def test_code_that_comes_with_a_model_is_not_run(
    offramp: Run, copy: Path, tables: Path, tmp_path: Path, name: str, code: int
) -> None:
    bomb = f"import pathlib\npathlib.Path({str(tmp_path / 'exploded')!r}).touch()\nclass Mine: pass\n"
    (copy / "mine.py").write_text(bomb)
    settings = json.loads((copy / name).read_text("utf-8"))
    settings["auto_map"] = {
        "AutoConfig": "mine.Mine",
        "AutoModel": "mine.Mine",
        "AutoModelForSequenceClassification": "mine.Mine",
        "AutoTokenizer": ["mine.Mine", "mine.Mine"],
    }
    settings |= {"tokenizer_class": "Mine"} if name == "tokenizer_config.json" else {}
    (copy / name).write_text(json.dumps(settings))
    write_manifest(copy)
    ran = offramp("predict", copy, tables / "test.csv", stdin=b"y\ny\n")
    assert ran.code == code
    assert ran.err.count("\n") == (code == 2)
    assert "Traceback" not in ran.err
    assert "y/N" not in ran.out + ran.err  # nobody is asked either
    assert not (tmp_path / "exploded").exists()


# A fast tokenizer needs no code of its own; a model of an unknown type would.
@pytest.mark.parametrize(("name", "code"), [("config.json", 2), ("tokenizer_config.json", 0)])
def test_code_that_comes_with_a_backbone_is_not_run(
    offramp: Run, train_arguments: Arguments, backbone_folder: Path, tmp_path: Path, name: str, code: int
) -> None:
    backbone = Path(shutil.copytree(backbone_folder, tmp_path / "backbone"))
    bomb = f"import pathlib\npathlib.Path({str(tmp_path / 'exploded')!r}).touch()\nclass Mine: pass\n"
    (backbone / "mine.py").write_text(bomb)
    settings = json.loads((backbone / name).read_text("utf-8"))
    settings["auto_map"] = {"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine", "AutoTokenizer": ["mine.Mine"] * 2}
    settings |= {"model_type": "mine"} if name == "config.json" else {"tokenizer_class": "Mine"}
    (backbone / name).write_text(json.dumps(settings))
    arguments = [backbone if word == backbone_folder else word for word in train_arguments(tmp_path / "out")]
    ran = offramp(*arguments, "--set", "optimise.epochs=1", stdin=b"y\ny\n")
    assert ran.code == code
    assert "Traceback" not in ran.err
    assert "y/N" not in ran.out + ran.err  # nobody is asked either
    assert not (tmp_path / "exploded").exists()
    assert (tmp_path / "out").exists() is (code == 0)


def test_a_backbone_with_pickles_only_is_refused(
    offramp: Run, train_arguments: Arguments, backbone_folder: Path, tmp_path: Path
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    backbone = Path(shutil.copytree(backbone_folder, tmp_path / "backbone"))
    (backbone / "model.safetensors").unlink()
    (backbone / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    ran = offramp(*(backbone if word == backbone_folder else word for word in train_arguments(tmp_path / "out")))
    assert (ran.code, ran.out) == (2, "")
    assert "with safetensors weights" in ran.err
    assert not (tmp_path / "exploded").exists()
    assert not (tmp_path / "out").exists()
