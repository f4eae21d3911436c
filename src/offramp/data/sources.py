"""TEXT -> TOKENS, sources: labelled texts from files, data set names, tasks, frames and lists."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from offramp.config import DataConfig
from offramp.data.files import file_lines, handle_name, lines_of, listed, name_of, not_found, path_of, remote, shown
from offramp.data.label_sets import as_label_set
from offramp.data.labels import as_label
from offramp.data.rows import FORMATS, Row, Rows, Source, header_of, parquet_rows, reader_of, rows_of
from offramp.data.task_rows import is_task, task_rows
from offramp.data.words import in_order, split
from offramp.errors import DataError, unknown_name
from offramp.reading import SET, TAGS
from offramp.types import Example, Label


@dataclass(frozen=True)
class Table:
    """Examples of one source, which knows where each of them stands."""

    examples: list[Example]
    name: str
    unit: str = "row"  # what `numbers` count: lines of a text file, rows of anything else
    numbers: Sequence[int] = ()  # of each example; empty: 1, 2, 3, ...
    order: tuple[Label, ...] = ()  # the labels by class number; empty: as `Labels.of` sorts them

    def where(self, row: int) -> str:
        """Where example `row`, counted from 0, stands: `train.csv, line 17`."""
        return f"{self.name}, {self.unit} {self.numbers[row] if self.numbers else row + 1}"

    def keep(self, rows: Sequence[int]) -> Table:
        """The examples of these rows, counted from 0, which still know where they stand."""
        numbers = [self.numbers[row] if self.numbers else row + 1 for row in rows]
        return replace(self, examples=[self.examples[row] for row in rows], numbers=numbers)

    @property
    def labels(self) -> list[Label]:
        """The labels of the examples that have one; of sets, those of all sets; of tags, those of all words."""
        return [label for own in self.label_sets() if own is not None for label in own]

    def label_sets(self) -> Iterator[tuple[Label, ...] | None]:
        """The set of labels of each example; one label is a set of one, and tags are those of the words in order."""
        for example in self.examples:
            many = example.tags if example.labels is None else example.labels
            yield (example.label,) if example.label is not None else many


def columns(data: DataConfig, text: Sequence[str] | None = None, label: str | None = None) -> dict[str, Any]:
    """How `read` reads what a configuration describes; `text` and `label` name other columns."""
    separator = data.label_separator if data.labels == SET else None
    tags = data.labels == TAGS
    return {"text": text or data.text, "label": label or data.label, "separator": separator, "tags": tags}


def read(
    source: Source,
    *,
    text: Sequence[str] = (),
    label: str | None = "label",
    labels_required: bool = True,
    separator: str | None = None,
    tags: bool = False,
) -> Table:
    """Every example of a source.

    `task:rte/validation` is a split of a named task, and `task:rte` its training texts (`data.tasks`).
    `text` names one text column, or the two of a pair; empty: `text`, `sentence`, or `sentence1` and `sentence2`.
    Items of a list are (text, label), ((text, text), label), a text, an `Example`, or a mapping with columns.
    Without `labels_required` the label column may be absent and a label empty: the example's label is then None.
    With a `separator` each text has a set of labels: a list, or a string with that between them.
    With `tags` each word has one: the text is a list of words (`tokens` or `words` unless named), or a string that is
    divided into words, and the label (`tags` unless named) is a list of as many words.
    """
    rows = _rows(source)
    numbers, examples = array("q"), []
    for number, example in _examples(rows, text, label, labels_required, separator, tags):
        numbers.append(number)
        examples.append(example)
    return Table(examples, rows.name, rows.unit, numbers, rows.order)


def stream(
    source: str | Path | Iterable[str | bytes],
    *,
    text: Sequence[str] = (),
    tags: bool = False,
    format: str | None = None,
) -> Iterator[Example]:
    """Texts to predict, one at a time in constant memory, labels left out.

    A file without a suffix from the table above, or an open handle, has one text per line, and `text` is not used,
    unless `format` says that it is a table: `csv`, `tsv` or `jsonl`. A first line that names the columns of one is then
    refused, unless `format` is `text`.
    Give `sys.stdin.buffer` rather than `sys.stdin`, so that a line that is not UTF-8 can be named.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if not isinstance(source, (str, Path)):
        name, lines = handle_name(source), lines_of(source, handle_name(source))
    elif format is None and (reader_of(source) is not None or is_task(source) or path_of(source).is_dir()):
        return (example for _, example in _examples(_rows(source), text, None, False, tags=tags))
    else:
        if not remote(source) and not path_of(source).exists():
            raise not_found(path_of(source))
        name, lines = name_of(source), file_lines(source)
    rows = FORMATS[format or "text"](lines if format else _no_table(lines, name, text, tags), name)
    return (example for _, example in _examples(rows, text, None, False, tags=tags))


