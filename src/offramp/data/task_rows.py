"""TEXT -> TOKENS, rows of tasks: a split of a named data set, from a folder or from the hub, labels by name.

A label that is hidden (-1) or was never agreed on is no label: such rows are left out, and a split of nothing else is
refused. Of a text that stands several times in a few-shot set, because its folds overlap, one is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from offramp.data.files import path_of
from offramp.data.rows import Row, Rows, rows_of
from offramp.data.tasks import Task, task
from offramp.errors import DataError

PREFIX = "task:"
FOLDED = ("eprstmt", "bustm")
"""Tasks whose training and validation texts are five folds in one."""


def is_task(source: object) -> bool:
    """Whether a source is written `task:NAME` or `task:NAME/SPLIT`."""
    return isinstance(source, str | Path) and str(source).startswith(PREFIX)


def task_rows(source: str | Path) -> Rows:
    """The rows of a task's split, `train` unless named."""
    name, _, split = str(source).removeprefix(PREFIX).partition("/")
    found, split = task(name), split or "train"
    folder = os.environ.get("OFFRAMP_DATA")
    rows, names = _local(found, split, path_of(folder)) if folder else _fetched(found, split)
    places = (*found.columns, "label")

    def pick(wanted: tuple[str, ...]) -> Iterator[Row]:
        seen: set[tuple[object, ...]] = set()
        hidden = False
        for number, values in rows:
            label = _name(values[-1], names)
            hidden = label is None and (hidden or number == 1)
            if label is None or values in seen:
                continue
            if name in FOLDED:
                seen.add(values)
            row = dict(zip(places, (*values[:-1], label), strict=True))
            yield number, tuple(row[column] for column in wanted)
        if hidden:
            raise DataError(
                f"`{PREFIX}{name}/{split}` should have labels. Found none: they are not public. "
                f"This task is scored on its {found.test} split."
            )

    return Rows(f"{PREFIX}{name}/{split}", "row", places, pick, found.labels)


def _local(found: Task, split: str, folder: Path) -> tuple[Iterator[Row], Sequence[str]]:
    """The rows of a file of the folder, texts and then label, and the names of its class numbers."""
    home = folder / found.name
    if not home.is_dir():
        here = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        raise DataError(
            f"The folder that OFFRAMP_DATA names should hold the task `{found.name}`. Found `{folder}` with "
            f"{', '.join(here) or 'nothing'}. Add it, or unset OFFRAMP_DATA to fetch it from the hub."
        )
    file = home / f"{split}.parquet"
    # A name with a path in it would read outside the folder.
    if file.parent != home or not file.is_file():
        raise _no_split(found, split, sorted(entry.stem for entry in home.glob("*.parquet")))
    listed = home / "labels.json"
    names = _listed(listed) if listed.is_file() else list(found.labels)
    if sorted(names) != sorted(found.labels):
        raise DataError(f"`{listed}` should hold the {len(found.labels)} labels of `{found.name}`. Found {names[:5]}.")
    return rows_of(file).pick((*found.columns, "label")), names


def _listed(file: Path) -> list[str]:
    """The labels that a file lists."""
    try:
        names = json.loads(file.read_bytes())
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return names
    except (OSError, ValueError, RecursionError):
        pass
    raise DataError(f"`{file}` should be a JSON list of labels. Found something else. Write it again.")


def _fetched(found: Task, split: str) -> tuple[Iterator[Row], Sequence[str]]:
    """The same from the hub; the names are the data set's own where they are the task's, in whatever order."""
    import datasets

    if split not in found.hub:
        raise _no_split(found, split, list(found.hub))
    place = found.hub[split]
    where = {"data_files": place.file} if place.file else {"name": place.config, "revision": place.revision}
    try:
        loaded = datasets.load_dataset(place.path, split=place.split, **where)
    except Exception as error:  # the hub, the network and the builders have no common base of errors
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"The task `{found.name}` should be found as `{place.file or place.path}`. Found: {reason}. Check the "
            "network, or set OFFRAMP_DATA to a folder that holds the task."
        ) from error
    theirs = getattr(loaded.features[place.label], "names", None) or []
    names = theirs if sorted(theirs) == sorted(found.labels) else list(found.labels)

    def rows() -> Iterator[Row]:
        for number, row in enumerate(loaded.select_columns([*place.columns, place.label]), 1):
            written = [row[column] for column in place.columns]
            texts = written if len(written) == len(found.columns) else [": ".join(map(str, written))]
            yield number, (*texts, row[place.label])

    return rows(), names


def _name(value: object, names: Sequence[str]) -> str | None:
    """The name of a label that is written as a name or as a class number; None for -1, - and nothing."""
    if isinstance(value, str) and value in names:
        return value
    try:
        number = int(str(value))
    except ValueError:
        number = -1 if value in (None, "", "-") else len(names)
    if number >= len(names):
        raise DataError(f"A label should be one of {len(names)} class numbers. Found {value!r}.")
    return names[number] if number >= 0 else None


def _no_split(found: Task, split: str, known: Sequence[str]) -> DataError:
    return DataError(
        f"`{split}` is not a split of the task `{found.name}`. Found: {', '.join(known) or 'none'}. "
        f"Write task:{found.name}/SPLIT with one of these."
    )
