"""What a person sees of a run, phase by phase: on a terminal a bar, elsewhere a line per epoch."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from offramp.progress import ProgressBar
from offramp.types import EpochRecord, StepRecord


def step(number: int, loss: float = 0.5, **fields: float | str) -> StepRecord:
    return StepRecord(step=number, epoch=1.0, loss=loss, parts={}, lr=1e-5, **fields)  # type: ignore[arg-type]


def epoch(number: int, phase: str = "", best: bool = True, **by_exit: float) -> EpochRecord:
    scores = {depth.removeprefix("d"): score for depth, score in by_exit.items()}
    mean = sum(scores.values()) / len(scores) if scores else 0.75
    return EpochRecord(number, 10 * number, mean, "accuracy", 0.4, best, scores, phase)


@pytest.fixture
def lines() -> Callable[..., list[str]]:
    """What a narrow file gets to read of some epochs."""

    def show(*records: EpochRecord) -> list[str]:
        out = io.StringIO()
        with ProgressBar(Console(file=out, width=40)) as bar:
            for record in records:
                bar.epoch(record)
        return out.getvalue().splitlines()

    return show


def test_an_epoch_of_one_exit_is_a_line_with_its_score(lines: Callable[..., list[str]]) -> None:
    assert lines(epoch(1), epoch(2, "single", best=False, d4=0.5)) == [
        "epoch   1  loss 0.4000  validation accuracy 0.7500  kept",
        "epoch   2  loss 0.4000  validation accuracy 0.5000",
    ]


def test_an_epoch_says_how_many_there_are(lines: Callable[..., list[str]]) -> None:
    assert lines(replace(epoch(3), epochs=100)) == ["epoch   3 of 100  loss 0.4000  validation accuracy 0.7500  kept"]


def test_an_epoch_of_several_exits_says_their_mean_and_range_on_one_line(lines: Callable[..., list[str]]) -> None:
    assert lines(epoch(1, "joint", d1=0.25, d2=0.5, d3=0.75)) == [
        "epoch   1  loss 0.4000  validation accuracy 0.5000 (mean of 3 exits, 0.2500 to 0.7500)  kept"
    ]


def test_the_second_stage_is_told_from_the_first(lines: Callable[..., list[str]]) -> None:
    assert lines(epoch(1, "exits", d1=0.5), epoch(2, "exits", best=False, d1=0.25, d2=0.5)) == [
        "exits, epoch   1  loss 0.4000  validation accuracy 0.5000  kept for an exit",
        "exits, epoch   2  loss 0.4000  validation accuracy 0.3750 (mean of 2 exits, 0.2500 to 0.5000)",
    ]


def test_each_phase_counts_its_own_updates_and_forgets_the_values_of_the_one_before() -> None:
    bar = ProgressBar(Console(file=io.StringIO()))
    task = bar.bar.tasks[0]
    bar.start(20, 0)
    for number in range(1, 21):
        bar.step(step(number, 9.0, angle=80.0, kept=1.0, phase="single"))
    assert (task.completed, task.total) == (20, 20)
    assert task.description == "loss 9.000  angle 80°  kept 100%"
    bar.start(30, 0)
    assert (task.completed, task.total, task.description) == (0, 30, "")
    bar.step(step(21, 0.25, phase="exits"))  # the run's 21st update is this phase's first
    assert (task.completed, task.description) == (1, "loss 0.250")
    bar.step(step(22, 0.25, angle=40.0, kept=0.0, phase="exits"))
    assert (task.completed, task.description) == (2, "loss 0.250  angle 40°  kept 0%")


def test_a_resumed_phase_goes_on_where_it_was() -> None:
    bar = ProgressBar(Console(file=io.StringIO()))
    bar.start(30, 12)
    bar.step(step(33))
    assert (bar.bar.tasks[0].completed, bar.bar.tasks[0].total) == (13, 30)


def test_the_texts_whose_states_are_written_down_are_counted_before_the_updates() -> None:
    with ProgressBar(Console(file=io.StringIO(), force_terminal=True, width=120)) as bar:
        bar.start(30, 4)
        bar.states(64, 100)
        (task,) = bar.bar.tasks
        assert (task.completed, task.total, task.description) == (64, 100, "texts read for the other exits")
        bar.states(100, 100)
        assert (task.completed, task.total, task.description) == (4, 30, "")


def test_a_terminal_shows_the_updates_of_the_phase() -> None:
    out = io.StringIO()
    with ProgressBar(Console(file=out, force_terminal=True, width=120)) as bar:
        bar.start(2, 0)
        bar.step(step(41))
        bar.bar.refresh()
    assert re.search(r"training.*1/2.*loss 0\.500", out.getvalue())