def _no_table(lines: Iterator[str], name: str, text: Sequence[str], tags: bool) -> Iterator[str]:
    """The lines, unless the first names columns that could be read: each line of a table would be taken for a text."""
    for number, line in enumerate(lines):
        found = header_of(line) if number == 0 else None
        if found is not None and _readable(found[1], text, tags):
            raise DataError(
                f"Each line should be a text. Found {listed(found[1])} in {name}, line 1, as a table begins. "
                f"Add --format {found[0]}, or --format text where it is a text."
            )
        yield line


def _readable(columns: tuple[str, ...], text: Sequence[str], tags: bool) -> bool:
    """Whether texts could be read from a table with these columns."""
    try:
        return bool(_text_columns(columns, tuple(text), "", tags))
    except DataError:
        return False


def span(source: str | Path, first: int, stop: int, *, text: Sequence[str] = ()) -> Iterator[Example]:
    """Texts to predict from some rows of a Parquet file: from `first`, counted from 0, to before `stop`."""
    return (example for _, example in _examples(parquet_rows(source, first, stop), text, None, False))


def _rows(source: Source) -> Rows:
    return task_rows(source) if isinstance(source, str | Path) and is_task(source) else rows_of(source)


def _examples(
    rows: Rows,
    text: Sequence[str],
    label: str | None,
    labels_required: bool,
    separator: str | None = None,
    tags: bool = False,
) -> Iterator[tuple[int, Example]]:
    """Checked examples with their numbers; columns are chosen now, rows read later."""
    if rows.columns is None:
        return _checked(rows, rows.pick(()), True, labels_required, separator, tags)
    texts = _text_columns(rows.columns, (text,) if isinstance(text, str) else tuple(text), rows.name, tags)
    if tags and label == "label":
        label = "tags"
    labelled = label is not None and label in rows.columns
    if labels_required and not labelled:
        raise DataError(
            f"A column should hold the labels, named `{label}`. Found {listed(rows.columns)} in {rows.name}. "
            "Name the label column with --label."
        )
    picked = (*texts, label) if labelled and label is not None else texts
    twice = [name for name in picked if rows.columns.count(name) > 1]
    if twice:
        raise DataError(f"Columns should have different names. Found `{twice[0]}` twice in {rows.name}. Rename one.")
    return _checked(rows, rows.pick(picked), labelled, labels_required, separator, tags)


def _text_columns(columns: tuple[str, ...], wanted: tuple[str, ...], name: str, tags: bool) -> tuple[str, ...]:
    usual: tuple[tuple[str, ...], ...] = (("text",), ("sentence",), ("sentence1", "sentence2"))
    if tags:
        usual = (("tokens",), ("words",), ("text",), ("sentence",))
    choices = (wanted,) if wanted else usual
    if len(wanted) > 2:
        raise DataError(f"One column should hold the text, or two a pair. Found {listed(wanted)}.")
    if len(wanted) > 1 and tags:
        raise DataError(f"One column should hold the text where words have tags. Found {listed(wanted)}.")
    for choice in choices:
        if all(column in columns for column in choice):
            return choice
    expected = " or ".join(" + ".join(f"`{column}`" for column in choice) for choice in choices)
    tagged = not tags and "tags" in columns and ("tokens" in columns or "words" in columns)
    raise DataError(
        f"A column should hold the text, named {expected}. Found {listed(columns)} in {name}. "
        + ("Words with tags are read with --recipe acl-tags, or --set data.labels=tags. " if tagged else "")
        + "Name the text column, or the two of a pair, with --text."
    )


