"""TEXT -> TOKENS, division: one source of labelled texts as several files, no text in two of them.

A file's parts are of its own kind: rows of CSV, TSV and JSON are copied as they stand, all columns of Parquet are kept.
What is no file (a task, a data set's name) is written as JSON lines.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from offramp.data.files import file_lines, path_of, without_end
from offramp.data.label_sets import strata
from offramp.data.labels import Labels
from offramp.data.rows import reader_of
from offramp.data.sampling import stratified_sample
from offramp.data.seen import digest
from offramp.data.sources import Table
from offramp.disk import replace_file
from offramp.errors import DataError

REST = "train"
"""The part that has what no other part took."""


NEARLY_ALL = 0.8
"""The share of texts with a label of their own from which the labels' column is hardly the right one."""


def divide(
    table: Table, sizes: Mapping[str, float], generator: torch.Generator, column: str = "label"
) -> dict[str, list[int]]:
    """The rows of each part, sorted: of those that `sizes` names, and of `REST`.

    A size below 1 is a share of the texts, from 1 on it is their number. Every part has the labels' shares, and `REST`
    has a text of every label. A text that stands there several times counts once and goes with all its rows into one
    part; neither blanks nor capitals make a text another one. `column` is what an error calls the labels.
    """
    alike: dict[int, list[int]] = defaultdict(list)
    for row, example in enumerate(table.examples):
        alike[digest(example)].append(row)
    texts = list(alike.values())
    kinds = np.asarray(_strata(table))[[rows[0] for rows in texts]]  # (texts,)
    first = {kind: place for place, kind in reversed(list(enumerate(kinds.tolist())))}
    left = np.setdiff1d(np.arange(len(texts)), list(first.values()))
    found: dict[str, list[int]] = {}
    for name, size in sizes.items():
        count = round(size * len(texts)) if size < 1 else int(size)
        if count > len(left) and len(first) >= NEARLY_ALL * len(texts):
            raise DataError(
                f"Many texts should have the same label. Found {len(first)} different labels of {len(texts)} different "
                f"texts in {table.name}: nearly every text has a label of its own in the column `{column}`. Name the "
                "label column with --label."
            )
        if not 0 < count <= len(left):
            raise DataError(
                f"`{name}` should have between 1 and {len(left)} of the {len(texts)} different texts in {table.name}, "
                f"so that a text of every label is left to learn from. Found {count}. Change its size."
            )
        chosen = left[stratified_sample(kinds[left].tolist(), count, generator)]
        left = np.setdiff1d(left, chosen, assume_unique=True)
        found[name] = sorted(row for place in chosen.tolist() for row in texts[place])
    taken = {row for rows in found.values() for row in rows}
    return {REST: [row for row in range(len(table.examples)) if row not in taken], **found}


def write_parts(source: str, table: Table, parts: Mapping[str, Sequence[int]], folder: Path) -> dict[str, Path]:
    """Write each part of a source that was read as `table`, and tell where."""
    is_file = reader_of(source) is not None and path_of(source).is_file()
    suffix = Path(source).suffix.lower() if is_file else ".jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: folder / f"{name}{suffix}" for name in parts}
    for name, rows in parts.items():
        if suffix == ".parquet":
            replace_file(found[name], _parquet(source, rows))
        else:
            lines = _copied(source, table, rows) if is_file else _written(table, rows)
            replace_file(found[name], "".join(lines))
    return found


def _strata(table: Table) -> list[int]:
    labels = Labels.of(table.labels)
    if any(example.label is None for example in table.examples):  # sets of labels, or tags
        return strata(labels.encode_sets((own or () for own in table.label_sets()), table.where))
    return labels.encode(table.labels, table.where)


def _copied(source: str, table: Table, rows: Sequence[int]) -> Iterator[str]:
    """The lines of these rows, and of the header where there is one; a row ends where the next begins."""
    lines = list(without_end(file_lines(source)))
    starts = [*table.numbers, len(lines) + 1]
    yield from map(_ended, lines[: starts[0] - 1])
    for row in rows:
        yield from map(_ended, lines[starts[row] - 1 : starts[row + 1] - 1])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n"


def _written(table: Table, rows: Sequence[int]) -> Iterator[str]:
    for row in rows:
        example = table.examples[row]
        if example.words is not None:
            tagged = {"tokens": list(example.words), "tags": None if example.tags is None else list(example.tags)}
            yield json.dumps(tagged, ensure_ascii=False) + "\n"
            continue
        texts = (
            {"text": example.text} if example.pair is None else {"sentence1": example.text, "sentence2": example.pair}
        )
        label = example.label if example.labels is None else list(example.labels)
        yield json.dumps({**texts, "label": label}, ensure_ascii=False) + "\n"


def _parquet(source: str, rows: Sequence[int]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(parquet.read_table(path_of(source)).take(pa.array(rows, pa.int64())), sink)
    return bytes(sink.getvalue())
