"""DECISIONS -> NUMBERS, PICTURES: what a training run wrote down, by update and by epoch, as JSON Lines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from offramp.errors import DataError
from offramp.types import EpochRecord, StepRecord

__all__ = ["EpochRecord", "History", "StepRecord", "read_history", "to_line"]


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
    def best(self) -> EpochRecord | None:
        """The epoch that was better than all before it and was not surpassed."""
        return next((record for record in reversed(self.epochs) if record.best), None)


KINDS: dict[str, type[StepRecord] | type[EpochRecord]] = {"step": StepRecord, "epoch": EpochRecord}


def to_line(record: StepRecord | EpochRecord) -> str:
    """One line of strict JSON, newline included. A number that is not finite becomes `null`.

    >>> to_line(EpochRecord(epoch=1, step=200, score=0.9, metric="mcc", loss=0.3, best=True))
    '{"kind": "epoch", "epoch": 1, "step": 200, "score": 0.9, "metric": "mcc", "loss": 0.3, "best": true}\\n'
    """
    kind = next(name for name, cls in KINDS.items() if isinstance(record, cls))
    return json.dumps({"kind": kind, **_finite(asdict(record))}, allow_nan=False) + "\n"


def read_history(path: Path) -> History:
    """The history written to `path`; empty where there is no such file.

    A last line that a killed run left half-written is dropped. A resumed run repeats the updates after its
    checkpoint: the record written last stands.
    """
    if not path.is_file():
        return History()
    lines = [(number, line) for number, line in enumerate(path.read_bytes().split(b"\n"), start=1) if line.strip()]
    steps: dict[int, StepRecord] = {}
    epochs: dict[int, EpochRecord] = {}
    for number, line in lines:
        try:
            found = json.loads(line)
        except ValueError:  # bad JSON or bad UTF-8
            if number == lines[-1][0]:
                break
            raise DataError(f"Line {number} of {path} should be a JSON record of a run. Found {line[:60]!r}.") from None
        record = _record(found, f"Line {number} of {path}")
        if isinstance(record, StepRecord):
            steps[record.step] = record
        else:
            epochs[record.epoch] = record
    return History([steps[step] for step in sorted(steps)], [epochs[epoch] for epoch in sorted(epochs)])


def _record(found: Any, where: str) -> StepRecord | EpochRecord:
    if not isinstance(found, dict) or found.get("kind") not in KINDS:
        raise DataError(f'{where} should be a record with "kind": "step" or "epoch". Found {str(found)[:60]}.')
    values = {name: value for name, value in found.items() if name != "kind"}
    for name in ("loss", "score"):
        if name in values and values[name] is None:
            values[name] = math.nan
    if isinstance(parts := values.get("parts"), dict):
        values["parts"] = {name: math.nan if part is None else part for name, part in parts.items()}
    try:
        return KINDS[found["kind"]](**values)
    except TypeError:
        names = ", ".join(values)
        raise DataError(f"{where} should hold the fields of a {found['kind']} record. Found {names}.") from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
