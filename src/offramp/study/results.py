"""Results on disk: a JSON file for each run, complete or absent, found by what the run does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.config import Config, to_mapping
from offramp.disk import replace_file
from offramp.errors import DataError
from offramp.study.plan import Run

WORK = ".work"
EVERY = {
    "metrics": ("score", "metric", "by_exit", "layers"),
    "geometry": ("alignment", "uniformity", "effective_rank"),
    "cost": ("flops",),
}
"""The parts of every result, with what they hold at least."""


@dataclass(frozen=True)
class Found:
    """A run and its result."""

    run: Run
    record: dict[str, Any]

    @property
    def score(self) -> float:
        """The score of the last exit."""
        return float(self.record["metrics"]["score"])

    @property
    def by_exit(self) -> dict[int, float]:
        """The score of every trained exit, by depth."""
        return {int(depth): float(score) for depth, score in self.record["metrics"]["by_exit"].items()}


def found(runs: Sequence[Run], results: Path) -> list[Found]:
    """The runs that have a result made with their present settings, in the order of the plan."""
    records = ((run, read(results / run.place)) for run in runs)
    return [Found(run, record) for run, record in records if record is not None and made_by(run, record)]


def made_by(run: Run, record: Mapping[str, Any]) -> bool:
    """Whether a result is this run's: its key, which tells what differs from the defaults, and, since a default may
    have changed by now, every setting that it was made with. A setting that is newer than the result is none of them.
    """
    before = {} if run.before is None else record.get("before", {}).get("config", {})
    prior = None if run.before is None else run.before.config
    return (
        record.get("key") == run.key
        and _agree(record.get("config", {}), run.config)
        and (prior is None or _agree(before, prior))
    )


def _agree(told: Mapping[str, Any], config: Config) -> bool:
    wanted = {name: stage for name, stage in to_mapping(config).items() if isinstance(stage, Mapping)}
    return all(
        told[name][field] == (list(value) if isinstance(value, tuple) else value)
        for name, stage in wanted.items()
        for field, value in stage.items()
        if field in told.get(name, {})
    )


def read(file: Path) -> dict[str, Any] | None:
    """A result; None where there is none, or something else, or one that lacks what all results have."""
    try:
        record = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and _has_all(record) else None


def _has_all(record: Mapping[str, Any]) -> bool:
    """Whether the tables would find what they read of every result."""
    parts = [record.get(name) for name in EVERY]
    return all(
        isinstance(part, Mapping) and all(name in part for name in names)
        for part, names in zip(parts, EVERY.values(), strict=True)
    )


class Shelf:
    """Every result at a scale, of all studies, by its key; those that were made before those that were taken over."""

    def __init__(self, results: Path, scale: str) -> None:
        self.by_key: dict[str, tuple[str, dict[str, Any]]] = {}
        there = (
            (file.relative_to(results).as_posix(), read(file)) for file in sorted(results.glob(f"*/{scale}/*.json"))
        )
        for place, record in sorted(((p, r) for p, r in there if r is not None), key=lambda each: "from" in each[1]):
            self.by_key.setdefault(str(record.get("key")), (place, record))

    def same(self, run: Run) -> dict[str, Any] | None:
        """A result with this run's key, as this run's own: `from` says where it was made."""
        if run.key not in self.by_key or not made_by(run, self.by_key[run.key][1]):
            return None
        place, record = self.by_key[run.key]
        made = str(record.get("from", place))
        mine = {"study": run.study, "variant": run.variant, "value": run.value}
        plain = {name: value for name, value in record.items() if name != "from"}
        return {**plain, **mine, **({"from": made} if made != run.place else {})}


def write(record: dict[str, Any], file: Path) -> None:
    """Write a result so that a kill leaves all of it or nothing."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text)
    except OSError as error:
        raise DataError(f"The folder for results should be writable. Found `{file.parent}`: {error}.") from error


def work_folder(results: Path) -> Path:
    """The folder in which runs train; version control is told to leave it alone."""
    folder = results / WORK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError as error:
        raise DataError(f"The folder for results should be writable. Found `{results}`: {error}.") from error
    return folder
