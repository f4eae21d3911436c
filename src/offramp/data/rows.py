"""TEXT -> TOKENS, rows: what a source holds, one row at a time.

What is read, by what it is called:

    x.csv                          comma-separated, the first line names the columns; quotes as in RFC 4180
    x.tsv                          tab-separated, likewise; see below
    x.jsonl, x.ndjson, x.json      one JSON object per line
    x.parquet                      read in record batches
    x.conll                        a word and its tag per line, a blank line between texts; see below
    hf://datasets/owner/name/x.*   any of these files on the Hugging Face hub
    [owner/]name[@config][:split]  a data set on the hub, or a folder that `datasets.load_dataset` reads; split `train`
                                   unless named: `nyu-mll/glue@sst2:validation`, `./folder:test`, `imdb:train[:10%]`

Files are UTF-8, with or without a byte order mark. A blank line is an error, except at the end of a table and in CoNLL.

Quotes in TSV: pandas and spreadsheets quote a field that holds a tab, a quote or a line break (`"a ""b"" c"`); GLUE's
files quote nothing, and a field may begin with a stray quote. Both are read: a line that has as many tabs as the header
is a row, its well-quoted fields are unquoted and stray quotes are text; any other line is read by the quoting rules.

CoNLL: the columns of a line are parted by tabs where there is a tab, and else by blanks; the first is the word, the
last of two or more its tag. Lines that begin with `-DOCSTART-` are left out. The columns of the rows are `tokens` and
`tags`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from offramp.data.files import (
    empty_source,
    existing,
    file_lines,
    name_of,
    not_found,
    opened,
    path_of,
    remote,
    shown,
    without_end,
)
from offramp.errors import DataError, near_names

Source = str | Path | Iterable[object]
"""A path, a data set's name, a pandas frame, or a list."""

Row = tuple[int, tuple[object, ...]]
"""Line or row number, counted from 1, and the values of the picked columns."""


@dataclass(frozen=True)
class Rows:
    """Rows of a source that have not been read yet."""

    name: str
    unit: str
    columns: tuple[str, ...] | None  # None: a row holds its one or two texts and then its label, whatever is picked
    pick: Callable[[tuple[str, ...]], Iterator[Row]]
    order: tuple[str, ...] = ()  # the labels by class number, where the source has an order of its own
    count: int | None = None  # how many there are, where the source says so before they are read


def rows_of(source: Source) -> Rows:
    """The rows of a source, whatever it is."""
    if isinstance(source, (str, Path)):
        reader = reader_of(source)
        if reader is not None and not path_of(source).is_dir():
            return reader(source)
        return _dataset_rows(source)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        return _frame_rows(source)
    if isinstance(source, Iterable):
        return _list_rows(source)
    raise DataError(f"Data should be a path, a data set's name, a frame or a list. Found {shown(source)}.")


def _table_rows(lines: Iterator[str], name: str, delimiter: str) -> Rows:
    records = _records(without_end(lines), delimiter, name)
    _, columns = next(records, (0, []))
    if not columns:
        raise empty_source(name)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        places = [columns.index(column) for column in wanted]
        for number, fields in records:
            yield number, tuple(fields[place] for place in places)

    return Rows(name, "line", tuple(columns), pick)


