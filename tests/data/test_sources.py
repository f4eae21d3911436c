from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offramp.data.sources import read, span, stream
from offramp.errors import DataError
from offramp.types import Example

Write = Callable[[str, str | bytes], Path]
PAIR = [Example("good", None, "pos"), Example("bad", None, "neg")]
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file, text as UTF-8 and line ends as they are, and gives its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


# What is read.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\ngood,pos\nbad,neg\n"),
        ("a.CSV", "text,label\ngood,pos\nbad,neg"),
        ("a.csv", "\ufefftext,label\r\ngood,pos\r\nbad,neg\r\n\r\n"),
        ("a.csv", 'label,id,text\npos,1,"good"\nneg,2,"bad"\n\n\n'),
        ("a.tsv", "text\tlabel\ngood\tpos\nbad\tneg\n"),
        ("a.jsonl", '{"text": "good", "label": "pos"}\n{"label": "neg", "text": "bad"}\n'),
        ("a.ndjson", '\ufeff{"text": "good", "label": "pos"}\r\n{"label": "neg", "text": "bad"}\r\n \n'),
        ("a.json", '{"text": "good", "label": "pos"}\n{"label": "neg", "text": "bad"}'),
    ],
)
def test_a_text_file_gives_its_rows(write: Write, name: str, content: str) -> None:
    assert read(write(name, content)).examples == PAIR
    assert read(str(write(name, content))).examples == PAIR
    assert list(stream(write(name, content))) == [Example("good"), Example("bad")]


def test_a_parquet_file_that_pandas_wrote_gives_its_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [1, 2], "label": [1, 0], "text": ["good", "bad"]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").examples == [Example("good", None, 1), Example("bad", None, 0)]
    assert list(stream(tmp_path / "a.parquet")) == [Example("good"), Example("bad")]


@pytest.mark.parametrize("dtype", ["object", "category", "string"])
def test_a_frame_gives_its_rows(dtype: str) -> None:
    frame = pd.DataFrame({"text": ["good", "bad"], "label": ["pos", "neg"]}, index=[7, 7]).astype(dtype)
    table = read(frame)
    assert table.examples == PAIR
    assert table.where(1) == "the frame, row 2"


@pytest.mark.parametrize(
    "items",
    [
        [("good", "pos"), ("bad", "neg")],
        (["good", "pos"], ["bad", "neg"]),
        [{"text": "good", "label": "pos"}, {"text": "bad", "label": "neg", "more": 1}],
        PAIR,
        [("good", np.str_("pos")), Example("bad", None, "neg")],
        iter(PAIR),
    ],
)
def test_a_list_gives_its_items(items: list[object]) -> None:
    table = read(items)
    assert table.examples == PAIR
    assert table.where(1) == "the list, row 2"


def test_a_list_may_hold_pairs() -> None:
    truth = [Example("a", "b", 0), Example("c", "d", 1)]
    assert read([(("a", "b"), 0), (["c", "d"], 1)]).examples == truth
    assert read(truth).examples == truth


def test_a_list_of_bare_texts_has_no_labels() -> None:
    assert read(["a", "b"], labels_required=False).examples == [Example("a"), Example("b")]
    with pytest.raises(DataError, match=r"A label should not be empty. Found an empty one in the list, row 1"):
        read(["a", "b"])


def test_csv_quotes_hold_separators_quotes_and_line_breaks(write: Write) -> None:
    table = read(write("a.csv", 'text,label\n"a, ""b""\n\nc",x\nhe said "hi",y\n'))
    assert [example.text for example in table.examples] == ['a, "b"\n\nc', 'he said "hi"']
    assert [table.where(row) for row in (0, 1)] == ["a.csv, line 2", "a.csv, line 5"]


