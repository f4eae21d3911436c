"""Every recipe trains on real texts and real pairs, on the real small backbone, through the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.config import load_recipe, recipes
from offramp.data.sources import read

Run = Callable[..., Any]

SLOW = (
    *("ce-paper", "scl-paper", "lacon-paper", "lacon-fusion-paper", "leam-paper", "lsan-paper", "ce-cl-paper"),
    "layerdrop",
)
UNDONE = "layerdrop-paper"
"""Its backbone was not pre-trained with layers missing, and at the paper's rates 300 texts do not make up for that."""
SINGLE = [name for name in recipes() if load_recipe(name).optimise.strategy == "single"]
STATIC = [name for name in SINGLE if load_recipe(name).compress.method not in ("none", "heads")]  # half of the layers
OTHERS = ("grow", "acl-multi-label", "acl-tags")
"""One begins with a classifier and not with a backbone, others have label sets or tags: all have own tests."""
SOME, SOME_ON_PAIRS = {"lacon"}, {"ce", "lacon-fusion"}
"""The others take too long to be tried at every change; `acl-multi-exit`, `ce` and `jt` are what the README,
examples and the tutorial train."""


def _each(soon: set[str], without: tuple[str, ...] = OTHERS) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.slow if name in soon else pytest.mark.long)
        for name in recipes()
        if name not in without
    ]


def _fitting(recipe: str) -> list[str]:
    """The papers' static models keep 6 of 12 layers; here, as there, half of them."""
    return ["--set", "compress.layers=0"] if recipe in STATIC else []


@pytest.mark.parametrize("recipe", _each(SOME))
def test_a_recipe_learns_300_questions_far_beyond_the_majority_class(
    offramp: Run, real_data: Path, tmp_path: Path, recipe: str
) -> None:
    train, test = real_data / "trec6" / "train.parquet", real_data / "trec6" / "test.parquet"
    # Half of its epochs are enough to see that it learns, unless it learns slowly from so few updates.
    epochs = load_recipe(recipe).optimise.epochs // (1 if recipe in SLOW else 2)
    few = ["--set", "data.cap=300", "--set", f"optimise.epochs={epochs}", "--set", "stage2.least_updates=100"]
    few += _fitting(recipe)
    ran = offramp("train", train, "--out", tmp_path / "m", "--recipe", recipe, *few, "--json")
    assert ran.code == 0, ran.err
    found = offramp("evaluate", tmp_path / "m", test, "--json").json
    labels = read(test).labels
    majority = max(Counter(labels).values()) / len(labels)
    assert found["accuracy"] >= majority + (0.0 if recipe == UNDONE else 0.2)
    wanted = [3] if recipe in STATIC else [6] if recipe in SINGLE else [1, 2, 3, 4, 5, 6]
    assert [exit["depth"] for exit in found["by_exit"] if exit["trained"]] == wanted


@pytest.mark.parametrize("recipe", _each(SOME_ON_PAIRS, (*OTHERS, "acl-long")))  # windows of single texts
def test_a_recipe_runs_on_300_pairs(offramp: Run, real_data: Path, tmp_path: Path, recipe: str) -> None:
    quick = ["--set", "data.cap=300", "--set", "optimise.epochs=1", "--set", "data.max_length=32"]
    quick += _fitting(recipe)
    data = real_data / "rte" / "train.parquet"
    ran = offramp("train", data, "--out", tmp_path / "m", "--recipe", recipe, *quick, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["updates"] > 0
    assert ran.json["validation"]["accuracy"] > 0.2  # two labels, half each
    pair = '{"sentence1": "It rained all day.", "sentence2": "The day was dry."}\n'
    (tmp_path / "pair.jsonl").write_text(pair)
    answered = offramp("predict", tmp_path / "m", tmp_path / "pair.jsonl", "--json")
    assert answered.code == 0, answered.err
    assert answered.json["depth"] == (3 if recipe in STATIC else 6)
