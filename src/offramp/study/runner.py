"""Studies: the papers' tables and figures, made by running what is missing.

`run` compares the plan with the results on disk and makes the rest: a finished study does nothing, a result that was
deleted is made again to the same bits, a run that was killed goes on from its checkpoint, and a run that another study
has made is taken over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from offramp.cluster.session import Cluster
from offramp.errors import ConfigError, DataError, TrainingError, UserError, unknown_name
from offramp.study.files import load_study, studies
from offramp.study.jobs import Outcome, perform_all
from offramp.study.kinds import Study
from offramp.study.plan import Run, plan
from offramp.study.results import WORK, Found, Shelf, found, read, work_folder, write

__all__ = ["Ended", "Found", "Run", "Study", "load_study", "plan", "results", "run", "studies"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """What a command did to a study."""

    runs: int  # that were asked for
    made: int
    shared: int  # taken over from other studies
    there: int  # before
    left: int  # still missing


def results(study: Study, scale: str, folder: Path) -> list[Found]:
    """The results of a study that are there, in the order of the plan."""
    return found(plan(study, scale), folder)


def run(
    study: Study,
    scale: str,
    folder: Path,
    jobs: int = 1,
    threads: int = 0,
    only: str = "",
    limit: int = 0,
    say: Say = lambda _: None,
    cluster: Cluster | None = None,
) -> Ended:
    """Make what is missing of a study.

    `jobs` processes work at a time, with `threads` threads each (0: as many as the results that are there were made
    with, since their bits depend on it, or else the cores divided between the jobs); a `cluster` says itself how many
    of its workers there are, and how many threads they have. `only` is
    VARIANT/TASK/SEED, where a part may be `*` or a pattern and parts at the end may be left out. `limit` is how many
    runs are made at most; 0: all.
    """
    if jobs < 1 or threads < 0 or limit < 0:
        raise ConfigError(
            f"`jobs` should be 1 or more, `threads` and `limit` 0 or more. Found {jobs}, {threads}, {limit}."
        )
    everything = plan(study, scale)
    asked = [each for each in everything if _matches(each, only)]
    if not asked:
        raise _unknown(only, everything, study.name)
    there = {each.run.name for each in found(asked, folder)}
    missing = [each for each in asked if each.name not in there]
    say(f"{study.name} at the scale {scale}: {len(asked)} runs, {len(there)} there, {len(missing)} to make")
    if not threads and cluster is None and missing:
        threads = _threads_before(study, scale, folder) or _share(jobs)
        if threads != _share(jobs):
            many = f"{threads} thread{'s' * (threads > 1)}"
            say(f"{many} for each run, as those that are there had; --threads says otherwise")
    missing, shared = _taken_over(missing, folder, say)
    first: dict[str, Run] = {}
    for each in missing:
        first.setdefault(each.key, each)
    chosen = list(first.values())[: limit or None]
    if chosen:
        work_folder(folder)  # one that cannot be made is told of before anything is trained
    made = 0
    wrong: list[Outcome] = []
    outcomes = perform_all(chosen, folder, jobs, threads, cluster) if chosen else iter(())
    for number, outcome in enumerate(outcomes, 1):
        say(f"[{number}/{len(chosen)}] {_told(outcome, folder)}")
        if outcome.error and outcome.misuse:
            raise DataError(f"{outcome.run.name}: {outcome.error}")
        made += not outcome.error
        wrong += [outcome] if outcome.error else []
    missing = [each for each in missing if not _has(each, folder)]
    missing, more = _taken_over(missing, folder, say)
    if wrong:
        raise TrainingError(
            f"{len(wrong)} of {len(chosen)} runs failed, the others are there. "
            f"First, {wrong[0].run.name}: {wrong[0].error}"
        )
    if not missing and not only:
        _tidy(plan(study, scale), folder)
    return Ended(len(asked), made, shared + more, len(there), len(missing))


def _taken_over(missing: list[Run], folder: Path, say: Say) -> tuple[list[Run], int]:
    """The runs that nobody has made, and how many were copied from where somebody had."""
    left = []
    shelf = Shelf(folder, missing[0].scale) if missing else None
    for each in missing:
        record = shelf.same(each) if shelf else None
        if record is None:
            left.append(each)
        else:
            write(record, folder / each.place)
            say(f"{each.name}: the same run as {record.get('from', each.place)}")
    return left, len(missing) - len(left)


def _has(each: Run, folder: Path) -> bool:
    return bool(found([each], folder))


def _told(outcome: Outcome, folder: Path) -> str:
    """A line on how a run ended."""
    if outcome.error:
        last = outcome.error.strip().splitlines()[-1]
        return f"{outcome.run.name}  failed: {last}"
    record = read(folder / outcome.run.place)
    if record is None:
        raise UserError(f"`{folder / outcome.run.place}` should be there. Somebody has removed it.")
    metrics = record["metrics"]
    last = f"{metrics['metric']} {metrics['score']:.4f}" + " at the last exit" * (len(metrics["by_exit"]) > 1)
    return f"{outcome.run.name}  {last}  {outcome.seconds:.0f} s"


def _matches(each: Run, only: str) -> bool:
    parts = only.split("/") if only else []
    if len(parts) > 3:
        raise ConfigError(f"`--only` should be VARIANT/TASK/SEED. Found `{only}`.")
    return all(
        fnmatchcase(name, part) for name, part in zip((each.variant, each.task, str(each.seed)), parts, strict=False)
    )


def _unknown(only: str, runs: list[Run], study: str) -> ConfigError:
    """The error for a pattern that no run matches, with the names near to its first part that none has."""
    known = {"variant": {r.variant for r in runs}, "task": {r.task for r in runs}, "seed": {str(r.seed) for r in runs}}
    for part, (kind, names) in zip(only.split("/"), known.items(), strict=False):
        if not any(fnmatchcase(name, part) for name in names):
            return unknown_name(f"{kind} of {study}", part, names)
    return ConfigError(f"`--only` should name runs as VARIANT/TASK/SEED. No run of {study} is named `{only}`.")


def _threads_before(study: Study, scale: str, folder: Path) -> int:
    """With how many threads the results that are there were made; 0 where there are none, or they do not agree."""
    told = {int(each.record.get("machine", {}).get("threads", 0)) for each in results(study, scale, folder)}
    return told.pop() if len(told) == 1 else 0


def _share(jobs: int) -> int:
    """Threads for each of so many processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // jobs)


def _tidy(runs: list[Run], folder: Path) -> None:
    """Remove what runs of a finished study have left, or shared while they were made."""
    shared = {f"before-{each.before.key}" for each in runs if each.before is not None}
    # A run that was killed after its result was written has left its folder.
    for name in shared | {each.key for each in runs}:
        if (folder / WORK / name).is_dir():
            shutil.rmtree(folder / WORK / name, ignore_errors=True)
        (folder / WORK / f"{name}.lock").unlink(missing_ok=True)
