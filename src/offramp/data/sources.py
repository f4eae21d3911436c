"""TEXT -> TOKENS, sources: labelled texts from files, data set names, frames and lists.

A source becomes rows that are read one at a time (`_Rows`); `read` and `stream` turn rows into examples with the same
checks. What is read, by what it is called:

    x.csv                          comma-separated, the first line names the columns; quotes as in RFC 4180
    x.tsv                          tab-separated, likewise; see below
    x.jsonl, x.ndjson, x.json      one JSON object per line
    x.parquet                      read in record batches
    hf://datasets/owner/name/x.*   any of these files on the Hugging Face hub
    [owner/]name[@config][:split]  a data set on the hub, or a folder that `datasets.load_dataset` reads; split `train`
                                   unless named: `nyu-mll/glue@sst2:validation`, `./folder:test`, `imdb:train[:10%]`

Files are UTF-8, with or without a byte order mark. A blank line is an error, except at the end of a table.

Quotes in TSV: pandas and spreadsheets quote a field that holds a tab, a quote or a line break (`"a ""b"" c"`); GLUE's
files quote nothing, and a field may begin with a stray quote. Both are read: a line that has as many tabs as the header
is a row, its well-quoted fields are unquoted and stray quotes are text; any other line is read by the quoting rules.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from offramp.data.labels import as_label
from offramp.errors import DataError
from offramp.types import Example, Label

Source = str | Path | Iterable[object]
"""A path, a data set's name, a pandas frame, or a list."""

Row = tuple[int, tuple[object, ...]]
"""Line or row number, counted from 1, and the values of the picked columns."""


@dataclass(frozen=True)
class Table:
    """Examples of one source, which knows where each of them stands."""

    examples: list[Example]
    name: str
    unit: str = "row"  # what `numbers` count: lines of a text file, rows of anything else
    numbers: Sequence[int] = ()  # of each example; empty: 1, 2, 3, ...

    def where(self, row: int) -> str:
        """Where example `row`, counted from 0, stands: `train.csv, line 17`."""
        return f"{self.name}, {self.unit} {self.numbers[row] if self.numbers else row + 1}"

    @property
    def labels(self) -> list[Label]:
        """The labels of the examples that have one."""
        return [example.label for example in self.examples if example.label is not None]


def read(
    source: Source, *, text: Sequence[str] = (), label: str | None = "label", labels_required: bool = True
) -> Table:
    """Every example of a source.

    `text` names one text column, or the two of a pair; empty: `text`, `sentence`, or `sentence1` and `sentence2`.
    Items of a list are (text, label), ((text, text), label), a text, an `Example`, or a mapping with columns.
    Without `labels_required` the label column may be absent and a label empty: the example's label is then None.
    """
    rows = _rows(source)
    numbers, examples = array("q"), []
    for number, example in _examples(rows, text, label, labels_required):
        numbers.append(number)
        examples.append(example)
    return Table(examples, rows.name, rows.unit, numbers)


def stream(source: str | Path | IO[str] | IO[bytes], *, text: Sequence[str] = ()) -> Iterator[Example]:
    """Texts to predict, one at a time in constant memory, labels left out.

    A file without a suffix from the table above, or an open handle, holds one text per line, and `text` is not used.
    Give `sys.stdin.buffer` rather than `sys.stdin`, so that a line that is not UTF-8 can be named.
    """
    if not isinstance(source, (str, Path)):
        rows = _line_rows(_lines(source, _handle_name(source)), _handle_name(source))
    elif _reader(source) is None and not _path(source).is_dir():
        if not _path(source).exists():
            raise _not_found(_path(source))
        rows = _line_rows(_file_lines(source), _name(source))
    else:
        rows = _rows(source)
    return (example for _, example in _examples(rows, text, None, False))


# Rows to examples.


@dataclass(frozen=True)
class _Rows:
    """Rows of a source that have not been read yet."""

    name: str
    unit: str
    columns: tuple[str, ...] | None  # None: a row holds its one or two texts and then its label, whatever is picked
    pick: Callable[[tuple[str, ...]], Iterator[Row]]


