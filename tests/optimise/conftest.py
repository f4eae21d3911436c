"""Small runs: in this process, and in processes that can be killed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optimise.runs import Runs
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
