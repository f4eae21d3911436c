"""LOSS -> PARAMETERS: what a run tells others: a log file, trackers, whoever watches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator

from offramp.disk import replace_file
from offramp.optimise.trackers import TENSORBOARD
from offramp.types import EpochRecord, StepRecord


class Watch(Protocol):
    """Somebody who is told how a run goes; whoever inherits from this needs to hear only what it wants to."""

    def start(self, updates: int, done: int) -> None:
        """A run of so many updates begins; `done` of them are behind it."""

    def states(self, done: int, texts: int) -> None:
        """Before a second stage, the states of so many of its texts are written down."""

    def step(self, record: StepRecord) -> None:
        """An update was made."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch was validated."""


class Journal:
    """Writes `log.jsonl` into a folder, where there is one, and tells accelerate's trackers and the watch.

    `settings` are what trackers that show runs side by side are told of this one.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        folder: Path | None,
        watch: Watch | None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.accelerator, self.folder, self.watch, self.settings = accelerator, folder, watch, dict(settings or {})

    def open(self, done: int) -> None:
        """Start the log, or keep of it what lies before update `done`; start the trackers."""
        if self.folder is not None:
            self._open_log(self.folder, done)
        self.accelerator.init_trackers("events")
        for tracker in self.accelerator.trackers:
            if tracker.name != TENSORBOARD:  # which would write it as a run of its own
                tracker.store_init_configuration(self.settings)

    def _open_log(self, folder: Path, done: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.jsonl"
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

    def start(self, updates: int, done: int) -> None:
        """A run, or a phase of it, begins."""
        if self.watch:
            self.watch.start(updates, done)

    def states(self, done: int, texts: int) -> None:
        """The states of so many texts are written down."""
        if self.watch:
            self.watch.states(done, texts)

    def step(self, record: StepRecord) -> None:
        """An update was made."""
        if self.watch:
            self.watch.step(record)
        self._line("step", record)
        if self.accelerator.trackers:
            scalars = {f"train/{k}": v for k, v in asdict(record).items() if isinstance(v, float)}
            scalars |= {f"part/{k}": v for k, v in record.parts.items()}
            scalars |= {f"cosine/{k}": v for k, v in record.cosines.items()}
            self.accelerator.log(scalars, step=record.step)

    def epoch(self, record: EpochRecord) -> None:
        """An epoch was validated."""
        if self.watch:
            self.watch.epoch(record)
        self._line("epoch", record)
        if self.accelerator.trackers:
            exits = {f"exit-{depth}/{record.metric}": score for depth, score in record.by_exit.items()}
            self.accelerator.log({f"validation/{record.metric}": record.score, **exits}, step=record.step)

    def close(self) -> None:
        """Close what is open."""
        if self.accelerator.trackers:
            # Every record was flushed when it was made; a disk that is full must not hide why the run ended.
            with suppress(OSError):
                self.accelerator.end_training()

    def _line(self, kind: str, record: StepRecord | EpochRecord) -> None:
        if self.folder:
            # Strict JSON has no NaN, which the angle to a zero gradient is: it becomes null.
            facts = json.loads(json.dumps({"kind": kind, **asdict(record)}), parse_constant=lambda _: None)
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(facts) + "\n")