def _examples(
    rows: _Rows, text: Sequence[str], label: str | None, labels_required: bool
) -> Iterator[tuple[int, Example]]:
    """Checked examples with their numbers; columns are chosen now, rows read later."""
    if rows.columns is None:
        return _checked(rows, rows.pick(()), True, labels_required)
    texts = _text_columns(rows.columns, (text,) if isinstance(text, str) else tuple(text), rows.name)
    labelled = label is not None and label in rows.columns
    if labels_required and not labelled:
        raise DataError(
            f"A column should hold the labels, named `{label}`. Found {_names(rows.columns)} in {rows.name}. "
            "Name the label column with --label."
        )
    picked = (*texts, label) if labelled and label is not None else texts
    twice = [name for name in picked if rows.columns.count(name) > 1]
    if twice:
        raise DataError(f"Columns should have different names. Found `{twice[0]}` twice in {rows.name}. Rename one.")
    return _checked(rows, rows.pick(picked), labelled, labels_required)


def _text_columns(columns: tuple[str, ...], wanted: tuple[str, ...], name: str) -> tuple[str, ...]:
    choices = (wanted,) if wanted else (("text",), ("sentence",), ("sentence1", "sentence2"))
    if len(wanted) > 2:
        raise DataError(f"One column should hold the text, or two a pair. Found {_names(wanted)}.")
    for choice in choices:
        if all(column in columns for column in choice):
            return choice
    expected = " or ".join(" + ".join(f"`{column}`" for column in choice) for choice in choices)
    raise DataError(
        f"A column should hold the text, named {expected}. Found {_names(columns)} in {name}. "
        "Name the text column, or the two of a pair, with --text."
    )


def _checked(
    rows: _Rows, picked: Iterator[Row], labelled: bool, labels_required: bool
) -> Iterator[tuple[int, Example]]:
    empty = True
    for number, values in picked:
        empty = False
        place = f"{rows.name}, {rows.unit} {number}"
        texts = [_text(value, place) for value in (values[:-1] if labelled else values)]
        label = _label(values[-1], place, labels_required) if labelled else None
        yield number, Example(texts[0], texts[1] if len(texts) > 1 else None, label)
    if empty:
        raise DataError(f"Data should hold at least one row. Found none in {rows.name}. Check the source.")


def _text(value: object, place: str) -> str:
    if _missing(value):
        raise DataError(f"A text should not be empty. Found an empty one in {place}. Fill it in or remove the row.")
    if not isinstance(value, str):
        raise DataError(f"A text should be a string. Found {_short(value)} in {place}. Check the text column.")
    return _unicode(value, place)


def _label(value: object, place: str, required: bool) -> Label | None:
    label = as_label(value)
    if label is not None:
        return _unicode(label, place) if isinstance(label, str) else label
    if not _missing(value):
        raise DataError(f"A label should be a word or a whole number. Found {_short(value)} in {place}. Mend it.")
    if required:
        raise DataError(f"A label should not be empty. Found an empty one in {place}. Fill it in or remove the row.")
    return None


def _unicode(value: str, place: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"Texts and labels should be Unicode. Found half a character, {_short(value[error.start])}, in {place}. "
            "Remove it, or save the source as UTF-8."
        ) from None
    return str(value)


def _missing(value: object) -> bool:
    """Whether a cell is empty: None, NaN, pandas' NA and NaT, a blank string."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or str(value) in ("nan", "<NA>", "NaT")


# Sources to rows.


def _rows(source: Source) -> _Rows:
    if isinstance(source, (str, Path)):
        reader = _reader(source)
        if reader is not None and not _path(source).is_dir():
            return reader(source)
        return _dataset_rows(source)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        return _frame_rows(source)
    if isinstance(source, Iterable):
        return _list_rows(source)
    raise DataError(f"Data should be a path, a data set's name, a frame or a list. Found {_short(source)}.")


def _table_rows(source: str | Path, delimiter: str) -> _Rows:
    name = _name(source)
    records = _records(_without_end(_file_lines(source)), delimiter, name)
    _, columns = next(records, (0, []))
    if not columns:
        raise _empty(name)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        places = [columns.index(column) for column in wanted]
        for number, fields in records:
            yield number, tuple(fields[place] for place in places)

    return _Rows(name, "line", tuple(columns), pick)


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


def _json_rows(source: str | Path) -> _Rows:
    name = _name(source)

    def objects() -> Iterator[tuple[int, object]]:
        for number, line in enumerate(_without_end(_file_lines(source)), 1):
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                found = "a blank line" if not line.strip() else getattr(error, "msg", str(error))
                raise DataError(
                    f"Each line should be a JSON object. Found invalid JSON in {name}, line {number}: {found}. "
                    "Mend or remove the line."
                ) from None

    return _mapping_rows(objects(), name, "line")


def _mapping_rows(items: Iterator[tuple[int, object]], name: str, unit: str) -> _Rows:
    """Rows of mappings; the first one's keys are the columns."""

    def mapping(number: int, item: object) -> Mapping[Any, object]:
        if isinstance(item, Mapping):
            return item
        raise DataError(
            f"Each {unit} should be an object with columns. Found {_short(item)} in {name}, {unit} {number}. "
            'Write {"text": ..., "label": ...}.'
        )

    first = next(items, None)
    if first is None:
        raise _empty(name)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        for number, item in chain((first,), items):
            values = mapping(number, item)
            yield number, tuple(values.get(column) for column in wanted)

    return _Rows(name, unit, tuple(str(column) for column in mapping(*first)), pick)


