"""Runs that are killed at random moments: resumed, each ends with the files of the run that nobody disturbed.

Every other kill comes at a random time, the others before a random change to a file. After each of them what the run
left is read, and no checkpoint is older than the one before.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.damage import damage_folder
from tests.faults.small import Small
from tests.optimise.runs import Runs

from offramp.exits import checkpoint
from offramp.optimise.saved_state import SavedState

SAME, REFUSED = "the same bits", "refused"


@dataclass(frozen=True)
class Whole:
    """A run that nobody disturbed."""

    files: dict[str, bytes]
    moments: list[str]  # the changes it made to files, each once
    seconds: float

    @property
    def parts(self) -> list[list[str]]:
        """The moments before, while and after states are cached, or all: each part is as likely as the others."""
        caching = [place for place, moment in enumerate(self.moments) if "/.states-" in moment]
        if not caching:
            return [self.moments]
        first, last = caching[0], caching[-1] + 1
        return [self.moments[:first], self.moments[first:last], self.moments[last:]]


class Kills:
    """Runs of every strategy, killed again and again."""

    def __init__(self, small: Small, runs: Runs, home: Path) -> None:
        self.small, self.runs, self.home = small, runs, home
        self.wholes: dict[str, Whole] = {}

    def chains(self, count: int, strategies: tuple[str, ...], seed: int = 0) -> Iterator[tuple[str, list[str], str]]:
        """Strategy, where it was killed, and how it ended, of each run, until there were so many kills."""
        chance, done, number = random.Random(seed), 0, 0
        while done < count:
            strategy = strategies[number % len(strategies)]
            places, end = self._chain(strategy, chance, min(chance.choice((2, 3, 4)), count - done))
            yield strategy, places, end
            done, number = done + len(places), number + 1

    def _chain(self, strategy: str, chance: random.Random, kills: int) -> tuple[list[str], str]:
        whole, out = self._whole(strategy), self.home / "out"
        shutil.rmtree(out, ignore_errors=True)
        places: list[str] = []
        newest = -1
        for _ in range(kills):
            by_time = bool(len(places) % 2)
            how: dict[str, Any] = {"kill_after": chance.uniform(0.05, 0.9) * whole.seconds}
            ended = self._fit(
                strategy, out, **(how if by_time else {"kill_at": chance.choice(chance.choice(whole.parts))})
            )
            if ended.code == 0:
                break  # it was quicker
            if ended.code != -signal.SIGKILL:
                return places, f"ended with {ended.code}: {ended.output[-300:]}"
            places.append(_place(out))
            if checkpoint.is_model(out):
                checkpoint.load(out)  # raises where it is unreadable
            saved = SavedState(out / "training")
            saved.read()
            found = saved.newest()
            now = -1 if found is None else int(found.name.rpartition("-")[2])
            if now < newest and not (out / "training" / "result.json").exists():
                return places, f"the checkpoint went from {newest} to {now}"
            newest = now
        ended = self._fit(strategy, out)
        if ended.code:
            return places, f"not resumed: {ended.output[-300:]}"
        return places, SAME if _files(out) == whole.files else "other bits"

    def _fit(self, strategy: str, out: Path, **how: Any) -> Any:
        given = {"recipe": self.small.recipes[strategy], "settings": self.small.settings[strategy]}
        return self.runs.fit(out, self.small.data, resume=True, backbone=str(self.small.backbone), **given, **how)

    def _whole(self, strategy: str) -> Whole:
        if strategy not in self.wholes:
            out, began = self.home / "whole", time.monotonic()
            shutil.rmtree(out, ignore_errors=True)
            ended = self._fit(strategy, out)
            assert ended.code == 0, ended.output
            # Some names are drawn anew in each run.
            moments = [re.sub(r"(\.saving-|events/)[^/]+", r"\1*", moment) for moment in ended.moments]
            self.wholes[strategy] = Whole(_files(out), list(dict.fromkeys(moments)), time.monotonic() - began)
        return self.wholes[strategy]

    def damaged(self, count: int, strategy: str, seed: int = 0) -> Iterator[tuple[str, str]]:
        """Kind of damage and outcome of runs that were killed half-way, whose folder was then damaged, and resumed."""
        whole, half = self._whole(strategy), self.home / "half"
        shutil.rmtree(half, ignore_errors=True)
        self._fit(strategy, half, kill_at=whole.moments[len(whole.moments) * 2 // 3])
        for number in range(count):
            chance, out = random.Random(f"run {seed} {number}"), self.home / "out"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(half, out)
            kind = damage_folder(chance, out)
            ended = self._fit(strategy, out)
            said = ended.output.strip().splitlines()[-1] if ended.code else ""
            if ended.code == 0:
                same = _files(out)["model.safetensors"] == whole.files["model.safetensors"]
                yield kind, SAME if same else "other bits"
            else:
                yield (
                    kind,
                    "refused" if said.startswith("offramp.errors.") else f"ended with {ended.code}: {said[-200:]}",
                )


def _place(out: Path) -> str:
    """In which part of a run a kill came."""
    training = out / "training"
    if not (training / "run.json").is_file():
        return "before the first update"
    if (training / "result.json").exists() or checkpoint.is_model(out):
        return "while the model was saved"
    if list(training.glob(".states-*")):
        return "while states were cached"
    log = training / "log.jsonl"
    lines = [line for line in (log.read_bytes() if log.exists() else b"").splitlines() if line.endswith(b"}")]
    if not lines:
        return "before the first update"
    return "in the second stage" if json.loads(lines[-1]).get("phase") == "exits" else "in the first stage"


def _files(folder: Path) -> dict[str, bytes]:
    """What a run leaves behind, apart from TensorBoard's events and the seconds it took."""
    found = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    kept = {name for name in found if not name.startswith("training/events/") and "result" not in name}
    return {name: found[name].read_bytes() for name in kept}