@SHARED
@given(st.lists(st.tuples(st.text(), st.text(st.characters(exclude_characters="\r\n"))), min_size=1))
@pytest.mark.parametrize("dialect", ["excel", "excel-tab"])
def test_what_the_csv_module_writes_comes_back(write: Write, dialect: str, rows: list[tuple[str, str]]) -> None:
    # A lone carriage return is a line end to the csv module; a line break in the last field of TSV is ambiguous.
    rows = [(f"x{text}".replace("\r", ""), f"y{label}") for text, label in rows]
    rows = [(text.encode(errors="ignore").decode(), label.encode(errors="ignore").decode()) for text, label in rows]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, dialect=dialect)
    writer.writerows([("text", "label"), *rows])
    path = write("a.csv" if dialect == "excel" else "a.tsv", buffer.getvalue())
    assert [(example.text, example.label) for example in read(path).examples] == rows


def test_stray_quotes_in_tsv_are_text(write: Write) -> None:
    lines = ['"never closed\tx', 'in "the" middle\ty', '"begins" a text\tx', 'ends "here"\ty', '"\tx']
    table = read(write("a.tsv", "text\tlabel\n" + "\n".join(lines) + "\n"))
    assert [f"{example.text}\t{example.label}" for example in table.examples] == lines
    assert table.where(4) == "a.tsv, line 6"


def test_what_pandas_quotes_in_tsv_is_unquoted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ['say "hi"', "a\tb", "two\nlines", "plain"], "label": list("xyxy")})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    table = read(tmp_path / "a.tsv")
    assert [example.text for example in table.examples] == frame["text"].tolist()
    assert [table.where(row)[-6:] for row in range(4)] == ["line 2", "line 3", "line 4", "line 6"]


def test_a_text_longer_than_the_csv_modules_limit_is_read(write: Write) -> None:
    assert len(read(write("a.csv", "text,label\n" + "a" * 200_000 + ",x\n")).examples[0].text) == 200_000


# Columns.


@pytest.mark.parametrize(
    ("columns", "text", "truth"),
    [
        (["sentence1", "sentence", "text", "sentence2"], (), ["text"]),
        (["sentence1", "sentence", "sentence2"], (), ["sentence"]),
        (["sentence2", "sentence1"], (), ["sentence1", "sentence2"]),
        (["text", "title"], ("title",), ["title"]),
        (["text", "title"], "title", ["title"]),
        (["text", "title"], ("title", "text"), ["title", "text"]),
    ],
)
def test_the_text_columns_are_the_named_ones_or_the_usual_ones(
    columns: list[str], text: tuple[str, ...], truth: list[str]
) -> None:
    example = read([{**{name: f"in {name}" for name in columns}, "label": 1}], text=text).examples[0]
    assert [example.text, *([example.pair] if example.pair else [])] == [f"in {name}" for name in truth]


def test_a_missing_text_column_gets_the_columns_and_the_flag(write: Write) -> None:
    path = write("a.csv", "body,label\nx,y\n")
    found = r"Found the columns `body`, `label` in a\.csv\..*--text"
    with pytest.raises(DataError, match=r"named `text` or `sentence` or `sentence1` \+ `sentence2`\. " + found):
        read(path)
    with pytest.raises(DataError, match=r"named `text` \+ `pair`\. " + found):
        read(path, text=("text", "pair"))
    with pytest.raises(DataError, match=r"One column should hold the text, or two a pair"):
        read(path, text=("body", "label", "x"))


def test_a_missing_label_column_gets_the_columns_and_the_flag(write: Write) -> None:
    with pytest.raises(DataError, match=r"named `label`\. Found the columns `text`, `class` in a.csv.*--label"):
        read(write("a.csv", "text,class\nx,y\n"))


def test_the_label_column_can_be_named(write: Write) -> None:
    assert read(write("a.csv", "text,class\nx,y\n"), label="class").examples == [Example("x", None, "y")]


def test_a_column_that_stands_twice_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match=r"Found `text` twice in a.csv"):
        read(write("a.csv", "text,text,label\nx,y,z\n"))