def _parquet_rows(source: str | Path) -> _Rows:
    import pyarrow as pa
    from pyarrow import parquet

    name, path = _name(source), _path(source)
    if path.is_file() and not path.stat().st_size:
        raise _empty(name)

    def broken(error: Exception) -> DataError:
        return DataError(f"{name} should be a Parquet file. Found one that cannot be read: {error}. Write it again.")

    # Arrow opens a local file itself and closes it when it is no longer used.
    handle = _opened(source) if _remote(source) else str(_existing(path))
    try:
        file = parquet.ParquetFile(handle)
    except (pa.ArrowException, OSError) as error:
        raise broken(error) from error

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=1024, columns=list(wanted)):
                for values in zip(*(batch.column(column).to_pylist() for column in wanted), strict=True):
                    number += 1
                    yield number, values
        except (pa.ArrowException, OSError) as error:
            raise broken(error) from error

    return _Rows(name, "row", tuple(file.schema_arrow.names), pick)


def _dataset_rows(source: str | Path) -> _Rows:
    import datasets

    name, config, split = _dataset_name(source)
    try:
        dataset = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the hub, the network and the builders have no common base of errors
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"`{source}` should be a file, a folder or a Hugging Face data set, written name@config:split. "
            f"Found: {reason}. Check the name, the split and the network.{_near(Path(name))}"
        ) from error

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        number = 0
        for part in dataset.select_columns(list(wanted)).iter(batch_size=1024):
            for values in zip(*(part[column] for column in wanted), strict=True):
                number += 1
                yield number, values

    return _Rows(str(source), "row", tuple(dataset.column_names), pick)


def _dataset_name(source: str | Path) -> tuple[str, str | None, str]:
    """Name or folder, config and split."""
    path = _path(source)
    if path.is_dir():
        return str(path.resolve()), None, "train"
    if path.exists() or _remote(source):
        raise DataError(f"A file of data should end in {', '.join(_READERS)}. Found `{source}`. Rename or convert it.")
    written = re.fullmatch(r"(.+?)(?:@([\w.-]+))?(?::(\w[\w.-]*(?:\[[^\]]*\])?))?", str(source))
    name, config, split = written.groups() if written else (str(source), None, None)
    folder = _path(name)
    if folder.is_dir():
        # In full, because a folder named `csv` would be taken for one of the library's builders.
        return str(folder.resolve()), config, split or "train"
    # What cannot be a name on the hub is a path, and nobody waits for the network to hear so.
    if isinstance(source, Path) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise _not_found(folder)
    return name, config, split or "train"


def _frame_rows(frame: Any) -> _Rows:
    columns = tuple(str(column) for column in frame.columns)

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        values = {str(column): cells for column, cells in frame.to_dict("list").items()}
        yield from enumerate(zip(*(values[column] for column in wanted), strict=True), 1)

    return _Rows("the frame", "row", columns, pick)


