"""What is to be answered: Parquet files that every worker can read, cut into spans of rows.

A Parquet file, or a folder of them, is read by the workers where it lies. Everything else that `offramp predict` reads
is copied to one Parquet file in the output folder first, in one pass in which every row is checked.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from offramp.data.files import existing, name_of, path_of, remote
from offramp.data.rows import parquet_rows
from offramp.data.sources import span, stream
from offramp.data.tokens import CHUNK
from offramp.errors import ConfigError, DataError
from offramp.types import Example

COPY = ".texts.parquet"
"""The copy, in the output folder; whoever reads a folder of Parquet files passes over names that begin with a dot."""


@dataclass(frozen=True)
class File:
    """A Parquet file of texts."""

    path: str  # where workers read it
    name: str  # what answers call it
    rows: int
    version: str  # what changes when somebody writes it again
    columns: tuple[str, ...] = ()  # of its texts; empty: the usual ones


@dataclass(frozen=True)
class Span:
    """Rows of a file that are answered together: from `first`, counted from 0, to before `stop`."""

    number: int
    path: str
    name: str
    columns: tuple[str, ...]
    first: int
    stop: int

    def examples(self) -> Iterator[Example]:
        """The texts."""
        return span(self.path, self.first, self.stop, text=self.columns)

    def __len__(self) -> int:
        return self.stop - self.first


def files_of(source: str, columns: Sequence[str], out: Path, format: str | None = None) -> list[File]:
    """The files of a source; `out` is where a copy may lie, `format` what `stream` takes."""
    if source == "-" or format is not None:
        return [_copied(source, columns, out, format)]
    if not remote(source) and path_of(source).is_dir():
        folder = path_of(source)
        inside = (path.relative_to(folder) for path in folder.rglob("*.parquet"))
        names = sorted(path.as_posix() for path in inside if not any(part[0] in "._" for part in path.parts))
        if names:
            return _filled([_parquet(str(folder / name), name, columns) for name in names], source)
    elif Path(source).suffix.lower() == ".parquet":
        return _filled([_parquet(source, name_of(source), columns)], source)
    return [_copied(source, columns, out)]


def spans_of(files: Sequence[File], block: int) -> list[Span]:
    """All rows, at most `block` at a time; no span reaches from one file into the next."""
    # Texts of one chunk share batches: with the chunks of one process, answers are its answers to the last bit.
    if block < CHUNK or block % CHUNK:
        raise ConfigError(f"`block` should be {CHUNK} or a multiple of it. Found {block}.")
    found: list[Span] = []
    for file in files:
        for first in range(0, file.rows, block):
            stop = min(first + block, file.rows)
            found.append(Span(len(found), file.path, file.name, file.columns, first, stop))
    return found


def _parquet(path: str, name: str, columns: Sequence[str]) -> File:
    if remote(path):
        return File(path, name, parquet_rows(path).count or 0, "", tuple(columns))
    place = existing(path_of(path)).resolve()
    rows = parquet_rows(place).count or 0
    next(iter(span(place, 0, 1, text=columns)) if rows else iter(()), None)  # says which column there should be
    found = place.stat()
    return File(str(place), name, rows, f"{found.st_size} {found.st_mtime_ns}", tuple(columns))


def _filled(files: list[File], source: str) -> list[File]:
    if not any(file.rows for file in files):
        raise DataError(f"Data should hold at least one row. Found none in {name_of(source)}. Check the source.")
    return files


def _copied(source: str, columns: Sequence[str], out: Path, format: str | None = None) -> File:
    """A copy of any source as Parquet, complete or absent."""
    import pyarrow as pa
    from pyarrow import parquet

    name = "standard input" if source == "-" else name_of(source)
    rest = stream(sys.stdin.buffer if source == "-" else source, text=columns, format=format)
    part, digest, rows = out / f"{COPY}.part", hashlib.sha256(), 0
    first = next(rest)  # a source without rows is refused by now
    names = ("text",) if first.pair is None else ("text", "pair")
    schema = pa.schema([(each, pa.large_string()) for each in names])
    try:
        with parquet.ParquetWriter(part, schema) as writer:
            waiting = [first, *islice(rest, CHUNK - 1)]
            while waiting:
                cells = {each: [getattr(example, each) for example in waiting] for each in names}
                digest.update(repr(cells).encode())
                writer.write_table(pa.table(cells, schema))
                rows += len(waiting)
                waiting = list(islice(rest, CHUNK))
        part.replace(out / COPY)
    finally:
        part.unlink(missing_ok=True)
    return File(str((out / COPY).resolve()), name, rows, digest.hexdigest(), names)