def _records(lines: Iterator[str], delimiter: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record with the line it starts on; all have as many fields as the first."""
    # The limit belongs to the process and is only ever raised. It still stops a quote that is never closed.
    csv.field_size_limit(max(csv.field_size_limit(), 2**24))
    number, width = 1, 0
    for line in lines:
        place, used = f"{name}, line {number}", 1
        fields = line.rstrip("\r\n").split(delimiter)
        if delimiter == "\t" and len(fields) == width:
            fields = [_unquoted(field) for field in fields]
        else:
            reader = csv.reader(chain((line,), lines), delimiter=delimiter, strict=True)
            try:
                fields = next(reader)
            except csv.Error as error:
                raise DataError(
                    'A row should be a line; only a quoted field may hold line breaks, and quotes if doubled (""). '
                    f"Found otherwise in the row that starts in {place} ({error}). Mend the quotes."
                ) from None
            used = reader.line_num
        width = width or len(fields)
        if not fields:
            raise DataError(f"A line should hold a row. Found a blank line in {place}. Remove it.")
        if len(fields) != width:
            raise DataError(
                f"A row should have {width} fields, as the header has. Found {len(fields)} in {place}. "
                'Put a field that holds the separator, a quote or a line break into "quotes".'
            )
        yield number, fields
        number += used


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"') if re.fullmatch(r'"(?:[^"]|"")*"', field) else field


def _json_rows(lines: Iterator[str], name: str) -> Rows:
    def objects() -> Iterator[tuple[int, object]]:
        for number, line in enumerate(without_end(lines), 1):
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                found = "a blank line" if not line.strip() else getattr(error, "msg", str(error))
                raise DataError(
                    f"Each line should be a JSON object. Found invalid JSON in {name}, line {number}: {found}. "
                    "Mend or remove the line."
                ) from None

    return _mapping_rows(objects(), name, "line")


def _mapping_rows(items: Iterator[tuple[int, object]], name: str, unit: str) -> Rows:
    """Rows of mappings; the first one's keys are the columns."""

    def mapping(number: int, item: object) -> Mapping[Any, object]:
        if isinstance(item, Mapping):
            return item
        raise DataError(
            f"Each {unit} should be an object with columns. Found {shown(item)} in {name}, {unit} {number}. "
            'Write {"text": ..., "label": ...}.'
        )

    first = next(items, None)
    if first is None:
        raise empty_source(name)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        for number, item in chain((first,), items):
            values = mapping(number, item)
            yield number, tuple(values.get(column) for column in wanted)

    return Rows(name, unit, tuple(str(column) for column in mapping(*first)), pick)


def parquet_rows(source: str | Path, first: int = 0, stop: int | None = None) -> Rows:
    """The rows of a Parquet file from `first`, counted from 0, to before `stop`; row groups before are not read."""
    import pyarrow as pa
    from pyarrow import parquet

    name, path = name_of(source), path_of(source)
    if path.is_file() and not path.stat().st_size:
        raise empty_source(name)

    def broken(error: Exception) -> DataError:
        return DataError(f"{name} should be a Parquet file. Found one that cannot be read: {error}. Write it again.")

    # Arrow opens a local file itself and closes it when it is no longer used.
    handle = opened(source) if remote(source) else str(existing(path))
    try:
        file = parquet.ParquetFile(handle)
    except (pa.ArrowException, OSError) as error:
        raise broken(error) from error

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        groups, end = _row_groups(file.metadata, first)
        try:
            for batch in file.iter_batches(batch_size=1024, row_groups=groups, columns=list(wanted)):
                begin, end = end, end + len(batch)
                low = min(max(first, begin), end)
                part = batch.slice(low - begin, max(0, min(end, stop or end) - low))
                yield from enumerate(zip(*(part.column(column).to_pylist() for column in wanted), strict=True), low + 1)
                if stop and end >= stop:
                    return
        except (pa.ArrowException, OSError) as error:
            raise broken(error) from error

    return Rows(name, "row", tuple(file.schema_arrow.names), pick, count=file.metadata.num_rows)


def _row_groups(metadata: Any, first: int) -> tuple[list[int], int]:
    """The row groups from the one that holds row `first`, and how many rows stand before them."""
    before = 0
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        if before + size > first:
            return list(range(group, metadata.num_row_groups)), before
        before += size
    return [], before


def _dataset_rows(source: str | Path) -> Rows:
    import datasets

    name, config, split = dataset_name(source)
    try:
        if Path(name).is_absolute():
            _check_inside(Path(name), datasets.load_dataset_builder(name, config).config.data_files or {})
        dataset = datasets.load_dataset(name, config, split=split)
    except DataError:
        raise
    except Exception as error:  # the hub, the network and the builders have no common base of errors
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"`{source}` should be a file, a folder or a Hugging Face data set, written name@config:split. "
            f"Found: {reason}. Check the name, the split and the network.{near_names(Path(name))}"
        ) from error

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        number = 0
        for part in dataset.select_columns(list(wanted)).iter(batch_size=1024):
            for values in zip(*(part[column] for column in wanted), strict=True):
                number += 1
                yield number, values

    return Rows(str(source), "row", tuple(dataset.column_names), pick)


def _check_inside(folder: Path, files: Mapping[str, Iterable[str]]) -> None:
    """Refuse a folder whose card, or a link in it, names files elsewhere: whoever wrote it may not say what is read."""
    for file in chain.from_iterable(files.values()):
        if "://" in file or not Path(file).resolve().is_relative_to(folder):
            raise DataError(
                f"The files of a data set should lie in its folder, `{folder}`. Found `{file}`. Copy it there."
            )


def dataset_name(source: str | Path) -> tuple[str, str | None, str]:
    """Name or folder, config and split of a data set; what can be neither is refused."""
    path = path_of(source)
    if path.is_dir():
        return str(path.resolve()), None, "train"
    if path.exists() or remote(source):
        raise DataError(f"A file of data should end in {', '.join(_READERS)}. Found `{source}`. Rename or convert it.")
    written = re.fullmatch(r"(.+?)(?:@([\w.-]+))?(?::(\w[\w.-]*(?:\[[^\]]*\])?))?", str(source))
    name, config, split = written.groups() if written else (str(source), None, None)
    folder = path_of(name)
    if folder.is_dir():
        # In full, because a folder named `csv` would be taken for one of the library's builders.
        return str(folder.resolve()), config, split or "train"
    # What cannot be a name on the hub is a path, and nobody waits for the network to hear so.
    if isinstance(source, Path) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise not_found(folder)
    return name, config, split or "train"


