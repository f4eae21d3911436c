"""Answers on disk: a folder of Parquet parts that is finished when `_SUCCESS` is there.

A part has the number of the span it answers, is written under a name of its own and renamed when it is whole: whoever
answers a span again, after a kill or by mistake at the same time, replaces the part by an equal one. `_plan.json` says
what the folder holds the answers of, so that the same command goes on with it and another one is refused.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offramp.cluster.texts import COPY, Span
from offramp.disk import flush, replace_file
from offramp.errors import ClusterError, UserError

PLAN = "_plan.json"
SUCCESS = "_SUCCESS"


def part_of(out: Path, span: Span) -> Path:
    """Where the answers of a span lie."""
    return out / f"part-{span.number:06}.parquet"


def write(table: Any, file: Path) -> None:
    """Write a part so that a kill leaves all of it or nothing."""
    from pyarrow import parquet

    # Somebody who is believed dead may still be writing the same part.
    mine = file.with_name(f".{file.stem}-{uuid.uuid4().hex}")
    try:
        parquet.write_table(table, mine)
        flush(mine)
        os.replace(mine, file)
    finally:
        mine.unlink(missing_ok=True)


@contextmanager
def attempt(file: Path) -> Iterator[int]:
    """Leave a mark while a part is made: how many have begun it before and ended without a word."""
    before = len(list(file.parent.glob(f".{file.stem}-try-*")))
    mark = file.with_name(f".{file.stem}-try-{uuid.uuid4().hex}")
    mark.touch()
    try:
        yield before
    finally:
        mark.unlink(missing_ok=True)  # a kill leaves it


def whole(out: Path, span: Span) -> bool:
    """Whether the answers of a span are there."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return bool(parquet.read_metadata(part_of(out, span)).num_rows == len(span))
    except (OSError, pa.ArrowException):
        return False


def begin(out: Path, facts: Mapping[str, Any]) -> None:
    """Say what the folder is for; one that holds something else is refused."""
    told = json.loads(json.dumps(facts))
    try:
        before = json.loads((out / PLAN).read_text("utf-8"))
    except OSError:
        # What a copy made anew, or a command killed before it had said anything, leaves.
        if any(not file.name.startswith(COPY) for file in out.iterdir()):
            raise UserError(
                f"`{out}` should be empty or hold answers of this command. It holds other files: choose another folder."
            ) from None
        replace_file(out / PLAN, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return
    except ValueError:
        before = {}
    if before != told:
        changed = sorted(key for key in told if before.get(key) != told[key])
        raise UserError(
            f"`{out}` should hold answers of the same model, texts and settings as before. Changed: "
            f"{', '.join(changed)}. Use the same, or another folder."
        )
    _sweep(out)


def finish(out: Path, spans: Sequence[Span]) -> None:
    """Count what is there, and say that it is complete."""
    lost = [span for span in spans if not whole(out, span)]
    if lost:
        raise ClusterError(
            f"`{out}` should hold {len(spans)} parts. {len(lost)} are missing or cut, the first of them "
            f"`{part_of(out, lost[0]).name}`. Can every worker write there? Run the same command again."
        )
    parts = [{"part": part_of(out, s).name, "file": s.name, "first": s.first + 1, "rows": len(s)} for s in spans]
    told = {"rows": sum(map(len, spans)), "parts": parts}
    replace_file(out / SUCCESS, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    (out / COPY).unlink(missing_ok=True)
    _sweep(out)


def clear(out: Path) -> None:
    """Remove what was written."""
    for file in (*out.glob("part-*.parquet"), out / COPY, out / PLAN):
        file.unlink(missing_ok=True)
    _sweep(out)


def _sweep(out: Path) -> None:
    """Remove what workers that ended without a word have left."""
    for left in out.glob(".part-*"):
        left.unlink(missing_ok=True)