def _list_rows(items: Iterable[object]) -> _Rows:
    name, rest = "the list", iter(items)
    first = list(islice(rest, 1))
    numbered = enumerate(chain(first, rest), 1)
    if first and isinstance(first[0], Mapping):
        return _mapping_rows(numbered, name, "row")

    def pick(_: tuple[str, ...]) -> Iterator[Row]:
        for number, item in numbered:
            match item:
                case Example(text, None, label) | (str(text), label):
                    yield number, (text, label)
                case Example(text, pair, label) | ((text, pair), label):
                    yield number, (text, pair, label)
                case str(text):
                    yield number, (text, None)
                case (text, label):
                    yield number, (text, label)
                case _:
                    raise DataError(
                        f"An item should be (text, label), ((text, text), label), a mapping or an Example. "
                        f"Found {_short(item)} in {name}, row {number}."
                    )

    return _Rows(name, "row", None, pick)


def _line_rows(lines: Iterator[str], name: str) -> _Rows:
    def pick(_: tuple[str, ...]) -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            yield number, (line.rstrip("\r\n"), None)

    return _Rows(name, "line", None, pick)


_READERS: dict[str, Callable[[str | Path], _Rows]] = {
    ".csv": lambda source: _table_rows(source, ","),
    ".tsv": lambda source: _table_rows(source, "\t"),
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
}


def _reader(source: str | Path) -> Callable[[str | Path], _Rows] | None:
    return _READERS.get(Path(source).suffix.lower())


# Files to lines.


def _opened(source: str | Path) -> IO[bytes]:
    try:
        if not _remote(source):
            return _existing(_path(source)).open("rb")
        from huggingface_hub import HfFileSystem

        handle: IO[bytes] = HfFileSystem().open(str(source), "rb")
        return handle
    except DataError:
        raise
    except Exception as error:  # the hub's errors are not all OSError
        raise DataError(f"`{source}` should be a file that can be read. Found: {error}.") from error


def _file_lines(source: str | Path) -> Iterator[str]:
    with _opened(source) as handle:
        yield from _lines(handle, _name(source))


def _lines(handle: Iterable[str | bytes], name: str) -> Iterator[str]:
    """Lines with their line ends, the byte order mark removed."""
    number, place = 0, "line 1"
    try:
        for number, raw in enumerate(handle, 1):
            place = f"line {number}"
            line = raw.decode() if isinstance(raw, bytes) else raw
            yield line.removeprefix("\ufeff") if number == 1 else line
            place = f"after line {number}"  # a text handle decodes ahead
    except UnicodeDecodeError as error:
        found = f"0x{error.object[error.start]:02x}"
        raise DataError(
            f"A file should be UTF-8. Found the byte {found} in {name}, {place}. Save the file as UTF-8."
        ) from None


def _without_end(lines: Iterator[str]) -> Iterator[str]:
    """The lines without the blank ones at the end."""
    blank: list[str] = []
    for line in lines:
        if not line.strip():
            blank.append(line)
        else:
            yield from blank
            blank.clear()
            yield line


# Names and messages.


def _remote(source: str | Path) -> bool:
    return str(source).startswith("hf://")


def _path(source: str | Path) -> Path:
    try:
        path = Path(source).expanduser()
        path.exists()  # raises where the path is too long or a folder on the way may not be entered
        return path
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"Data should be a path or a name that can be looked up. Found {_short(source)}: {error}."
        ) from error


def _existing(path: Path) -> Path:
    if not path.exists():
        raise _not_found(path)
    return path


def _name(source: str | Path) -> str:
    return str(source) if _remote(source) else Path(source).name


def _handle_name(handle: object) -> str:
    name = getattr(handle, "name", None)
    return Path(name).name if isinstance(name, str) and name != "<stdin>" else "standard input"


def _names(columns: Sequence[str]) -> str:
    return "the columns " + ", ".join(f"`{column}`" for column in columns) if columns else "no columns"


def _short(value: object) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"


def _not_found(path: Path) -> DataError:
    return DataError(f"File not found: `{path}`. Check the path.{_near(path)}")


def _near(path: Path) -> str:
    """A hint with the names in the folder that are near to a path's."""
    try:
        here = [] if path.exists() else [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, here, n=3, cutoff=0.6)
    return f" Near it: {', '.join(f'`{name}`' for name in near)}." if near else ""


def _empty(name: str) -> DataError:
    return DataError(f"Data should hold at least one row. Found {name} to be empty. Check the source.")