def _frame_rows(frame: Any) -> Rows:
    columns = tuple(str(column) for column in frame.columns)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        values = {str(column): cells for column, cells in frame.to_dict("list").items()}
        yield from enumerate(zip(*(values[column] for column in wanted), strict=True), 1)

    return Rows("the frame", "row", columns, pick)


def _list_rows(items: Iterable[object]) -> Rows:
    from offramp.types import Example  # it needs torch, and files do not

    name, rest = "the list", iter(items)
    first = list(islice(rest, 1))
    numbered = enumerate(chain(first, rest), 1)
    if first and isinstance(first[0], Mapping):
        return _mapping_rows(numbered, name, "row")

    def pick(_: tuple[str, ...]) -> Iterator[Row]:
        for number, item in numbered:
            match item:
                case Example():
                    told = item.tags if item.tags is not None else item.label if item.labels is None else item.labels
                    text = item.text if item.words is None else item  # its words go with it
                    yield number, (text, told) if item.pair is None else (text, item.pair, told)
                case (str(text), label):
                    yield number, (text, label)
                case ((text, pair), label):
                    yield number, (text, pair, label)
                case str(text):
                    yield number, (text, None)
                case (text, label):
                    yield number, (text, label)
                case _:
                    raise DataError(
                        f"An item should be (text, label), ((text, text), label), a mapping or an Example. "
                        f"Found {shown(item)} in {name}, row {number}."
                    )

    return Rows(name, "row", None, pick)


def _conll_rows(source: str | Path) -> Rows:
    name = name_of(source)

    def texts() -> Iterator[tuple[int, list[list[str]]]]:
        """Each text's lines in columns, with the number of the first of them."""
        begin, lines = 1, []
        for number, line in enumerate(file_lines(source), 1):
            if line.strip() and not line.startswith("-DOCSTART-"):
                lines.append([cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else line.split())
                begin = number if len(lines) == 1 else begin
            elif lines:
                yield begin, lines
                lines = []
        if lines:
            yield begin, lines

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        for number, lines in texts():
            told = {
                "tokens": [cells[0] for cells in lines],
                "tags": [cells[-1] if cells[1:] else "" for cells in lines],
            }
            yield number, tuple(told[column] for column in wanted)

    return Rows(name, "line", ("tokens", "tags"), pick)


def line_rows(lines: Iterator[str], name: str) -> Rows:
    """Plain lines: each is one text."""

    def pick(_: tuple[str, ...]) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            yield number, (line.rstrip("\r\n"), None)

    return Rows(name, "line", None, pick)


FORMATS: dict[str, Callable[[Iterator[str], str], Rows]] = {
    "text": line_rows,
    "csv": lambda lines, name: _table_rows(lines, name, ","),
    "tsv": lambda lines, name: _table_rows(lines, name, "\t"),
    "jsonl": _json_rows,
}
"""What lines may hold, by the name that `--format` gives it; the readers take the lines and what they are called."""

_READERS: dict[str, Callable[[str | Path], Rows]] = {
    ".csv": lambda source: FORMATS["csv"](file_lines(source), name_of(source)),
    ".tsv": lambda source: FORMATS["tsv"](file_lines(source), name_of(source)),
    ".jsonl": lambda source: FORMATS["jsonl"](file_lines(source), name_of(source)),
    ".ndjson": lambda source: FORMATS["jsonl"](file_lines(source), name_of(source)),
    ".json": lambda source: FORMATS["jsonl"](file_lines(source), name_of(source)),
    ".parquet": parquet_rows,
    ".conll": _conll_rows,
}


def header_of(line: str) -> tuple[str, tuple[str, ...]] | None:
    """The format and the columns of a table that seems to begin with this line; None: it reads like a text.

    >>> header_of("id,text,label"), header_of("text, please")
    (('csv', ('id', 'text', 'label')), None)
    """
    if line.startswith("{"):
        try:
            return "jsonl", tuple(json.loads(line))
        except (ValueError, RecursionError):
            return None
    for name, delimiter in (("tsv", "\t"), ("csv", ",")):
        try:
            columns = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])
        except csv.Error:  # longer than any name
            return None
        if len(columns) > 1 and all(column == column.strip() for column in columns):
            return name, tuple(columns)
    return None


def reader_of(source: str | Path) -> Callable[[str | Path], Rows] | None:
    """The reader for a file's suffix."""
    return _READERS.get(Path(source).suffix.lower())