def test_labels_may_be_absent_or_empty_when_they_are_not_needed(write: Write) -> None:
    assert read(write("a.csv", "text\nx\n"), labels_required=False).examples == [Example("x")]
    partly = read(write("b.csv", "text,label\nx,\ny,1\n"), labels_required=False).examples
    assert partly == [Example("x"), Example("y", None, "1")]
    assert read(write("b.csv", "text,label\nx,1\n"), label=None, labels_required=False).examples == [Example("x")]


def test_a_table_gives_its_labels(write: Write) -> None:
    assert read(write("a.csv", "text,label\nx,b\ny,a\n")).labels == ["b", "a"]


# Labels.


@pytest.mark.parametrize(
    ("cell", "label"), [('"a"', "a"), ("3", 3), ("-1", -1), ("true", "True"), ("2.0", 2), ('"2.0"', "2.0")]
)
def test_a_label_is_a_word_or_a_whole_number(write: Write, cell: str, label: object) -> None:
    found = read(write("a.jsonl", f'{{"text": "x", "label": {cell}}}\n')).examples[0].label
    assert (found, type(found)) == (label, type(label))


@pytest.mark.parametrize("cell", ["2.5", "[1]", "{}", "NaN", '""', '" "', "null", "1e999"])
def test_any_other_label_is_named_with_its_line(write: Write, cell: str) -> None:
    with pytest.raises(DataError, match=r"A label should .*a\.jsonl, line 2"):
        read(write("a.jsonl", f'{{"text": "x", "label": 1}}\n{{"text": "x", "label": {cell}}}\n'))


def test_a_whole_float_column_with_a_gap_names_the_gap() -> None:
    # What pandas makes of whole numbers with a missing one.
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": [0, None, 1]})
    with pytest.raises(DataError, match=r"A label should not be empty. Found an empty one in the frame, row 2"):
        read(frame)


def test_pandas_missing_values_are_empty() -> None:
    frame = pd.DataFrame({"text": pd.Series(["a", pd.NA], dtype="string"), "label": [0, 1]})
    with pytest.raises(DataError, match=r"A text should not be empty. Found an empty one in the frame, row 2"):
        read(frame)


# Bad files.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"a.{suffix}", content) for suffix in ("csv", "tsv", "jsonl") for content in ("", "\n\r\n", "\ufeff")),
        ("a.parquet", ""),
    ],
)
def test_an_empty_file_is_named(write: Write, name: str, content: str) -> None:
    for reader in (read, stream):
        with pytest.raises(DataError, match=rf"at least one row\. Found {name} to be empty"):
            reader(write(name, content))


def test_an_empty_plain_file_is_named(write: Write) -> None:
    with pytest.raises(DataError, match=r"at least one row\. Found none in a\.txt"):
        list(stream(write("a.txt", "")))


@pytest.mark.parametrize(("name", "content"), [("a.csv", "text,label\n"), ("a.tsv", "text\tlabel\r\n\r\n")])
def test_a_file_with_a_header_only_is_named(write: Write, name: str, content: str) -> None:
    with pytest.raises(DataError, match=rf"at least one row. Found none in {name}"):
        read(write(name, content))


@pytest.mark.parametrize(("first", "stop"), [(0, 1), (0, 5000), (700, 701), (999, 2100), (1024, 2048), (4990, 5000)])
@pytest.mark.parametrize("group", [300, 5000])
def test_a_span_of_a_parquet_file_is_that_part_of_its_stream(tmp_path: Path, first: int, stop: int, group: int) -> None:
    frame = pd.DataFrame({"label": 1, "text": [f"text {n}" for n in range(5000)]})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=group)
    assert list(span(tmp_path / "a.parquet", first, stop)) == list(stream(tmp_path / "a.parquet"))[first:stop]


