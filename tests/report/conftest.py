"""A made-up evaluation and a made-up run; the numbers mean nothing, their shapes do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from offramp.report.history import History
from offramp.report.metrics import Evaluation
from offramp.types import EpochRecord, Label, StepRecord


def _evaluation(
    classes: int = 4,
    layers: int = 6,
    texts: int = 300,
    trained: Collection[int] = range(1, 100),
    labels: Sequence[Label] = (),
) -> Evaluation:
    chance = random.Random(0)
    truth = [i % classes for i in range(texts)]
    exits = {
        depth: [t if chance.random() < depth / layers else chance.randrange(classes) for t in truth]
        for depth in range(1, layers + 1)
    }
    depths = [chance.randint(1, layers) for _ in truth]
    predicted = [exits[depth][i] for i, depth in enumerate(depths)]
    named = list(labels) or [f"label number {i}" for i in range(classes)]
    policy = {"name": "confidence", "threshold": 0.9}
    return Evaluation.of(truth, predicted, depths, exits, trained, layers, named, policy)


GROUPS = ("embeddings", *(f"layer-{depth}" for depth in range(1, 7)), "exit-6")


def _history(updates: int = 120, epochs: int = 3, angles: bool = True, groups: Sequence[str] = GROUPS) -> History:
    chance = random.Random(1)
    steps = []
    for step in range(1, updates + 1):
        loss = math.exp(-step / updates) + 0.1 * chance.random()
        angle = chance.gauss(85, 8) if angles else None
        kept = None if angle is None else float(angle <= 90)
        cosines = {name: chance.gauss(place / len(groups) - 0.3, 0.2) for place, name in enumerate(groups)}
        steps.append(
            StepRecord(
                step=step,
                epoch=step * epochs / updates,
                loss=loss,
                parts={"ce": loss, "contrast": 9.0},
                lr=2e-5,
                angle=angle,
                kept=kept,
                main_norm=1.0,
                auxiliary_norm=0.5,
                cosines=cosines if angles else {},
            )
        )
    records = [
        EpochRecord(epoch, epoch * updates // epochs, 0.8 + 0.01 * epoch, "macro_f1", 0.5 / epoch, best=True)
        for epoch in range(1, epochs + 1)
    ]
    return History(steps, records)


def _two_phases(first: int = 40, second: int = 30) -> History:
    """A run of two stages: updates are counted through, epochs anew; three exits learn apart in the second."""
    begin, then = _history(first, 2), _history(second, 3)
    scores = ((0.2, 0.4, 0.6), (0.3, 0.5, 0.9), (0.4, 0.6, 0.5))
    epochs = [
        replace(
            record,
            step=first + record.step,
            score=sum(scores[place]) / 3,
            by_exit={str(depth): score for depth, score in enumerate(scores[place], 1)},
            phase="exits",
        )
        for place, record in enumerate(then.epochs)
    ]
    return History(
        [replace(record, phase="single") for record in begin.steps]
        + [replace(record, step=first + record.step, phase="exits") for record in then.steps],
        [replace(record, by_exit={"4": record.score}, phase="single") for record in begin.epochs] + epochs,
    )


@pytest.fixture(scope="session")
def make_two_phases() -> Callable[..., History]:
    return _two_phases


@pytest.fixture(scope="session")
def make_evaluation() -> Callable[..., Evaluation]:
    return _evaluation


@pytest.fixture(scope="session")
def make_history() -> Callable[..., History]:
    return _history
