"""Small runs: in this process, and in processes that can be killed."""

from __future__ import annotations

import csv
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from offramp.config import Config, from_mapping, override
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.loop import Loop
from offramp.types import Example


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors are faster on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def toy_texts(request: pytest.FixtureRequest) -> Callable[..., tuple[list[str], list[str]]]:
    """Texts whose label is told by one word among others, from the conftest above."""
    above = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    found: Callable[..., tuple[list[str], list[str]]] = above.toy_texts
    return found


@pytest.fixture(scope="session")
def toy_tokens(
    tokenizer: PreTrainedTokenizerFast, toy_texts: Callable[..., tuple[list[str], list[str]]]
) -> Callable[..., Tokens]:
    """Makes the tokens of toy texts."""

    def make(n: int, seed: int = 0) -> Tokens:
        texts, labels = toy_texts(n, seed)
        classes = sorted({"bad", "fine", "good"})
        return Tokens.of(tokenizer, [Example(text) for text in texts], 32, [classes.index(label) for label in labels])

    return make


def configured(**settings: Any) -> Config:
    """The defaults with dotted fields, their dots written as two underscores, changed."""
    return override(from_mapping({}), [f"{key.replace('__', '.')}={value}" for key, value in settings.items()])


def accuracy(truth: Any, predicted: Any) -> float:
    return sum(a == b for a, b in zip(truth, predicted, strict=True)) / len(truth)


@pytest.fixture
def configure() -> Callable[..., Config]:
    return configured


@pytest.fixture
def make_loop(make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]) -> Callable[..., Loop]:
    """Makes a run over toy texts; settings are the configuration's, with two underscores for the dot."""

    def make(
        folder: Path | None = None,
        model: MultiExitModel | None = None,
        train: int = 48,
        validation: int = 24,
        score: Callable[..., float] = accuracy,
        watch: Any = None,
        **settings: Any,
    ) -> Loop:
        quick = {"optimise__epochs": 2, "optimise__lr_backbone": 1e-3, "optimise__lr_exit": 1e-2}
        config = configured(**{**quick, **settings})
        given = config.objective
        loss = objective(
            given.name,
            temperature=given.temperature,
            weight=given.weight,
            denominator=given.denominator,
            reduction=given.reduction,
        )
        model = model or make_model(layers=2, exit_dropout=config.exits.dropout)
        given_second = config.stage2
        second = objective(
            given_second.objective,
            temperature=given_second.temperature,
            weight=given_second.weight,
            reduction=given_second.reduction,
        )
        return Loop(model, loss, config, toy_tokens(train), toy_tokens(validation, 1), score, folder, watch, second)

    return make


# Runs in processes of their own.


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int  # negative: the signal
    output: str
    moments: list[str]  # the changes it made to files


class Runs:
    """Trains in forked processes, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def fit(self, out: Path, data: Path, resume: bool = False, **options: Any) -> Ended:
        """`Classifier.fit_table` into a folder; the options are `Classifier`'s, or those of `_run`."""
        mine = {key: options.pop(key) for key in ("kill_at", "kill_when", "kill_after", "room") if key in options}
        return self._run({"arguments": [], "fit": {"data": str(data), "resume": resume, **options}}, out, **mine)

    def command(self, out: Path, *arguments: str, room: int = 0) -> Ended:
        """The command line."""
        return self._run({"arguments": arguments}, out, room=room)

    def close(self) -> None:
        with self.server:  # closes the pipes and waits
            pass

    def _run(
        self,
        request: dict[str, Any],
        out: Path,
        kill_at: int | str = 0,  # before this moment, by number or by pattern
        kill_when: Callable[[], bool] | None = None,  # as soon as this holds
        kill_after: float | None = None,  # seconds
        room: int = 0,
    ) -> Ended:
        output, moments = self.folder / "output.txt", self.folder / "moments.json"
        moments.unlink(missing_ok=True)
        request |= {"out": str(out), "kill_at": kill_at, "room": room, "output": str(output), "moments": str(moments)}
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        process = int(self._line())
        while (kill_when or kill_after) and not self._ended(kill_after or 0.002):
            if kill_when is None or kill_when():
                os.kill(process, signal.SIGKILL)
                break
        code = int(self._line())
        return Ended(code, output.read_text(), json.loads(moments.read_text()) if moments.exists() else [])

    def _line(self) -> str:
        assert self.server.stdout is not None
        return self.server.stdout.readline()

    def _ended(self, seconds: float) -> bool:
        return bool(select.select([self.server.stdout], [], [], seconds)[0])


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Training in processes that can be killed."""
    made = Runs(tmp_path_factory.mktemp("runs"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def toy_file(
    tmp_path_factory: pytest.TempPathFactory, toy_texts: Callable[..., tuple[list[str], list[str]]]
) -> Callable[..., Path]:
    """Writes toy texts to a CSV file."""
    folder = tmp_path_factory.mktemp("data")

    def write(n: int, seed: int = 0) -> Path:
        file = folder / f"toy-{n}-{seed}.csv"
        with file.open("w", newline="") as handle:
            csv.writer(handle).writerows([("text", "label"), *zip(*toy_texts(n, seed), strict=True)])
        return file

    return write
