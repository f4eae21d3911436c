"""What a person sees on standard error while a run goes."""

from __future__ import annotations

import math
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from offramp.types import EpochRecord, StepRecord


class ProgressBar:
    """A bar with the loss, the gradients' angle, the share of contrast kept, and the time left.

    Where standard error is not a terminal, a line per epoch.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None)
        self.begun = False  # whether anything was trained
        self.due = (0, 0)  # updates of this phase, and those of them that were made before
        self.loss = self.angle = math.nan
        self.kept = self.aligned = 0.0

    def __enter__(self) -> ProgressBar:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def start(self, updates: int, done: int) -> None:
        """A run, or a phase of it, of so many updates begins."""
        self.begun, self.due = True, (updates, done)
        self.bar.reset(self.task, total=updates, completed=done, description="")
        self.loss = self.angle = math.nan
        self.kept = self.aligned = 0.0

    def states(self, done: int, texts: int) -> None:
        """The states of so many texts are written down, before the updates."""
        if done < texts:
            self.bar.update(self.task, total=texts, completed=done, description="texts read for the other exits")
        else:
            self.start(*self.due)

    def step(self, record: StepRecord) -> None:
        """An update was made: show smoothed values."""
        self.loss = _smooth(self.loss, record.loss)
        text = f"loss {self.loss:.3f}"
        if record.angle is not None and record.kept is not None:
            self.angle = _smooth(self.angle, record.angle)
            self.kept, self.aligned = self.kept + record.kept, self.aligned + 1
            text += f"  angle {self.angle:.0f}°  kept {self.kept / self.aligned:.0%}"
        self.bar.update(self.task, advance=1, description=text)

    def epoch(self, record: EpochRecord) -> None:
        """An epoch was validated: a line that stays."""
        # Exits that learn apart keep an epoch each, and their epochs are counted anew.
        apart = record.phase == "exits"
        mark = "" if not record.best else "  kept for an exit" if apart else "  kept"
        many = f" of {record.epochs}" if record.epochs else ""
        if len(record.by_exit) > 1:
            low, high = min(record.by_exit.values()), max(record.by_exit.values())
            mark = f" (mean of {len(record.by_exit)} exits, {low:.4f} to {high:.4f}){mark}"
        self.console.print(
            f"{'exits, ' if apart else ''}epoch {record.epoch:>3}{many}  loss {record.loss:.4f}  "
            f"validation {record.metric} {record.score:.4f}{mark}",
            highlight=False,
            soft_wrap=True,  # an epoch is one line in a file, however long
        )


def _smooth(before: float, now: float) -> float:
    if math.isnan(before):
        return now
    return before if math.isnan(now) else 0.95 * before + 0.05 * now
