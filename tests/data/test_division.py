"""One file of texts as several: every row in one part, no text in two, labels in their shares."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.data.division import REST, divide, write_parts
from offramp.data.seen import digest
from offramp.data.sources import Table, read
from offramp.errors import DataError
from offramp.types import Example


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def table(labels: list[str], texts: list[str] | None = None) -> Table:
    texts = texts or [f"text {place}" for place in range(len(labels))]
    return Table([Example(text, label=label) for text, label in zip(texts, labels, strict=True)], "a list")


@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("xyz")), min_size=2, max_size=40),
    shares=st.tuples(st.floats(0.05, 0.6), st.floats(0.05, 0.6)),
    seed=st.integers(0, 5),
)
@settings(max_examples=200, deadline=None)
def test_every_row_is_in_one_part_and_no_text_in_two(
    rows: list[tuple[str, str]], shares: tuple[float, float], seed: int
) -> None:
    texts, labels = [text for text, _ in rows], [label for _, label in rows]
    data = table(labels, texts)
    try:
        parts = divide(data, {"test": shares[0], "held-out": shares[1]}, chance(seed))
    except DataError:  # too few texts for such parts
        return
    assert sorted(row for part in parts.values() for row in part) == list(range(len(rows)))
    owners = [{digest(data.examples[row]) for row in part} for part in parts.values()]
    assert sum(map(len, owners)) == len(set(texts))
    # Whichever label a text's first row has, a text of it is there to learn from.
    first = dict(reversed(rows))
    assert {first[texts[row]] for row in parts[REST]} == set(first.values())


def test_parts_have_the_labels_shares_and_sizes_are_shares_or_numbers() -> None:
    data = table(["a"] * 600 + ["b"] * 300 + ["c"] * 100)
    parts = divide(data, {"test": 0.2, "held-out": 300}, chance())
    assert {name: len(rows) for name, rows in parts.items()} == {REST: 500, "test": 200, "held-out": 300}
    counts = {name: Counter(data.examples[row].label for row in rows) for name, rows in parts.items()}
    assert counts["test"] == {"a": 120, "b": 60, "c": 20}
    assert counts["held-out"] == {"a": 180, "b": 90, "c": 30}


def test_the_same_seed_gives_the_same_parts_and_another_others() -> None:
    data = table(["a", "b"] * 100)
    first, again, other = (divide(data, {"test": 0.3}, chance(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_text_that_stands_there_twice_stays_together_whatever_its_capitals() -> None:
    data = table(
        ["a", "b"] * 20, [f"text {place // 2}" if place % 2 else f"  TEXT {place // 2}" for place in range(40)]
    )
    parts = divide(data, {"test": 10}, chance())
    assert len(parts["test"]) == 20
    assert all(row ^ 1 in parts["test"] for row in parts["test"])


def test_a_lone_text_of_a_label_is_learnt_from() -> None:
    data = table(["a"] * 50 + ["rare"])
    for seed in range(20):
        assert 50 in divide(data, {"test": 0.4, "held-out": 0.4}, chance(seed))[REST]


@pytest.mark.parametrize(("size", "found"), [(0.001, "Found 0"), (49, "Found 49"), (60, "Found 60")])
def test_a_size_that_cannot_be_had_is_named(size: float, found: str) -> None:
    with pytest.raises(DataError, match="between 1 and 48 of the 50") as caught:
        divide(table(["a", "b"] * 25), {"test": size}, chance())
    assert found in str(caught.value)


def test_sets_of_labels_are_divided_too() -> None:
    examples = [Example(f"text {place}", labels=(("a",), ("b", "a"), ())[place % 3]) for place in range(90)]
    parts = divide(Table(examples, "a list"), {"test": 30}, chance())
    assert Counter(examples[row].labels for row in parts["test"]) == {("a",): 10, ("b", "a"): 10, (): 10}


AWKWARD = ['with "quotes", and a comma', "two\nlines", "tab\there", "Grüße, 你好", " blanks ", "line\r\nend"]


def test_rows_of_a_csv_file_are_copied_as_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "all.csv"
    with source.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "message", "queue"])
        writer.writerows([place, f"{AWKWARD[place % 6]} {place}", "ab"[place % 2]] for place in range(60))
    data = read(str(source), text=["message"], label="queue")
    parts = divide(data, {"test": 0.25, "held-out": 0.25}, chance())
    files = write_parts(str(source), data, parts, tmp_path / "parts")
    whole = pd.read_csv(source)
    for name, rows in parts.items():
        assert files[name].suffix == ".csv"
        again = read(str(files[name]), text=["message"], label="queue")
        assert again.examples == [data.examples[row] for row in rows]
        assert pd.read_csv(files[name])["id"].tolist() == whole["id"][rows].tolist()


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet"])
def test_a_part_is_of_the_kind_of_its_source(tmp_path: Path, kind: str) -> None:
    source = tmp_path / f"all.{kind}"
    frame = pd.DataFrame({"text": [f"text {n}" for n in range(20)], "label": ["a", "b"] * 10, "other": range(20)})
    if kind == "tsv":
        frame.to_csv(source, sep="\t", index=False)
    elif kind == "jsonl":
        source.write_text("\n".join(json.dumps(row) for row in frame.to_dict("records")) + "\n\n", "utf-8")
    else:
        frame.to_parquet(source)
    data = read(str(source))
    parts = divide(data, {"test": 5}, chance())
    for name, file in write_parts(str(source), data, parts, tmp_path / "parts").items():
        assert file.suffix == f".{kind}"
        assert read(str(file), label="other").labels == (
            [str(row) for row in parts[name]] if kind == "tsv" else parts[name]
        )


def test_pairs_of_a_task_are_written_as_json_lines(tmp_path: Path) -> None:
    data = Table([Example(f"one {n}", f"two {n}", "ab"[n % 2]) for n in range(10)], "task:rte")
    parts = divide(data, {"test": 4}, chance())
    files = write_parts("task:rte", data, parts, tmp_path)
    assert read(str(files["test"])).examples == [data.examples[row] for row in parts["test"]]


def test_words_and_tags_of_a_folder_are_written_as_json_lines(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    rows = [{"tokens": ["call", f"may{n}"], "tags": ["O", "B-person" if n % 2 else "O"]} for n in range(20)]
    (tmp_path / "all" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    source = str(tmp_path / "all")
    data = read(source, tags=True)
    parts = divide(data, {"test": 6}, chance())
    for name, file in write_parts(source, data, parts, tmp_path / "parts").items():
        assert read(str(file), tags=True).examples == [data.examples[row] for row in parts[name]]


def test_texts_whose_words_have_tags_are_divided_too(tmp_path: Path) -> None:
    source = tmp_path / "all.conll"
    texts = [f"word{n} {'B-rare' if n % 5 == 0 else 'O'}\nend O" for n in range(30)]
    source.write_text("-DOCSTART- O\n\n" + "\n\n".join(texts), "utf-8")
    data = read(str(source), tags=True)
    parts = divide(data, {"test": 10}, chance())
    for name, file in write_parts(str(source), data, parts, tmp_path / "parts").items():
        again = read(str(file), tags=True).examples
        assert again == [data.examples[row] for row in parts[name]]
        assert sum("B-rare" in (example.tags or ()) for example in again) == len(again) // 5
