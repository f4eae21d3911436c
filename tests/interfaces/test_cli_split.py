"""`offramp split`: a file becomes three, which the other verbs take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def written(folder: Path, texts: int = 60) -> Path:
    lines = [f"message {place},{'ab'[place % 2]}" for place in range(texts)]
    (folder / "all.csv").write_text("\n".join(["message,queue", *lines]), "utf-8")
    return folder / "all.csv"


def test_a_file_becomes_three(offramp: Run, tmp_path: Path) -> None:
    ran = offramp(
        "split", written(tmp_path), "--out", tmp_path / "parts", "--text", "message", "--label", "queue", "--json"
    )
    assert ran.code == 0, ran.err
    assert {name: part["texts"] for name, part in ran.json.items()} == {"train": 36, "held-out": 12, "test": 12}
    lines = [Path(part["file"]).read_text("utf-8").splitlines() for part in ran.json.values()]
    assert {part[0] for part in lines} == {"message,queue"}
    assert len({line for part in lines for line in part[1:]}) == 60


def test_parts_that_are_there_are_kept_unless_they_may_go(offramp: Run, tmp_path: Path) -> None:
    asked = ("split", written(tmp_path), "--out", tmp_path, "--text", "message", "--label", "queue")
    first = offramp(*asked)
    assert first.code == 0, first.err
    assert "36 texts" in first.out
    before = (tmp_path / "test.csv").read_bytes()
    again = offramp(*asked, "--seed", "7")
    assert again.code == 2
    assert "Found held-out.csv, test.csv, train.csv" in again.err
    assert (tmp_path / "test.csv").read_bytes() == before
    assert offramp(*asked, "--seed", "7", "--overwrite").code == 0
    assert (tmp_path / "test.csv").read_bytes() != before


def test_a_part_of_size_0_is_not_made(offramp: Run, tmp_path: Path) -> None:
    ran = offramp(
        "split", written(tmp_path), "--out", tmp_path, "--text", "message", "--label", "queue", "--test", "0", "--json"
    )
    assert list(ran.json) == ["train", "held-out"]


def test_a_size_that_is_no_size_is_refused(offramp: Run, tmp_path: Path) -> None:
    for size in ("-1", "1.5"):
        ran = offramp("split", written(tmp_path), "--out", tmp_path / "p", "--label", "queue", "--test", size)
        assert ran.code == 2
        assert f"Found {size}" in ran.err


@pytest.mark.parametrize(
    ("held_out", "said"),
    [
        (
            48,
            "48 held-out texts can certify at best that early exits lose 11.4 points of accuracy or less (`",
        ),
        (582, "582 held-out texts can certify early exits that lose a point of accuracy or less."),
        (1, "1 held-out texts can certify nothing; to lose a point of accuracy at most takes 582."),
    ],
)
def test_it_says_what_the_held_out_texts_can_certify_before_a_model_is_trained(
    offramp: Run, tmp_path: Path, held_out: int, said: str
) -> None:
    asked = ("split", written(tmp_path, 1200), "--out", tmp_path / "p", "--text", "message", "--label", "queue")
    ran = offramp(*asked, "--held-out", held_out)
    assert ran.code == 0, ran.err
    assert said in " ".join(ran.err.split())
