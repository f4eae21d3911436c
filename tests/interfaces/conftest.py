"""A toy problem, a classifier fitted to it once, and the command line, run in this process or in one of its own."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command_line import Ran

from offramp import Classifier

Toy = Callable[..., tuple[list[str], list[str]]]

LABELS = ("bad", "fine", "good")
FILLERS = ("film", "plot", "was", "is", "very", "not", "dull", "bright", "slow", "quick", "story", "who", "where")
QUICK = {"exits.size": 16, "optimise.epochs": 1, "optimise.batch_size": 16}
LEARN = {**QUICK, "optimise.epochs": 12, "optimise.lr_backbone": 2e-3, "optimise.lr_exit": 2e-3}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _toy(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    chance = random.Random(seed)
    texts, labels = [], []
    for i in range(n):
        words = chance.choices(FILLERS, k=chance.randint(1, 9))
        words.insert(chance.randint(0, len(words)), LABELS[i % 3])
        texts.append(" ".join(words))
        labels.append(LABELS[i % 3])
    return texts, labels


@pytest.fixture(scope="session")
def toy() -> Toy:
    """Texts whose label is told by one word among others, and their labels."""
    return _toy


@pytest.fixture(scope="session")
def quick(backbone_folder: Path) -> Callable[..., Classifier]:
    """Makes a classifier over the small backbone that fits within a second; `settings` come on top."""

    def make(settings: Mapping[str, Any] = {}, **parameters: Any) -> Classifier:
        return Classifier(
            **{"recipe": "ce", "backbone": str(backbone_folder), "settings": {**QUICK, **settings}, **parameters}
        )

    return make


@pytest.fixture(scope="session")
def fitted_once(backbone_folder: Path) -> Classifier:
    return Classifier("ce", str(backbone_folder), LEARN).fit(*_toy(240))


@pytest.fixture
def fitted(fitted_once: Classifier) -> Iterator[Classifier]:
    """A classifier that has learnt the toy problem; what a test sets on it is set back."""
    parameters, exits = fitted_once.get_params(), fitted_once.model_.config.trained_exits
    yield fitted_once
    fitted_once.set_params(**parameters)
    fitted_once.model_.config.trained_exits = exits


# The command line.


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """Starts a command in a process of its own."""

    def start(*arguments: object, **how: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "offramp", *map(str, arguments)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A shell that put the tests into the background has its children ignore an interrupt.
        listen = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        return subprocess.Popen(command, **{**pipes, "text": True, "env": ENVIRONMENT, **listen, **how})

    return start


@pytest.fixture(scope="session")
def write_table() -> Callable[..., Path]:
    """Writes rows under a header as CSV, and gives the path."""

    def write(path: Path, rows: Sequence[Sequence[object]], header: Sequence[str] = ("text", "label")) -> Path:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    return write


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory, write_table: Callable[..., Path]) -> Path:
    """A folder with `train.csv` and `test.csv` of the toy problem."""
    folder = tmp_path_factory.mktemp("tables")
    write_table(folder / "train.csv", list(zip(*_toy(120), strict=True)))
    write_table(folder / "test.csv", list(zip(*_toy(30, seed=1), strict=True)))
    return folder


@pytest.fixture(scope="session")
def fresh() -> Toy:
    """As `toy`, without the texts that `train.csv` holds, each text once."""
    seen = set(_toy(120)[0])

    def make(n: int, seed: int = 5) -> tuple[list[str], list[str]]:
        found = {text: label for text, label in zip(*_toy(2 * n, seed), strict=True) if text not in seen}
        return list(found)[:n], list(found.values())[:n]

    return make


@pytest.fixture(scope="session")
def held_out(tables: Path, write_table: Callable[..., Path], fresh: Toy) -> Path:
    """Texts to calibrate on, more than the terms of the tests need."""
    return write_table(tables / "held-out.csv", list(zip(*fresh(240), strict=True)))


@pytest.fixture(scope="session")
def train_arguments(backbone_folder: Path, tables: Path) -> Callable[..., list[object]]:
    """`train` on the toy problem with the small backbone."""

    def make(out: Path, *more: object, data: Path | None = None, **settings: Any) -> list[object]:
        changes = {**LEARN, "optimise.epochs": 2, **settings}
        pairs = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        named = ["--recipe", "ce", "--backbone", backbone_folder, "--out", out]
        return ["train", data or tables / "train.csv", *named, *pairs, *more]

    return make


@dataclass(frozen=True)
class Trained:
    """A model folder that a command in a process of its own wrote, and what the command said."""

    folder: Path
    ran: Ran
    arguments: list[object]


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    train_arguments: Callable[..., list[object]],
    start: Callable[..., subprocess.Popen[str]],
) -> Trained:
    """The model that most tests of the command line read; none may write to it."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    arguments = train_arguments(folder, "--json")
    process = start(*arguments)
    out, err = process.communicate()
    return Trained(folder, Ran(process.returncode, out, err), arguments)


@pytest.fixture(scope="session")
def model(trained: Trained) -> Path:
    assert trained.ran.code == 0, trained.ran.err
    return trained.folder


STAGES = {
    "optimise.strategy": "two-stage",
    "stage2.objective": "acl-cl",
    "stage2.epochs": 2,
    "stage2.batch_size": 32,
    "stage2.least_updates": 0,
}


@pytest.fixture(scope="session")
def staged(
    tmp_path_factory: pytest.TempPathFactory,
    train_arguments: Callable[..., list[object]],
    start: Callable[..., subprocess.Popen[str]],
) -> Trained:
    """A model of two stages, whose exits are all trained; no test may write to it."""
    folder = tmp_path_factory.mktemp("staged") / "model"
    arguments = train_arguments(folder, "--json", **STAGES)
    process = start(*arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return Trained(folder, Ran(process.returncode, out, err), arguments)
