"""Every tuned recipe on a few real data sets: measured once, kept as JSON, shown as a table."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from offramp.config import changes, load_recipe, override, recipes

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "results" / "recipes.json"
SEEDS = (0, 1)


@dataclass(frozen=True)
class Task:
    """A data set, cut to so many training texts."""

    name: str
    texts: int
    about: str


TASKS = (
    Task("trec6", 300, "questions, 6 kinds"),
    Task("sst2", 300, "movie phrases, 2 moods"),
    Task("banking77", 385, "bank messages, 77 intents"),
)


def measure() -> None:
    """Train and score what has not been measured with its present settings; the JSON grows run by run."""
    import torch

    from offramp import Classifier
    from offramp.data.sources import read

    folder = Path(os.environ.get("OFFRAMP_DATA") or ROOT.parent / "shared" / "data")
    found = json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {"runs": []}
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }
    tables: dict[str, Any] = {}
    wanted = [key for _, _, _, key in _plan()]
    found["runs"] = [run for run in found["runs"] if run["key"] in wanted]
    for recipe, task, seed, key in _plan():
        if key in [run["key"] for run in found["runs"]]:
            continue
        files = [folder / task.name / f"{part}.parquet" for part in ("train", "test")]
        if task.name not in tables:
            tables[task.name] = [read(str(file)) for file in files]
        train, test = tables[task.name]
        classifier = Classifier(recipe, settings=_settings(task), seed=seed)
        result = classifier.fit_table(train)
        answers = classifier.predict(test.examples)
        right = [str(answer) == str(label) for answer, label in zip(answers, test.labels, strict=True)]
        run = {"recipe": recipe, "task": task.name, "seed": seed, "key": key, "accuracy": mean(right)}
        run |= {"test": len(right), "seconds": result.seconds}
        run["majority"] = max(Counter(test.labels).values()) / len(test.labels)
        run |= {"machine": machine, "sha256": [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]}
        found["runs"].append(run)
        print(json.dumps(run), flush=True)
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def table() -> str:
    """The measured accuracies: a row per recipe, a column per data set, mean and standard deviation over seeds."""
    runs = json.loads(MEASURED.read_text("utf-8"))["runs"]
    tasks = [task for task in TASKS if any(run["task"] == task.name for run in runs)]
    head = [f"{task.name}: {task.about}, {task.texts} texts" for task in tasks]
    lines = [f"| recipe | {' | '.join(head)} |", f"| --- |{' --- |' * len(tasks)}"]
    for recipe in dict.fromkeys(run["recipe"] for run in runs):
        cells = []
        for task in tasks:
            scores = [100 * run["accuracy"] for run in runs if (run["recipe"], run["task"]) == (recipe, task.name)]
            spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{mean(scores):.1f}{spread}" if scores else "")
        lines.append(f"| `{recipe}` | {' | '.join(cells)} |")
    majority = {run["task"]: run["majority"] for run in runs}
    lines.append(f"| always the largest class | {' | '.join(f'{100 * majority[task.name]:.1f}' for task in tasks)} |")
    counts = Counter((run["recipe"], run["task"]) for run in runs).values()
    seeds = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} or {max(counts)}"
    lines += ["", f"Accuracy on the whole test file in percent, mean and standard deviation over {seeds} seeds."]
    return "\n".join(lines)


def _plan() -> Iterator[tuple[str, Task, int, str]]:
    for seed in SEEDS:
        for task in TASKS:
            for recipe in (name for name in recipes() if not name.endswith("-paper")):
                config = override(load_recipe(recipe), _settings(task))
                # What a run is: its settings where they differ from the defaults. A new field changes no old run.
                facts = [recipe, task.name, seed, changes(replace(config, recipe=""))]
                yield recipe, task, seed, hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _settings(task: Task) -> list[str]:
    return [f"data.cap={task.texts}"]