def test_a_bad_row_of_a_span_is_named_as_in_the_whole_file(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a"] * 1500 + [" "] + ["b"] * 900}).to_parquet(tmp_path / "a.parquet", row_group_size=400)
    with pytest.raises(DataError) as whole:
        list(stream(tmp_path / "a.parquet"))
    with pytest.raises(DataError) as part:
        list(span(tmp_path / "a.parquet", 1300, 2300))
    assert str(part.value) == str(whole.value)
    assert "a.parquet, row 1501" in str(part.value)


def test_a_parquet_file_without_rows_is_named(tmp_path: Path) -> None:
    pd.DataFrame({"text": [], "label": []}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"at least one row. Found none in a.parquet"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("items", [[], pd.DataFrame({"text": [], "label": []})])
def test_an_empty_list_or_frame_is_refused(items: object) -> None:
    with pytest.raises(DataError, match=r"at least one row. Found none in the"):
        read(items)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "   ", '"\n "', "\u3000"])
def test_an_empty_text_is_named_with_its_line(write: Write, text: str) -> None:
    with pytest.raises(DataError, match=r"A text should not be empty. Found an empty one in a.csv, line 3"):
        read(write("a.csv", f"text,label\nfine,x\n{text},y\n"))


def test_a_null_or_absent_text_is_named_with_its_line(write: Write) -> None:
    for row in ('{"text": null, "label": 1}', '{"label": 1}'):
        with pytest.raises(DataError, match=r"A text should not be empty. Found an empty one in a.jsonl, line 2"):
            read(write("a.jsonl", '{"text": "x", "label": 1}\n' + row))


def test_a_null_text_in_parquet_is_named_with_its_row(tmp_path: Path) -> None:
    pd.DataFrame({"text": ["a"] * 1500 + [None], "label": 1}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"Found an empty one in a.parquet, row 1501"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("cell", ["3", "[]", "true", '{"a": 1}'])
def test_a_text_that_is_no_string_is_named_with_its_line(write: Write, cell: str) -> None:
    with pytest.raises(DataError, match=r"A text should be a string. Found .* in a.jsonl, line 1"):
        read(write("a.jsonl", f'{{"text": {cell}, "label": 1}}\n'))


def test_half_a_character_is_named_with_its_line(write: Write) -> None:
    for row in ('{"text": "x \\ud83d", "label": 1}', '{"text": "x", "label": "\\ud83d"}'):
        with pytest.raises(DataError, match=r"should be Unicode.*'\\ud83d' \(str\), in a.jsonl, line 1"):
            read(write("a.jsonl", row))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_line_that_is_not_utf8_is_named(write: Write, name: str) -> None:
    rows = {
        "a.csv": ["text,label", "x,y", "caf\xe9,y"],
        "a.tsv": ["text\tlabel", "x\ty", "caf\xe9\ty"],
        "a.jsonl": [json.dumps({"text": "x", "label": "y"})] * 2 + ['{"text": "caf\xe9", "label": "y"}'],
        "a.txt": ["x", "y", "caf\xe9"],
    }
    path = write(name, "\n".join(rows[name]).encode("latin-1"))
    message = f"A file should be UTF-8. Found the byte 0xe9 in {name}, line 3"
    with pytest.raises(DataError, match=message):
        list(stream(path))
    if name != "a.txt":
        with pytest.raises(DataError, match=message):
            read(path)


def test_a_file_in_utf16_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match=r"A file should be UTF-8. Found the byte 0xff in a.csv, line 1"):
        read(write("a.csv", "text,label\nx,y\n".encode("utf-16")))


@pytest.mark.parametrize(("row", "found"), [("a,b,c", 3), ("a", 1), (",,,", 4)])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_ragged_row_is_named_with_its_line(write: Write, row: str, found: int, suffix: str) -> None:
    content = f'text,label\n"two\nlines",x\n{row}\nfine,x\n'
    path = write(f"a.{suffix}", content if suffix == "csv" else content.replace(",", "\t"))
    message = f"A row should have 2 fields, as the header has. Found {found} in a.{suffix}, line 4"
    with pytest.raises(DataError, match=message):
        read(path)
    with pytest.raises(DataError, match=message):
        list(stream(path))


