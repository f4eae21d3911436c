"""DECISIONS -> NUMBERS, PICTURES: what a training run wrote down, by update and by epoch, as JSON Lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offramp.errors import DataError
from offramp.types import EpochRecord, StepRecord

__all__ = ["EpochRecord", "History", "StepRecord", "read_history"]


@dataclass(frozen=True, slots=True)
class History:
    """A run, in the order of its updates."""

    steps: list[StepRecord] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)

    @property
    def kept_share(self) -> float:
        """Share of the batches that kept the auxiliary term, of those where it was in question; NaN for none."""
        decided = [record.kept for record in self.steps if record.kept is not None]
        return sum(decided) / len(decided) if decided else math.nan

    @property
    def full_steps(self) -> list[StepRecord]:
        """The updates without those of fewer texts than the others, whose loss is lower because it is of fewer."""
        most = max((record.texts or 0 for record in self.steps), default=0)
        return [record for record in self.steps if record.texts in (None, most)]

    @property
    def cosines(self) -> dict[str, list[tuple[int, float]]]:
        """Update and cosine between the two gradients, of every group of parameters that ever had one."""
        found: dict[str, list[tuple[int, float]]] = {}
        for record in self.steps:
            for group, cosine in record.cosines.items():
                found.setdefault(group, []).extend([(record.step, cosine)] if math.isfinite(cosine) else [])
        return {group: points for group, points in found.items() if points}

    @property
    def phases(self) -> dict[str, History]:
        """The run, phase by phase."""
        names = dict.fromkeys([*(record.phase for record in self.steps), *(record.phase for record in self.epochs)])
        return {
            name: History(
                [record for record in self.steps if record.phase == name],
                [record for record in self.epochs if record.phase == name],
            )
            for name in names
        }

    @property
    def phase(self) -> str:
        """The name of the phase it begins with; empty where none was written down."""
        return next(iter(self.phases), "")

    @property
    def apart(self) -> bool:
        """Whether exits learnt apart from each other, each with a best epoch of its own."""
        return self.phase == "exits"

    @property
    def best(self) -> EpochRecord | None:
        """The epoch that was better than all before it and was not surpassed; none where each exit has its own."""
        if self.apart:
            return None
        return next((record for record in reversed(self.epochs) if record.best), None)


KINDS: dict[str, type[StepRecord] | type[EpochRecord]] = {"step": StepRecord, "epoch": EpochRecord}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


SHAPES: dict[str, Callable[[Any], bool]] = {
    "step": lambda value: type(value) is int,
    "texts": lambda value: value is None or type(value) is int,
    **dict.fromkeys(("epoch", "loss", "score", "lr"), _number),
    **dict.fromkeys(("parts", "cosines", "by_exit"), _numbers),
    **dict.fromkeys(("metric", "phase"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("angle", "kept", "main_norm", "auxiliary_norm"), lambda value: value is None or _number(value)),
}
"""What a damaged file may have made of a field."""


def read_history(path: Path) -> History:
    """The history written to `path`; empty where there is no such file.

    A last line that a killed run left half-written is dropped. A resumed run repeats the updates after its
    checkpoint: the record written last stands.
    """
    if not path.is_file():
        return History()
    lines = [(number, line) for number, line in enumerate(path.read_bytes().split(b"\n"), start=1) if line.strip()]
    steps: dict[int, StepRecord] = {}
    epochs: dict[tuple[str, int], EpochRecord] = {}
    for number, line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):  # bad JSON or bad UTF-8
            if number == lines[-1][0]:
                break
            raise DataError(f"Line {number} of {path} should be a JSON record of a run. Found {line[:60]!r}.") from None
        record = _record(found, f"Line {number} of {path}")
        if isinstance(record, StepRecord):
            steps[record.step] = record
        else:
            epochs[record.phase, record.epoch] = record
    return History([steps[step] for step in sorted(steps)], sorted(epochs.values(), key=lambda record: record.step))


def _record(found: Any, where: str) -> StepRecord | EpochRecord:
    if not isinstance(found, dict) or str(found.get("kind")) not in KINDS:
        raise DataError(f'{where} should be a record with "kind": "step" or "epoch". Found {str(found)[:60]}.')
    values = {name: value for name, value in found.items() if name != "kind"}
    for name in ("loss", "score"):
        if name in values and values[name] is None:
            values[name] = math.nan
    for name in ("parts", "cosines", "by_exit"):
        if isinstance(values.get(name), dict):
            values[name] = {key: math.nan if value is None else value for key, value in values[name].items()}
    wrong = [name for name, value in values.items() if name in SHAPES and not SHAPES[name](value)]
    try:
        if not wrong:
            return KINDS[found["kind"]](**values)
    except TypeError:
        wrong = list(values)
    raise DataError(f"{where} should hold the fields of a {found['kind']} record. Found {', '.join(wrong)}.") from None
