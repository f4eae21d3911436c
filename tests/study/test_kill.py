"""A study in processes that are killed, interrupted, or several at a time ends with the results of one left alone."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.study.tiny import CE, QUICK, SCL, names, timeless, write_study

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # seconds: a machine may be busy
SLOW = {**QUICK, "optimise.epochs": 12}  # a checkpoint at every update, so a kill falls between two


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `offramp study run` in a process group of its own."""
    begun: list[subprocess.Popen[str]] = []

    def run(folder: Path, results: Path, *more: object) -> subprocess.Popen[str]:
        told = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
        words = ["study", "run", folder, "--scale", "smoke", "--results", results, "--threads", 1, "--json", *more]
        begun.append(
            subprocess.Popen(
                [sys.executable, "-m", "offramp", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **told},
                start_new_session=True,
                # A shell that put the tests into the background has its children ignore an interrupt.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        )
        return begun[-1]

    yield run
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def wait_for(process: subprocess.Popen[str], seen: Callable[[], bool]) -> None:
    """Until something is seen on the disk."""
    while not seen():
        # Its standard output, which says something or is closed when it ends.
        ended = select.select([process.stdout], [], [], 0.01)[0]
        assert not ended, process.communicate()


def updates(results: Path) -> int:
    """Updates of the run that is under way."""
    logs = results.glob(".work/*/model/training/log.jsonl")
    return sum(log.read_bytes().count(b'"kind": "step"') for log in logs)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study and its results, made by a process that nobody disturbed."""
    from offramp.study import runner as study

    home = tmp_path_factory.mktemp("alone")
    folder = write_study(home / "studies", smoke={"set": SLOW, "seeds": 2}, ce=CE, scl=SCL)
    study.run(study.load_study(str(folder)), "smoke", home / "results", threads=1)
    return folder, home / "results"


def same(results: Path, wanted: Path) -> bool:
    assert names(results) == names(wanted)
    return all(timeless(results / name) == timeless(wanted / name) for name in names(wanted))


def test_a_killed_study_goes_on_to_the_same_bits(
    alone: tuple[Path, Path], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder, wanted = alone
    results = tmp_path / "results"
    for least in (2, 9):  # within the first run, twice: what the first left is gone on from
        process = start(folder, results)
        wait_for(process, lambda least=least: updates(results) >= least)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not names(results)
    assert list(results.glob(".work/*/model/training/checkpoint-*"))
    assert ended(start(folder, results))["made"] == 4
    assert same(results, wanted)


def test_several_processes_make_what_one_makes(
    alone: tuple[Path, Path], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder, wanted = alone
    found = ended(start(folder, tmp_path / "results", "--jobs", 2))
    assert (found["made"], found["left"]) == (4, 0)
    assert same(tmp_path / "results", wanted)


@pytest.mark.slow
def test_two_commands_at_once_make_each_run_once(
    alone: tuple[Path, Path], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder, wanted = alone
    both = [start(folder, tmp_path / "results") for _ in range(2)]
    assert all(ended(process)["left"] == 0 for process in both)
    assert same(tmp_path / "results", wanted)


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupt_exits_with_130_and_leaves_something_to_go_on_from(
    alone: tuple[Path, Path], start: Callable[..., subprocess.Popen[str]], tmp_path: Path, jobs: int
) -> None:
    folder, wanted = alone
    results = tmp_path / "results"
    process = start(folder, results, "--jobs", jobs)
    wait_for(process, lambda: updates(results) >= 2)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: everybody of the group
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert ended(start(folder, results))["left"] == 0
    assert same(results, wanted)


@pytest.mark.slow
def test_a_process_that_dies_without_a_word_is_reported(
    alone: tuple[Path, Path], start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder, _ = alone
    results = tmp_path / "results"
    process = start(folder, results, "--jobs", 2)
    wait_for(process, lambda: updates(results) >= 2)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    os.kill(next(pid for pid, command in commands.items() if b"spawn_main" in command), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "ended with -9 and without a word" in err
