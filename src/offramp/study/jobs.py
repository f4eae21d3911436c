"""Runs of a study, one after the other here, several at a time in processes of their own, or on Ray's workers.

Each process works through one run after the other with its share of the threads. Whoever runs holds a lock on the run's
folder, so that two commands that want the same run make it once. A run whose worker of Ray is lost is begun again on
another one, which goes on from its checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

from offramp.cluster.session import Cluster, connected
from offramp.cluster.tasks import Tasks
from offramp.errors import Interrupted, OfframpError, TrainingError, UserError
from offramp.study.lock import locked
from offramp.study.plan import Run
from offramp.study.results import Shelf, work_folder, write

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Run
    seconds: float
    error: str = ""
    misuse: bool = False  # the caller can mend it


def perform_all(
    runs: Sequence[Run], results: Path, jobs: int, threads: int, cluster: Cluster | None = None
) -> Iterator[Outcome]:
    """The outcomes as they come; each run's result is written when its outcome is told."""
    if cluster is not None:
        return _on_ray(runs, results.resolve(), cluster)
    return _here(runs, results, threads) if jobs <= 1 else _in_processes(runs, results, jobs, threads)


def complete(run: Run, results: Path) -> None:
    """Make a run's result, or take over one that somebody has made in the meantime."""
    from offramp.study.run import perform

    work = work_folder(results) / run.key
    with locked(work):
        record = Shelf(results, run.scale).same(run)
        write(perform(run, work) if record is None else record, results / run.place)
        shutil.rmtree(work, ignore_errors=True)
        # Who waits for the lock finds the result.
        (work.parent / f"{work.name}.lock").unlink(missing_ok=True)


def attempt(run: Run, results: Path) -> Outcome:
    """A run's outcome, whatever happens."""
    began = time.monotonic()
    try:
        complete(run, results)
    except OfframpError as error:
        return Outcome(run, time.monotonic() - began, str(error), isinstance(error, UserError))
    except Exception:
        return Outcome(run, time.monotonic() - began, traceback.format_exc())
    return Outcome(run, time.monotonic() - began)


def _here(runs: Sequence[Run], results: Path, threads: int) -> Iterator[Outcome]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for run in runs:
            yield attempt(run, results)
    finally:
        torch.set_num_threads(before)


def _in_processes(runs: Sequence[Run], results: Path, jobs: int, threads: int) -> Iterator[Outcome]:
    waiting = list(reversed(runs))
    busy: dict[Connection, tuple[SpawnProcess, Run]] = {}
    with _threads_told(threads):
        workers = [_start(results, threads) for _ in range(min(jobs, len(runs)))]
    try:
        for process, pipe in workers:
            busy[pipe] = process, _send(pipe, waiting.pop())
        while busy:
            for ready in wait(list(busy)):
                pipe = cast(Connection, ready)
                process, run = busy.pop(pipe)
                try:
                    outcome = pipe.recv()
                except EOFError:
                    process.join()
                    raise TrainingError(
                        f"The process of the run {run.name} ended with {process.exitcode} and without a word, as one "
                        "does that is killed or has no memory left. Run the study again: it goes on where it was."
                    ) from None
                if waiting:
                    busy[pipe] = process, _send(pipe, waiting.pop())
                else:
                    pipe.send(None)
                yield outcome
    finally:
        for process, pipe in workers:
            pipe.close()
            process.terminate() if pipe in busy else process.join()
        for process, _ in workers:
            process.join()


def _on_ray(runs: Sequence[Run], results: Path, cluster: Cluster) -> Iterator[Outcome]:
    waiting = list(reversed(runs))
    with connected(cluster) as session:
        tasks = Tasks(session, _work)
        while waiting or tasks.under_way:
            while waiting and tasks.room:
                tasks.begin(waiting[-1].name, waiting.pop(), results, cluster.threads)
            yield tasks.ended()[1]


def _work(run: Run, results: Path, threads: int) -> Outcome:
    """What a worker of Ray does."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(threads)
    return attempt(run, results)


def _start(results: Path, threads: int) -> tuple[SpawnProcess, Connection]:
    # A process that is forked off torch's threads may wait for them forever.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, results, threads), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(pipe: Connection, results: Path, threads: int) -> None:
    """What a process does: a run after the other, until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(threads)
    try:
        while (run := pipe.recv()) is not None:
            pipe.send(attempt(run, results))
    except (EOFError, BrokenPipeError, Interrupted):
        return  # nobody listens any more


def _send(pipe: Connection, run: Run) -> Run:
    pipe.send(run)
    return run


@contextmanager
def _threads_told(threads: int) -> Iterator[None]:
    """The environment that libraries read when a process starts."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
