"""Recipes on real data sets: measured once, kept as JSON that grows run by run, shown as tables."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from offramp.config import Config, changes_from, load_recipe, override, recipes

ROOT = Path(__file__).resolve().parents[1]
Run = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A data set, cut by settings."""

    name: str
    about: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """Which recipes are measured on which data sets, and the file that keeps the runs."""

    file: Path
    recipes: tuple[str, ...]
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...] = (0, 1, 2)

    def plan(self) -> Iterator[tuple[str, Task, int, str]]:
        """Every run with its key: the settings where they differ from the defaults. A new field changes no old run."""
        for seed in self.seeds:
            for task in self.tasks:
                for recipe in self.recipes:
                    config = override(load_recipe(recipe), task.settings)
                    facts = [recipe, task.name, seed, changes_from(Config(), config)]
                    yield recipe, task, seed, hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def runs(self) -> list[Run]:
        """What has been measured with the present settings, in the order of the plan."""
        found = json.loads(self.file.read_text("utf-8"))["runs"] if self.file.exists() else []
        by_key = {run["key"]: run for run in found}
        return [by_key[key] for _, _, _, key in self.plan() if key in by_key]

    def measure(self) -> None:
        """Train and score what is missing."""
        done = self.runs()
        for recipe, task, seed, key in self.plan():
            if key in [run["key"] for run in done]:
                continue
            done.append({"recipe": recipe, "task": task.name, "seed": seed, "key": key, **_score(recipe, task, seed)})
            print(json.dumps(done[-1]), flush=True)
            self.file.write_text(json.dumps({"runs": done}, indent=1) + "\n", "utf-8")


RECIPES = Measurement(
    ROOT / "results" / "recipes.json",
    tuple(
        name
        for name in recipes()
        if not name.endswith("-paper")
        and load_recipe(name).optimise.strategy == "single"
        and load_recipe(name).compress.method == "none"
    ),
    (
        Task("trec6", "questions, 6 kinds, 300 texts", ("data.cap=300",)),
        Task("sst2", "movie phrases, 2 moods, 300 texts", ("data.cap=300",)),
        Task("banking77", "bank messages, 77 intents, 385 texts", ("data.cap=385",)),
    ),
)

PAPERS = Measurement(
    ROOT / "results" / "paper-recipes.json",
    tuple(name for name in recipes() if name.endswith("-paper") and load_recipe(name).compress.method == "none"),
    (Task("trec6", "questions, 6 kinds, 300 texts", ("data.cap=300",)),),
    seeds=(0,),
)

STRATEGIES = Measurement(
    ROOT / "results" / "strategies.json",
    ("acl-multi-exit", "2st", "2st-linear", "jt", "alt"),
    (
        Task("trec6", "questions, 6 kinds, all 5452 texts"),
        Task("banking77", "bank messages, 77 intents, 40 texts each at most", ("data.class_cap=40",)),
        Task("sst2", "movie phrases, 2 moods, 8000 texts", ("data.cap=8000",)),
    ),
)


def recipes_table(measured: Measurement = RECIPES) -> str:
    """A row per recipe, a column per data set: accuracy of the last exit."""
    runs = measured.runs()
    if not runs:
        return "Not measured yet."
    rows = {f"`{name}`": [_cell(_of(runs, name, task), "accuracy") for task in measured.tasks] for name in _names(runs)}
    rows["always the largest class"] = [_cell(_of(runs, None, task)[:1], "majority") for task in measured.tasks]
    head = ["recipe", *(f"{task.name}: {task.about}" for task in measured.tasks)]
    return "\n".join([*_table(head, rows), "", f"Accuracy on the whole test file in percent, {_seeds(runs)}."])


def strategies_table() -> str:
    """For each data set, a row per recipe and a column per exit."""
    runs = STRATEGIES.runs()
    if not runs:
        return "Not measured yet."
    lines: list[str] = []
    for task in STRATEGIES.tasks:
        here = [run for run in runs if run["task"] == task.name]
        if not here:
            continue
        depths = list(here[0]["by_exit"])
        rows = {}
        for name in _names(here):
            mine = [{**run["by_exit"], "mean": mean(run["by_exit"].values())} for run in _of(here, name, task)]
            rows[f"`{name}`"] = [_cell(mine, column) for column in ("mean", *depths)]
        head = ["recipe", "mean over exits", *(f"exit {depth}" for depth in depths)]
        lines += [f"**{task.name}**: {task.about}.", "", *_table(head, rows), ""]
    lines.append(f"Accuracy on the whole test file in percent, {_seeds(runs)}.")
    return "\n".join(lines)


def _score(recipe: str, task: Task, seed: int) -> Run:
    import torch

    from offramp import Classifier
    from offramp.data.sources import read

    folder = Path(os.environ.get("OFFRAMP_DATA") or ROOT.parent / "shared" / "data")
    files = [folder / task.name / f"{part}.parquet" for part in ("train", "test")]
    train, test = (read(str(file)) for file in files)
    classifier = Classifier(recipe, settings=list(task.settings), seed=seed)
    result = classifier.fit_table(train)
    found = classifier.evaluate(test)
    return {
        "accuracy": found.accuracy,
        "by_exit": {str(exit.depth): exit.accuracy for exit in found.by_exit if exit.trained},
        "test": len(test.labels),
        "majority": max(Counter(test.labels).values()) / len(test.labels),
        "seconds": result.seconds,
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
        "sha256": [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files],
    }


def _names(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run["recipe"] for run in runs))


def _of(runs: Sequence[Run], recipe: str | None, task: Task) -> list[Run]:
    return [run for run in runs if run["task"] == task.name and recipe in (None, run["recipe"])]


def _cell(runs: Sequence[Run], column: str) -> str:
    """Mean and standard deviation over runs, in percent."""
    scores = [100 * run[column] for run in runs]
    spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{mean(scores):.1f}{spread}" if scores else ""


def _table(head: Sequence[str], rows: dict[str, list[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def _seeds(runs: Sequence[Run]) -> str:
    counts = Counter((run["recipe"], run["task"]) for run in runs).values()
    if max(counts) < 2:
        return "one seed"
    seeds = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"mean and standard deviation over {seeds} seeds"
