"""What is not there is told before anything is loaded; what may be there is let through, as `read` would find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.data.presence import check_data, check_texts
from offramp.errors import DataError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a table, a file of no known kind, and a folder, as the place where the command is typed."""
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("text,label\na,b\n")
    Path("lines.text").write_text("a\n")
    Path("folder").mkdir()


@pytest.mark.parametrize(
    "source", [None, "train.csv", "folder", "task:trec6", "hf://datasets/me/desk/train.csv", "ag_news", "me/desk:test"]
)
def test_labelled_texts_that_are_there_or_may_be_elsewhere_are_let_through(source: str | None) -> None:
    check_data(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("trian.csv", "File not found: `trian.csv`. Check the path. Near it: `train.csv`"),
        ("none/train.csv", "File not found: `none/train.csv`"),
        ("./none", "File not found: `none`"),
        ("a b", "File not found: `a b`"),
        ("lines.text", "should end in .csv"),
    ],
)
def test_labelled_texts_that_are_not_there_are_refused(source: str, said: str) -> None:
    with pytest.raises(DataError) as raised:
        check_data(source)
    assert said in str(raised.value)


@pytest.mark.parametrize("source", ["-", "train.csv", "lines.text", "task:trec6/test", "hf://datasets/me/desk/a.txt"])
def test_texts_that_are_there_or_may_be_elsewhere_are_let_through(source: str) -> None:
    check_texts(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("lines.txt", "File not found: `lines.txt`. Check the path. Near it: `lines.text`"),
        ("where is my parcel", 'echo "where is my parcel" | offramp predict MODEL'),
    ],
)
def test_texts_that_are_not_there_are_refused(source: str, said: str) -> None:
    with pytest.raises(DataError) as raised:
        check_texts(source)
    assert said in str(raised.value)


def test_a_name_with_blanks_that_is_nearly_a_file_is_not_taken_for_a_text() -> None:
    Path("my texts.txt").write_text("a\n")
    with pytest.raises(DataError) as raised:
        check_texts("my text.txt")
    assert "File not found" in str(raised.value)
