"""Answers beside their texts, as a table in a file: `offramp predict --out FILE`.

A row has the text, the second text of a pair, and the fields that `--json` prints. In CSV and TSV a value that is
neither a word nor a number stands as JSON: a set of labels as `["billing", "device"]`.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from offramp.disk import growing_file
from offramp.errors import UserError

if TYPE_CHECKING:
    from offramp.runtime.predictions import Answered
    from offramp.types import Example

SEPARATORS = {".csv": ",", ".tsv": "\t", ".jsonl": ""}
"""What stands between the fields of a row, by the suffix of the file; nothing in JSON lines."""


def check_file(file: Path, overwrite: bool) -> None:
    """Refuse a file that is of no known kind or is there."""
    if file.suffix.lower() not in SEPARATORS:
        known = ", ".join(SEPARATORS)
        raise UserError(
            f"`--out` should be a file that ends in one of {known}, or come with `--ray`, which writes a folder. "
            f"Found `{file}`."
        )
    if file.is_dir() or (file.exists() and not overwrite):
        raise UserError(f"`{file}` should not exist. Choose another file, or add --overwrite where it may go.")


def write_answers(
    file: Path, examples: Iterable[Example], answer: Callable[[Iterator[Example]], Iterable[Answered]]
) -> int:
    """Write the answers to a stream of texts and count them; where it breaks off, there is no file."""
    written = 0
    try:
        with growing_file(file) as handle:
            put = _writer(handle, SEPARATORS[file.suffix.lower()])
            for example, found in _beside(examples, answer):
                pair = {} if example.pair is None else {"pair": example.pair}
                put({"text": example.text, **pair, **asdict(found)})
                written += 1
    except OSError as error:
        raise UserError(
            f"The answers should go to a file that can be written. Found `{file}`: {error.strerror or error}."
        ) from error
    return written


def _beside(
    examples: Iterable[Example], answer: Callable[[Iterator[Example]], Iterable[Answered]]
) -> Iterator[tuple[Example, Answered]]:
    """Each text with its answer; only the texts of a chunk wait for theirs."""
    waiting: deque[Example] = deque()

    def read() -> Iterator[Example]:
        for example in examples:
            waiting.append(example)
            yield example

    for found in answer(read()):
        yield waiting.popleft(), found


def _writer(handle: IO[str], separator: str) -> Callable[[dict[str, Any]], None]:
    if not separator:
        return lambda row: print(json.dumps(row, ensure_ascii=False), file=handle)
    table = csv.writer(handle, delimiter=separator, lineterminator="\n")
    begun = False

    def put(row: dict[str, Any]) -> None:
        nonlocal begun
        if not begun:
            table.writerow(row)
            begun = True
        table.writerow(value if isinstance(value, str) else _json(value) for value in row.values())

    return put


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