def test_a_file_with_carriage_returns_for_line_ends_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match=r"A row should be a line.*in the row that starts in a\.csv, line 1"):
        read(write("a.csv", "text,label\rx,y\r"))


def test_a_quote_that_is_never_closed_is_named_with_the_line_it_starts_on(write: Write) -> None:
    with pytest.raises(DataError, match=r"in the row that starts in a.csv, line 3"):
        read(write("a.csv", 'text,label\nx,y\n"open,y\nx,y\nx,y\n'))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_a_blank_line_between_rows_is_named(write: Write, name: str) -> None:
    row = {"a.csv": "text,label\n", "a.tsv": "text\tlabel\n", "a.jsonl": '{"text": "x", "label": "y"}\n'}[name]
    with pytest.raises(DataError, match=rf"blank line|{name}, line 3: a blank line") as caught:
        read(write(name, f"{row}{row}\n{row}"))
    assert f"{name}, line 3" in str(caught.value)


@pytest.mark.parametrize("line", ['{"text": "x"', "not json", "[" * 100_000, '{"text": "a"} {"text": "b"}'])
def test_invalid_json_is_named_with_its_line(write: Write, line: str) -> None:
    with pytest.raises(DataError, match=r"Found invalid JSON in a.jsonl, line 2"):
        read(write("a.jsonl", f'{{"text": "x", "label": 1}}\n{line}\n'))


@pytest.mark.parametrize("line", ["[1, 2]", '"text"', "3", "null"])
@pytest.mark.parametrize("before", ["", '{"text": "x", "label": 1}\n'])
def test_json_that_is_no_object_is_named_with_its_line(write: Write, line: str, before: str) -> None:
    number = 2 if before else 1
    with pytest.raises(DataError, match=rf"Each line should be an object.*in a.jsonl, line {number}"):
        read(write("a.jsonl", before + line))


def test_a_parquet_file_that_is_none_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match=r"a.parquet should be a Parquet file"):
        read(write("a.parquet", "text,label\nx,y\n"))


def test_a_parquet_file_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame({"text": [f"text {n}" for n in range(5000)], "label": 1}).to_parquet(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"a.parquet should be a Parquet file"):
        read(path)


def test_an_item_of_another_shape_is_named_with_its_row() -> None:
    for item in (("a", "b", "c"), 3, None, ("a",)):
        with pytest.raises(DataError, match=r"An item should be \(text, label\).*in the list, row 2"):
            read([("a", 1), item])


def test_a_source_of_another_kind_is_refused() -> None:
    with pytest.raises(DataError, match=r"Data should be a path.*Found 3 \(int\)"):
        read(3)  # type: ignore[arg-type]


# Paths and names.


def test_a_file_that_is_not_there_gets_the_near_names(write: Write, tmp_path: Path) -> None:
    write("train.csv", "text,label\n")
    for missing in ("trian.csv", "train.tsv"):
        with pytest.raises(DataError, match=rf"File not found: `.*{missing}`.*Near it: `.*train\.csv`"):
            read(tmp_path / missing)
        with pytest.raises(DataError, match=r"File not found"):
            stream(tmp_path / missing)
    with pytest.raises(DataError, match=r"File not found: `.*zzz\.parquet`\. Check the path\.$"):
        read(str(tmp_path / "zzz.parquet"))
    with pytest.raises(DataError, match=r"File not found"):
        read(tmp_path / "nowhere" / "train.csv")


def test_a_path_without_a_known_suffix_never_asks_the_network(tmp_path: Path) -> None:
    for missing in (tmp_path / "texts", str(tmp_path / "texts"), "./texts", "../a/b/c", Path("texts")):
        with pytest.raises(DataError, match=r"File not found"):
            read(missing)
    with pytest.raises(DataError, match=r"File not found"):
        stream("texts.txt")


