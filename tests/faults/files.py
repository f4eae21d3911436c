"""Damaged data files: each gives examples, or is refused with an error of ours."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from tests.faults.damage import CONTENTS, edit_json
from tests.faults.isolated import outcomes

from offramp.data.sources import read, stream
from offramp.errors import DataError

READ, REFUSED = "read", "refused"
GOOD = {READ, REFUSED}
ROWS = [(f'the "film", number {n},\twas größer\n日本 {n % 7}', ("good", "bad")[n % 2]) for n in range(40)]
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")


class Files:
    """Labelled texts in every format."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.whole = {suffix: _written(home / f"whole{suffix}", suffix) for suffix in SUFFIXES}

    def attempt(self, number: int) -> tuple[str, str]:
        """Damage a copy and read it; what was done, and what came of it."""
        chance = random.Random(f"file {number}")
        suffix = chance.choice(SUFFIXES)
        ways: dict[str, Callable[[random.Random, bytes], bytes]] = dict(CONTENTS)
        if suffix == ".jsonl":
            ways["JSON edited"] = _edit_line
        what = chance.choice((*ways, "content of another format"))
        other = self.whole[chance.choice(SUFFIXES)]
        content = other if what not in ways else ways[what](chance, self.whole[suffix])
        file = self.home / f"copy{suffix}"
        file.write_bytes(content)
        return f"{what}, {suffix[1:]}", _outcome(file)


def _outcome(file: Path) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            examples = list(stream(file)) if file.suffix == ".txt" else read(file).examples
            sound = all(example.text.strip() for example in examples) and examples
            return READ if sound else "read an empty text"
    except DataError:
        return REFUSED
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def _edit_line(chance: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return b"".join([*lines[:place], edit_json(chance, lines[place]) + b"\n", *lines[place + 1 :]])


def _written(file: Path, suffix: str) -> bytes:
    texts, labels = [text for text, _ in ROWS], [label for _, label in ROWS]
    if suffix == ".parquet":
        parquet.write_table(pa.table({"text": texts, "label": labels}), file)
    elif suffix == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in ROWS]
        file.write_text("\n".join(lines) + "\n", "utf-8")
    elif suffix == ".txt":
        file.write_text("\n".join(text.replace("\n", " ") for text in texts) + "\n", "utf-8")
    else:
        between = "," if suffix == ".csv" else "\t"
        quoted = [between.join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row) for row in ROWS]
        file.write_text("\n".join([between.join(("text", "label")), *quoted]) + "\n", "utf-8")
    return file.read_bytes()


def damaged_files(count: int, home: Path) -> Iterator[tuple[int, str, str]]:
    """Number, kind of damage and outcome of each."""
    return outcomes(count, Files(home).attempt)