def _checked(
    rows: Rows,
    picked: Iterator[Row],
    labelled: bool,
    labels_required: bool,
    separator: str | None,
    tags: bool,
) -> Iterator[tuple[int, Example]]:
    empty = True
    for number, values in picked:
        empty = False
        place = f"{rows.name}, {rows.unit} {number}"
        if tags:
            yield number, _tagged(values, place, labelled, labels_required)
            continue
        texts = [_text(value, place) for value in (values[:-1] if labelled else values)]
        pair = texts[1] if len(texts) > 1 else None
        if not labelled:
            yield number, Example(texts[0], pair)
        elif separator is None:
            yield number, Example(texts[0], pair, _label(values[-1], place, labels_required))
        else:
            yield number, Example(texts[0], pair, labels=_label_set(values[-1], place, labels_required, separator))
    if empty:
        raise DataError(f"Data should hold at least one row. Found none in {rows.name}. Check the source.")


def _tagged(values: tuple[object, ...], place: str, labelled: bool, required: bool) -> Example:
    """A text whose words have tags, or are to be given some."""
    given = values[:-1] if labelled else values
    # A list of two words looks like a pair.
    text, words = _words(given[0] if len(given) == 1 else list(given), place)
    tags = values[-1] if labelled else None
    if isinstance(tags, np.ndarray):
        tags = tags.tolist()
    if not required and (tags is None or (isinstance(tags, list | tuple) and all(map(_missing, tags)))):
        return Example(text, words=words)
    if not isinstance(tags, list | tuple):
        raise DataError(
            f"The tags of a text should be a list, one tag for each word. Found {shown(tags)} in {place}. Mend it."
        )
    if len(tags) != len(words):
        raise DataError(
            f"There should be as many tags as words. Found {len(tags)} tags for {len(words)} words in {place}. Mend it."
        )
    told = [_tag(tag, f"{place}, word {number}") for number, tag in enumerate(tags, 1)]
    return Example(text, words=words, tags=tuple(told))


def _words(value: object, place: str) -> tuple[str, tuple[str, ...]]:
    """A text and its words: those of a list, or those that a string is divided into."""
    if isinstance(value, Example):
        found = _words(value.words, place)
        return (_text(value.text, place), found[1]) if in_order(value.text, found[1]) else found
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        words = tuple(_text(word, f"{place}, word {number}") for number, word in enumerate(value, 1))
        if not words:
            raise DataError(f"A text should not be empty. Found one without words in {place}. Remove the row.")
        return " ".join(words), words
    text = _text(value, place)
    return text, split(text)


def _text(value: object, place: str) -> str:
    if _missing(value):
        raise DataError(f"A text should not be empty. Found an empty one in {place}. Fill it in or remove the row.")
    if not isinstance(value, str):
        raise DataError(f"A text should be a string. Found {shown(value)} in {place}. Check the text column.")
    return _unicode(value, place)


def _label(value: object, place: str, required: bool) -> Label | None:
    label = as_label(value)
    if label is not None:
        return _unicode(label, place) if isinstance(label, str) else label
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        raise DataError(
            f"A label should be a word or a whole number. Found {shown(value)} in {place}. "
            "Where texts have several labels, set data.labels=set."
        )
    if not _missing(value):
        raise DataError(f"A label should be a word or a whole number. Found {shown(value)} in {place}. Mend it.")
    if required:
        raise DataError(
            f"A label should not be empty. Found an empty one in {place}. Fill it in or remove the row, or set "
            "data.labels=set where texts have sets of labels, which may be empty."
        )
    return None


def _tag(value: object, place: str) -> Label:
    if _missing(value):
        raise DataError(f"A tag should not be empty. Found an empty one in {place}. Fill it in or remove the row.")
    tag = _label(value, place, required=True)
    assert tag is not None
    return tag


def _label_set(value: object, place: str, required: bool, separator: str) -> tuple[Label, ...] | None:
    labels = as_label_set(value, separator)
    if labels is not None:
        return tuple(_unicode(label, place) if isinstance(label, str) else label for label in labels)
    if required or not _missing(value):
        raise DataError(
            "A set of labels should be a list of words or whole numbers, which may be empty, or a string with "
            f"`{separator}` between them. Found {shown(value)} in {place}. Mend it."
        )
    return None


def _unicode(value: str, place: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"Texts and labels should be Unicode. Found half a character, {shown(value[error.start])}, in {place}. "
            "Remove it, or save the source as UTF-8."
        ) from None
    return str(value)


def _missing(value: object) -> bool:
    """Whether a cell is empty: None, NaN, pandas' NA and NaT, a blank string."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or str(value) in ("nan", "<NA>", "NaT")
