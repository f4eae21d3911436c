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
        (582, "582 held-out texts can certify that early exits lose 1 point of accuracy or less."),
        (1, "1 held-out texts can certify nothing; 582 could, that early exits lose 1 point of accuracy or less."),
    ],
)
def test_it_says_what_the_held_out_texts_can_certify_before_a_model_is_trained(
    offramp: Run, tmp_path: Path, held_out: int, said: str
) -> None:
    asked = ("split", written(tmp_path, 1200), "--out", tmp_path / "p", "--text", "message", "--label", "queue")
    ran = offramp(*asked, "--held-out", held_out)
    assert ran.code == 0, ran.err
    assert said in " ".join(ran.err.split())


def test_copies_of_a_text_are_counted_once_in_what_can_be_certified(offramp: Run, tmp_path: Path) -> None:
    rows = [f"message {place},{'ab'[place % 2]}" for place in range(100)]
    (tmp_path / "all.csv").write_text("\n".join(["text,label", *rows * 3]), "utf-8")
    ran = offramp("split", tmp_path / "all.csv", "--out", tmp_path / "p", "--held-out", 48)
    assert "144 texts" in ran.out
    assert "48 held-out texts can certify at best" in " ".join(ran.err.split())


def joined(folder: Path) -> Path:
    labels = ("billing", "device", "billing|device", "device|delivery")
    lines = [f"message {place},{labels[place % 4]}" for place in range(60)]
    (folder / "all.csv").write_text("\n".join(["text,label", *lines]), "utf-8")
    return folder / "all.csv"


def test_labels_that_look_like_sets_are_named_once(offramp: Run, tmp_path: Path) -> None:
    ran = offramp("split", joined(tmp_path), "--out", tmp_path / "one")
    assert ran.code == 0
    assert ran.err.count("warning") == 1
    assert "warning: 30 of 60 labels, such as `billing|device`" in ran.err
    assert "--set data.labels=set" in ran.err
    told = offramp("split", tmp_path / "all.csv", "--out", tmp_path / "set", "--set", "data.labels=set")
    assert "warning" not in told.err


def test_an_empty_label_and_words_with_tags_hear_how_they_are_read(offramp: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\none,a\ntwo,\n")
    assert "data.labels=set" in offramp("split", tmp_path / "a.csv", "--out", tmp_path / "p").err
    for column in ("tokens", "words"):
        (tmp_path / "b.jsonl").write_text(f'{{"{column}": ["a"], "tags": ["O"]}}\n')
        ran = offramp("split", tmp_path / "b.jsonl", "--out", tmp_path / "p")
        assert ran.code == 2
        assert "--recipe acl-tags, or --set data.labels=tags" in ran.err


def test_a_column_that_gives_nearly_every_text_a_label_of_its_own_is_named(offramp: Run, tmp_path: Path) -> None:
    lines = [f"{max(place, 3)},message {place},a" for place in range(40)]
    (tmp_path / "all.csv").write_text("\n".join(["id,text,label", *lines]), "utf-8")
    ran = offramp("split", tmp_path / "all.csv", "--out", tmp_path / "p", "--label", "id")
    assert ran.code == 2
    assert "nearly every text has a label of its own in the column `id`" in ran.err
    assert "--label" in ran.err
    assert not (tmp_path / "p").exists()