def test_what_cannot_be_looked_up_is_refused() -> None:
    for source in ("a sentence given as a path " * 50, "~nobody-of-this-name/train.csv"):
        with pytest.raises(DataError, match=r"Data should be a path or a name that can be looked up"):
            read(source)


def test_a_file_with_an_unknown_suffix_gets_the_known_ones(write: Write) -> None:
    with pytest.raises(DataError, match=r"should end in \.csv, \.tsv, \.jsonl, .*Found `.*a\.xlsx`"):
        read(write("a.xlsx", "x"))
    with pytest.raises(DataError, match=r"should end in \.csv"):
        read("hf://datasets/owner/name/a.xlsx")


@pytest.mark.usefixtures("offline")
def test_a_folder_is_read_by_datasets(tmp_path: Path, write: Write) -> None:
    (tmp_path / "csv").mkdir()
    write("csv/train.csv", "text,label\ngood,pos\nbad,neg\n")
    write("csv/test.csv", "text,label\nfine,pos\n")
    table = read(tmp_path / "csv")
    assert table.examples == PAIR
    assert table.where(1) == f"{tmp_path / 'csv'}, row 2"
    assert read(f"{tmp_path / 'csv'}:test").examples == [Example("fine", None, "pos")]
    assert read(f"{tmp_path / 'csv'}@default:train[:1]").examples == PAIR[:1]
    assert list(stream(tmp_path / "csv")) == [Example("good"), Example("bad")]


@pytest.mark.usefixtures("offline")
def test_a_folder_may_be_named_like_a_builder_of_datasets(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "csv").mkdir()
    write("csv/train.csv", "text,label\ngood,pos\nbad,neg\n")
    monkeypatch.chdir(tmp_path)
    for name in ("csv", "csv:train", Path("csv")):
        assert read(name).examples == PAIR


@pytest.mark.usefixtures("offline")
def test_a_split_or_config_that_is_not_there_is_named(tmp_path: Path, write: Write) -> None:
    (tmp_path / "set").mkdir()
    write("set/train.csv", "text,label\ngood,pos\nbad,neg\n")
    with pytest.raises(DataError, match=r"name@config:split.*Unknown split"):
        read(f"{tmp_path / 'set'}:test")
    with pytest.raises(DataError, match=r"name@config:split.*'other' not found"):
        read(f"{tmp_path / 'set'}@other")
    with pytest.raises(DataError, match=r"named `class`\. Found the columns `text`, `label`"):
        read(tmp_path / "set", label="class")


