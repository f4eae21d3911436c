"""`offramp tune`: a search in a folder, told to people and to machines."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
QUICK = ["--set", "exits.size=16", "--set", "optimise.epochs=1", "--set", "optimise.batch_size=16"]


@pytest.fixture
def arguments(backbone_folder: Path, tables: Path, tmp_path: Path) -> list[object]:
    pytest.importorskip("optuna", reason="optuna is absent; the extra `tune` brings it")
    space = tmp_path / "mine.toml"
    space.write_text(
        '[fields]\n"optimise.lr_exit" = [0.001, 0.002]\n"objective.temperature" = {low = 0.1, high = 1.0}\n'
    )
    named = ["--recipe", "scl", "--backbone", backbone_folder, "--out", tmp_path / "search", "--space", space]
    return ["tune", tables / "train.csv", *named, *QUICK]


def test_a_search_tells_its_best_settings_and_goes_on_when_asked_for_more(
    offramp: Run, arguments: list[object], tmp_path: Path
) -> None:
    ran = offramp(*arguments, "--trials", 1)
    assert ran.code == 0, ran.err
    first, *settings, last = ran.out.splitlines()
    assert first.startswith("best of 1 trials: validation accuracy 0.")
    assert [line.split("=")[0] for line in settings] == ["--set optimise.lr_exit", "--set objective.temperature"]
    assert last == f"settings {tmp_path / 'search' / 'best.toml'}"
    assert "trial 1 of 1: 0." in ran.err
    more = offramp(*arguments, "--trials", 2, "--json")
    assert more.code == 0, more.err
    assert "trial 1 of" not in more.err
    assert "trial 2 of 2" in more.err
    found = more.json
    assert set(found) == {"out", "metric", "best", "trials", "importance"}
    assert [trial["number"] for trial in found["trials"]] == [0, 1]
    assert found["best"]["score"] == max(trial["score"] for trial in found["trials"])
    written = tomllib.loads((tmp_path / "search" / "best.toml").read_text("utf-8"))
    assert written["objective"]["temperature"] == found["best"]["settings"]["objective.temperature"]


def test_a_validation_file_is_what_scores(offramp: Run, arguments: list[object], tables: Path) -> None:
    ran = offramp(*arguments, "--trials", 1, "--validation", tables / "test.csv", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["best"]["score"] * 30 == pytest.approx(round(ran.json["best"]["score"] * 30))  # of 30 texts


@pytest.mark.slow
def test_a_killed_search_goes_on_to_the_same_trials(
    offramp: Run, start: Callable[..., Any], arguments: list[object], tmp_path: Path
) -> None:
    more = ["--trials", 3, "--set", "optimise.checkpoint_steps=2", "--json"]
    process = start(*arguments, *more)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any(line.startswith("trial 1 of 3") for line in lines)  # the second is under way
    process.kill()
    process.communicate()
    ran = offramp(*arguments, *more)
    assert ran.code == 0, ran.err
    whole = offramp(*(tmp_path / "whole" if word == tmp_path / "search" else word for word in arguments), *more)
    assert {**ran.json, "out": ""} == {**whole.json, "out": ""}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--space", "lacon-gird"], "Did you mean 'lacon-grid'"),
        (["--trials", 0], "`trials` should be 1 or more. Found 0"),
        (["--recipe", "slc"], "is not a known recipe"),
        (["--set", "objective.wieght=1"], "Did you mean 'objective.weight'"),
    ],
)
def test_misuse_is_told_before_anything_is_written(
    offramp: Run, arguments: list[object], tmp_path: Path, more: list[object], message: str
) -> None:
    ran = offramp(*arguments, *more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (tmp_path / "search").exists()


def test_without_optuna_the_extra_is_named(
    offramp: Run, arguments: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    ran = offramp(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "pip install 'offramp[tune]'" in ran.err
    assert not (tmp_path / "search").exists()
