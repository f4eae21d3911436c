"""A signal is heard between two updates: the checkpoint of that very update is written, and the run can go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.errors import Interrupted
from offramp.exits.model import MultiExitModel
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop
from offramp.optimise.saved_state import SavedState
from offramp.optimise.stopping import SIGNALS, Stop
from offramp.optimise.strategies import Phase
from offramp.types import EpochRecord, StepRecord


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Signals as a terminal leaves them: a shell that starts something in the background has it ignore Ctrl-C."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Caller(Watch):
    """A watch that signals at an update, or when an epoch was validated."""

    def __init__(self, number: int, at: int = 0, epoch: int = 0) -> None:
        self.number, self.at, self.after = number, at, epoch

    def step(self, record: StepRecord) -> None:
        if record.step == self.at:
            signal.raise_signal(self.number)

    def epoch(self, record: EpochRecord) -> None:
        if record.epoch == self.after:
            signal.raise_signal(self.number)


class Counting(Watch):
    """A watch that notes the first update it hears of."""

    first = 0

    def step(self, record: StepRecord) -> None:
        self.first = self.first or record.step


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])  # three updates make an epoch
def test_a_signal_leaves_a_checkpoint_of_that_update_from_which_the_run_ends_as_it_would_have(
    make_loop: Callable[..., Loop],
    make_model: Callable[..., MultiExitModel],
    tmp_path: Path,
    number: signal.Signals,
    at: int,
) -> None:
    whole, stopped, resumed = (make_model(layers=2) for _ in range(3))
    make_loop(tmp_path / "whole", model=whole).run()
    with pytest.raises(Interrupted) as caught:
        make_loop(tmp_path / "half", model=stopped, watch=Caller(number, at)).run()
    assert caught.value.signal == number
    newest = SavedState(tmp_path / "half").newest()
    assert newest is not None
    assert newest.name == f"checkpoint-{at}"
    make_loop(tmp_path / "half", model=resumed).run(resume=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_a_signal_at_the_end_of_an_epoch_is_heard_in_the_next(make_loop: Callable[..., Loop], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        make_loop(tmp_path, watch=Caller(signal.SIGINT, epoch=1)).run()
    newest = SavedState(tmp_path).newest()
    assert newest is not None
    assert newest.name == "checkpoint-4"


@pytest.mark.parametrize("strategy", ["single", "two-stage"])
@pytest.mark.parametrize("epoch", [1, 2])
def test_a_signal_during_validation_leaves_a_checkpoint_from_which_only_the_validation_is_made_again(
    make_loop: Callable[..., Loop],
    make_model: Callable[..., MultiExitModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    epoch: int,
    strategy: str,
) -> None:
    settings = {"optimise__strategy": strategy, "stage2__epochs": 2, "stage2__least_updates": 0}
    settings |= {"optimise__checkpoint_seconds": 1e6}
    whole, stopped, resumed = (make_model(layers=2) for _ in range(3))
    make_loop(tmp_path / "whole", model=whole, **settings).run()
    predict, seen = Loop._predict, 0

    def signalled(self: Loop, phase: Phase) -> dict[int, list[Any]]:
        nonlocal seen
        seen += phase.frozen or strategy == "single"
        if seen == epoch:
            signal.raise_signal(signal.SIGTERM)
        return predict(self, phase)

    monkeypatch.setattr(Loop, "_predict", signalled)
    with pytest.raises(Interrupted):
        make_loop(tmp_path / "half", model=stopped, **settings).run()
    monkeypatch.undo()
    newest, watch = SavedState(tmp_path / "half").newest(), Counting()
    assert newest is not None
    made = int(newest.name.removeprefix("checkpoint-"))
    result = make_loop(tmp_path / "half", model=resumed, watch=watch, **settings).run(resume=True)
    assert watch.first == (made + 1 if made < result.updates else 0)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


@pytest.mark.parametrize(("seconds", "after_an_epoch"), [(0.0, "checkpoint-3"), (1e6, None)])
def test_a_checkpoint_that_is_not_worth_it_is_left_out_but_not_one_that_a_signal_asks_for(
    make_loop: Callable[..., Loop], tmp_path: Path, seconds: float, after_an_epoch: str | None
) -> None:
    seen = []

    class Looking(Caller):
        def step(self, record: StepRecord) -> None:
            newest = SavedState(tmp_path).newest()
            seen.append(newest and newest.name)
            super().step(record)

    with pytest.raises(Interrupted):
        make_loop(tmp_path, watch=Looking(signal.SIGINT, 5), optimise__checkpoint_seconds=seconds).run()
    newest = SavedState(tmp_path).newest()
    assert seen == [None, None, None, after_an_epoch, after_an_epoch]
    assert newest is not None
    assert newest.name == "checkpoint-5"


def test_handlers_are_put_back_and_a_second_signal_does_not_wait() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Stop() as stop:
        stop.check()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as first:
            stop.check()
        with pytest.raises(Interrupted) as second:
            signal.raise_signal(signal.SIGINT)
    assert (first.value.signal, second.value.signal) == (signal.SIGTERM, signal.SIGINT)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stop() as stop:
            signal.raise_signal(signal.SIGINT)
            stop.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_another_thread_leaves_the_handlers_alone() -> None:
    before, seen = [signal.getsignal(number) for number in SIGNALS], []

    def run() -> None:
        with Stop():
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == before
