"""Texts with sets of labels: what files, frames and lists may hold, and what is said of what they may not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from offramp.config import DataConfig
from offramp.data.label_sets import LabelSetWarning, as_label_set, strata, warn_of_sets
from offramp.data.labels import Labels
from offramp.data.sources import columns, read
from offramp.demo import data_file
from offramp.errors import DataError
from offramp.types import Example

ROWS: list[tuple[str, list[Any]]] = [
    ("late and charged twice", ["delivery", "billing"]),
    ("thank you", []),
    ("the lamp is dark", ["device"]),
]


def write(folder: Path, kind: str, separator: str = "|") -> Path:
    path = folder / f"texts.{kind}"
    if kind == "jsonl":
        lines = [json.dumps({"text": text, "label": labels}) for text, labels in ROWS]
        path.write_text("\n".join(lines), "utf-8")
    elif kind == "parquet":
        pd.DataFrame(ROWS, columns=["text", "label"]).to_parquet(path)
    else:
        between = "," if kind == "csv" else "\t"
        lines = [f"{text}{between}{separator.join(labels)}" for text, labels in ROWS]
        path.write_text("\n".join([f"text{between}label", *lines]), "utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_file_gives_the_sets_that_were_written(tmp_path: Path, kind: str) -> None:
    table = read(write(tmp_path, kind), separator="|")
    assert [(e.text, e.labels) for e in table.examples] == [(text, tuple(labels)) for text, labels in ROWS]
    assert table.labels == ["delivery", "billing", "device"]
    assert all(example.label is None for example in table.examples)


def test_the_separator_is_the_one_that_is_set(tmp_path: Path) -> None:
    how = columns(DataConfig(labels="set", label_separator=";"))
    table = read(write(tmp_path, "csv", separator=";"), **how)
    assert table.examples[0].labels == ("delivery", "billing")
    assert columns(DataConfig())["separator"] is None


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        [Example(text, labels=tuple(labels)) for text, labels in ROWS],
        [{"text": text, "label": labels} for text, labels in ROWS],
        pd.DataFrame(ROWS, columns=["text", "label"]),
        [(text, np.array(labels, dtype=object)) for text, labels in ROWS],
    ],
    ids=["tuples", "examples", "mappings", "a frame", "arrays"],
)
def test_lists_and_frames_give_the_same(given: Any) -> None:
    assert [e.labels for e in read(given, separator="|").examples] == [tuple(labels) for _, labels in ROWS]


def test_a_set_holds_each_label_once_and_a_python_set_has_a_fixed_order() -> None:
    assert as_label_set("b|a|b", "|") == ("b", "a")
    assert as_label_set({"b", "a", "c"}, "|") == ("a", "b", "c")
    assert as_label_set([2.0, np.int64(3), True], "|") == (2, 3, "True")


@pytest.mark.parametrize("value", [["a", ["b"]], ["a", None], "a||b", {"a": 1}, 2.5])
def test_what_is_no_set_of_labels_is_told_with_its_place(value: Any) -> None:
    with pytest.raises(DataError, match=r"A set of labels should be a list .* Found .* in the list, row 2"):
        read([("x", ["a"]), ("y", value)], separator="|")


def test_a_missing_set_is_an_error_where_labels_are_required_and_none_where_not(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "x", "label": ["a"]}\n{"text": "y"}', "utf-8")
    with pytest.raises(DataError, match="line 2"):
        read(path, separator="|")
    assert [e.labels for e in read(path, separator="|", labels_required=False).examples] == [("a",), None]


def test_a_list_where_one_label_is_expected_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"Found \['delivery', 'billing'\] \(list\) in texts.jsonl, line 1.*data.labels=set"
    ):
        read(write(tmp_path, "jsonl"))


def test_sets_become_rows_of_0_and_1_and_an_unknown_label_is_named_with_its_place() -> None:
    table = read(ROWS, separator="|")
    labels = Labels.of(table.labels)
    sets = [own for own in table.label_sets() if own is not None]
    assert labels.encode_sets(sets) == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    with pytest.raises(DataError, match=r"Found `bill` in the list, row 2. Did you mean `billing`"):
        labels.encode_sets([["device"], ["bill"]], table.where)


def test_a_text_counts_as_one_of_its_rarest_label() -> None:
    draw = np.random.default_rng(0)
    rows = (draw.random((200, 5)) < [0.6, 0.4, 0.2, 0.1, 0.03]).astype(int).tolist()
    counts = Counter(k for row in rows for k in range(5) if row[k])
    for row, stratum in zip(rows, strata(rows), strict=True):
        own = [k for k in range(5) if row[k]]
        assert stratum == (min(own, key=lambda k: counts[k]) if own else -1)


def test_the_built_in_messages_share_no_text_and_hold_every_label_and_the_empty_set() -> None:
    tables = [read(data_file(part, "mixed_desk"), separator="|") for part in ("train", "calibration", "test")]
    texts = [example.text for table in tables for example in table.examples]
    assert len(texts) == len(set(texts)) == 690
    for table in tables:
        assert set(table.labels) == {"account", "app", "billing", "delivery", "device", "refund"}
        assert () in set(table.label_sets())
        assert any(len(own or ()) > 2 for own in table.label_sets())


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["billing", "device", "billing|device"], "|"),
        (["a|b", "b|c", "c|a"], "|"),
        (["billing", "device", "billing; device"], ";"),
    ],
)
def test_labels_whose_pieces_recur_look_like_sets(labels: list[str], separator: str) -> None:
    with pytest.warns(LabelSetWarning, match=r"data\.labels=set"):
        warn_of_sets(labels * 3, separator)


@pytest.mark.parametrize(
    "labels",
    [
        ["yes|no", "true|false"],  # nothing recurs
        ["a", "b"] * 30 + ["a|b"],  # one in sixty
        ["billing", "device"],
        [0, 1, 1],
        [],
    ],
)
def test_other_labels_are_taken_as_they_are(labels: list[Any]) -> None:
    warn_of_sets(labels, "|")
