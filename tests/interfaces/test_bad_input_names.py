"""Unknown names get the near ones; wrong values hear what should be. Exit 2, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def arguments(words: str, model: Path, tables: Path, out: Path) -> list[str]:
    places = {"MODEL": model, "TRAIN": tables / "train.csv", "TEST": tables / "test.csv", "OUT": out}
    return [str(places.get(word, word)) for word in words.split()]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("recipes lacno", "`lacno` is not a known recipe. Did you mean 'lacon'"),
        ("train TRAIN --out OUT --recipe acll", "`acll` is not a known recipe. Did you mean 'acl'"),
        ("demo --out OUT --recipe cee", "`cee` is not a known recipe. Did you mean 'ce'"),
        ("train TRAIN --out OUT --set objective.name=slc", "known value of `objective.name`. Did you mean 'scl'"),
        ("train TRAIN --out OUT --set exits.kind=linaer", "known value of `exits.kind`. Did you mean 'linear'"),
        ("train TRAIN --out OUT --set policy.name=nver", "known value of `policy.name`. Did you mean 'never'"),
        ("train TRAIN --out OUT --set optimise.epoch=2", "a known field. Did you mean 'optimise.epochs'"),
        ("train TRAIN --out OUT --set optimize.epochs=2", "part of the configuration. Did you mean 'optimise'"),
        ("train TRAIN --out OUT --set epochs=3", "Did you mean 'optimise.epochs' or 'stage2.epochs' or 'compr"),
        ("train TRAIN --out OUT --set max_lenght=9", "part of the configuration. Did you mean 'data.max_length'?"),
        ("train TRAIN --out OUT --set xyz.cap=9", "Did you mean 'data.cap'?"),
        ("train TRAIN --out OUT --set epochs", "A setting should look like key=value. Found `epochs`."),
        ("train TRAIN --out OUT --set optimise.epochs=0", "`optimise.epochs` should be between 1 and"),
        ("train TRAIN --out OUT --set policy.name=margin --set policy.threshold=2", "`threshold` should be between 0"),
        ("train TRAIN --out OUT --seed -1", "`optimise.seed` should be between 0 and"),
        ("demo --out OUT --set optimise.epochs=two", "`optimise.epochs` should be a whole number. Found `two`."),
        ("evaluate MODEL TEST --policy confidense", "`confidense` is not a known policy. Did you mean 'confidence' or"),
        ("predict MODEL TEST --policy fix", "`fix` is not a known policy. Did you mean 'fixed'?"),
        ("evaluate MODEL TEST --policy confidence --threshold 1.7", "`threshold` should be between 0 and 1. Found 1.7"),
        ("predict MODEL TEST --policy confidence --threshold -1", "`threshold` should be between 0 and 1. Found -1."),
        ("predict MODEL TEST --policy confidence --threshold nan", "`threshold` should be between 0 and 1. Found nan."),
        ("predict MODEL TEST --policy never --threshold 0.3", "`threshold` should stand with a policy that has one."),
        ("evaluate MODEL TEST --policy confidence --depth 2", "`depth` should stand with the policy `fixed`, or"),
        ("predict MODEL TEST --depth 2 --threshold 0.9", "Either a threshold or a depth should say when texts leave."),
        ("evaluate MODEL TEST --policy fixed --depth 5", "`depth` should be between 1 and 4. Found 5."),
    ],
)  # fmt: skip
def test_a_wrong_name_or_value_is_a_sentence(
    offramp: Run, model: Path, tables: Path, tmp_path: Path, command: str, message: str
) -> None:
    ran = offramp(*arguments(command, model, tables, tmp_path / "out"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("trian TRAIN --out OUT", "'train'"),
        ("predcit MODEL", "'predict'"),
        ("recipe", "'recipes'"),
        ("train TRAIN --out OUT --bakbone x", "--backbone"),
        ("train TRAIN --out OUT --recpie x", "--recipe"),
        ("evaluate MODEL TEST --polcy never", "--policy"),
        ("predict MODEL --treshold 1", "--threshold"),
        ("recipes --jsn", "--json"),
        ("demo --uot x", "--out"),
        ("train TRAIN", "--out"),
        ("train --out OUT", "TRAIN"),
        ("evaluate MODEL", "DATA"),
        ("predict", "MODEL"),
        ("evaluate MODEL TEST --threshold high", "--threshold"),
        ("predict MODEL - more", "more"),
    ],
)
def test_a_wrong_verb_flag_or_argument_hears_the_right_one(
    offramp: Run, model: Path, tables: Path, tmp_path: Path, command: str, hint: str
) -> None:
    ran = offramp(*arguments(command, model, tables, tmp_path / "out"))
    assert (ran.code, ran.out) == (2, "")
    assert hint in ran.err
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


def test_the_demo_leaves_a_foreign_folder_alone(offramp: Run, tmp_path: Path) -> None:
    (tmp_path / "out" / "training").mkdir(parents=True)
    (tmp_path / "out" / "training" / "songs.csv").write_text("precious")
    ran = offramp("demo", "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert "It holds other files: choose another folder." in ran.err
    assert (tmp_path / "out" / "training" / "songs.csv").read_text() == "precious"