@pytest.mark.usefixtures("offline")
def test_a_hub_out_of_reach_is_a_sentence(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("train.csv", "text,label\n")
    monkeypatch.chdir(tmp_path)
    for name in ("nyu-mll/glue@sst2:validation", "imdb", "imdb:train[:10%]"):
        with pytest.raises(DataError, match=r"Hugging Face data set.*Couldn't reach '(nyu-mll/glue|imdb)'"):
            read(name)
    with pytest.raises(DataError, match=r"Near it: `.*train\.csv`"):
        read("train.cvs")
    with pytest.raises(DataError, match=r"`hf://datasets/a/b/train\.parquet` should be a file that can be read"):
        read("hf://datasets/a/b/train.parquet")


# Streams.


@pytest.mark.parametrize("name", ["texts.txt", "texts", "texts.log"])
def test_a_plain_file_is_one_text_per_line(write: Write, name: str) -> None:
    path = write(name, '\ufeffone, "two"\r\n  three\tfour \nfive')
    truth = [Example('one, "two"'), Example("  three\tfour "), Example("five")]
    assert list(stream(path)) == truth
    assert list(stream(str(path), text=("body",))) == truth


def test_a_handle_is_one_text_per_line() -> None:
    assert list(stream(io.StringIO("a\nb\n"))) == [Example("a"), Example("b")]
    assert list(stream(io.BytesIO("a\r\né".encode()))) == [Example("a"), Example("é")]


def test_a_bad_line_of_standard_input_is_named() -> None:
    with pytest.raises(DataError, match=r"A text should not be empty.*in standard input, line 2"):
        list(stream(io.BytesIO(b"a\n\nb\n")))
    with pytest.raises(DataError, match=r"Found the byte 0xff in standard input, line 2"):
        list(stream(io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(DataError, match=r"Found the byte 0xff in standard input, line 1"):
        list(stream(io.TextIOWrapper(io.BytesIO(b"a\n\xff\n"), encoding="utf-8")))
    with pytest.raises(DataError, match=r"at least one row. Found none in standard input"):
        list(stream(io.BytesIO(b"")))


def test_an_open_file_keeps_its_name_and_stays_open(write: Write) -> None:
    with write("texts.txt", "a\n \n").open("rb") as handle:
        with pytest.raises(DataError, match=r"in texts.txt, line 2"):
            list(stream(handle))
        assert not handle.closed


def test_texts_before_a_bad_line_are_given_first(write: Write) -> None:
    texts = stream(write("a.csv", "text\na\nb\n\nc\n"))
    assert [next(texts), next(texts)] == [Example("a"), Example("b")]
    with pytest.raises(DataError, match=r"line 4"):
        next(texts)


def test_a_missing_column_is_told_before_the_first_text_is_asked_for(write: Write) -> None:
    with pytest.raises(DataError, match=r"--text"):
        stream(write("a.csv", "body\nx\n"))


@pytest.mark.parametrize(
    ("name", "lines"),
    [("a.txt", 200_000), ("a.csv", 40_000), ("a.tsv", 40_000), ("a.jsonl", 40_000), ("a.parquet", 200_000)],
)
def test_a_stream_takes_constant_memory(tmp_path: Path, name: str, lines: int) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        pd.DataFrame({"text": [f"the text number {n}" for n in range(lines)], "n": 0}).to_parquet(path)
    else:
        header, row = {
            "a.txt": ("", "the text number {}\n"),
            "a.csv": ("text,n\n", "the text number {},0\n"),
            "a.tsv": ("text\tn\n", "the text number {}\t0\n"),
            "a.jsonl": ("", '{{"text": "the text number {}"}}\n'),
        }[name]
        with path.open("w") as file:
            file.write(header)
            file.writelines(row.format(n) for n in range(lines))
    next(stream(path))  # imports are not the stream's memory
    tracemalloc.start()
    count = sum(1 for _ in stream(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == lines
    assert peak < 400_000  # bytes; 40 000 texts as strings alone take 2.8 MB


def test_parquet_is_streamed_in_bounded_arrow_memory(tmp_path: Path) -> None:
    # tracemalloc does not see what Arrow holds.
    texts = [f"the text number {n} " * 20 for n in range(50_000)]
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "a.parquet")
    before = pa.total_allocated_bytes()
    peak = max(pa.total_allocated_bytes() for _ in stream(tmp_path / "a.parquet"))
    assert peak - before < 0.25 * sum(map(len, texts))


# A folder that somebody else wrote.


@pytest.mark.parametrize("way", ["../secret.csv", "{outside}/secret.csv", "link"])
def test_the_files_of_a_data_sets_folder_lie_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "secret.csv").write_text("text,label\nmine,1\n")
    folder = tmp_path / "set"
    folder.mkdir()
    if way == "link":
        (folder / "train.csv").symlink_to(tmp_path / "secret.csv")
    else:
        path = way.format(outside=tmp_path)
        card = f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {path}\n---\n"
        (folder / "README.md").write_text(card)
    with pytest.raises(DataError, match=r"should lie in its folder, `.*set`\. Found `.*(secret|train)\.csv`"):
        read(str(folder))
