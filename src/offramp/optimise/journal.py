"""LOSS -> PARAMETERS: what a run tells others: a log file, TensorBoard events, whoever watches."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from accelerate import Accelerator

from offramp.disk import replace_file
from offramp.types import EpochRecord, StepRecord


class Watch(Protocol):
    """Somebody who is told how a run goes."""

    def start(self, updates: int, done: int) -> None:
        """A run of so many updates begins; `done` of them are behind it."""

    def step(self, record: StepRecord) -> None:
        """An update was made."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch was validated."""


class Journal:
    """Writes `log.jsonl` and TensorBoard events into a folder, where there is one, and tells the watch."""

    def __init__(self, accelerator: Accelerator, folder: Path | None, watch: Watch | None) -> None:
        self.accelerator, self.folder, self.watch = accelerator, folder, watch

    def open(self, done: int) -> None:
        """Start the log, or keep of it what lies before update `done`."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log.jsonl"
        kept: list[str] = []
        if done and log.exists():
            for line in log.read_bytes().splitlines():
                try:
                    if json.loads(line)["step"] > done:
                        break
                    kept.append(line.decode())
                except (ValueError, KeyError, TypeError):
                    break  # torn by a kill
        replace_file(log, "".join(f"{line}\n" for line in kept))
        self.accelerator.init_trackers("events")

    def start(self, updates: int, done: int) -> None:
        """A run, or a phase of it, begins."""
        if self.watch:
            self.watch.start(updates, done)

    def step(self, record: StepRecord) -> None:
        """An update was made."""
        if self.watch:
            self.watch.step(record)
        if self.folder:
            self._line("step", record)
            scalars = {f"train/{k}": v for k, v in asdict(record).items() if isinstance(v, float)}
            scalars |= {f"part/{k}": v for k, v in record.parts.items()}
            scalars |= {f"cosine/{k}": v for k, v in record.cosines.items()}
            self.accelerator.log(scalars, step=record.step)

    def epoch(self, record: EpochRecord) -> None:
        """An epoch was validated."""
        if self.watch:
            self.watch.epoch(record)
        if self.folder:
            self._line("epoch", record)
            self.accelerator.log({f"validation/{record.metric}": record.score}, step=record.step)

    def close(self) -> None:
        """Close what is open."""
        if self.folder:
            # Every record was flushed when it was made; a disk that is full must not hide why the run ended.
            with suppress(OSError):
                self.accelerator.end_training()

    def _line(self, kind: str, record: StepRecord | EpochRecord) -> None:
        if self.folder:
            # Strict JSON has no NaN, which the angle to a zero gradient is: it becomes null.
            facts = json.loads(json.dumps({"kind": kind, **asdict(record)}), parse_constant=lambda _: None)
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(facts) + "\n")
