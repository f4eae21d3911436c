"""A clock that is set back changes neither what a run does nor which checkpoint is the newest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.small import Small

from offramp import Classifier
from offramp.data.sources import read
from offramp.optimise.journal import Watch
from offramp.optimise.saved_state import SavedState
from offramp.types import StepRecord


class Stop(Watch):
    """A watch that interrupts the run at an update."""

    def step(self, record: StepRecord) -> None:
        if record.step == 7:
            raise KeyboardInterrupt


@pytest.fixture
def going_back(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has the clock of the machine go an hour back at every look."""

    def begin() -> None:
        hours: Iterator[int] = iter(range(10**9))
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 3600 * next(hours))
        monkeypatch.setattr(time, "time_ns", lambda: int((now - 3600 * next(hours)) * 1e9))

    return begin


def test_a_run_resumed_with_a_clock_that_goes_back_ends_with_the_same_bits(
    tmp_path: Path, going_back: Callable[[], None]
) -> None:
    small = Small(tmp_path / "small")
    table = read(small.data)

    def classifier() -> Classifier:
        return Classifier("ce", str(small.backbone), small.settings["single"])

    classifier().fit_table(table, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        classifier().fit_table(table, folder=tmp_path / "half", watch=Stop())
    newest = SavedState(tmp_path / "half" / "training").newest()
    assert newest is not None
    for path in (tmp_path / "half").rglob("*"):
        os.utime(path, (0, 0))  # all of 1970
    going_back()
    result = classifier().fit_table(table, folder=tmp_path / "half", resume=True)
    assert result.seconds >= 0
    weights = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("whole", "half")]
    assert weights[0] == weights[1]
