"""An update of the second stage with the exits read in the way it reads them, over the other way.

There are two: all exits mapped over their stacked parameters, or one exit after the other in a Python loop. Both have
the same cached states and the same objective; they alternate, batch by batch, and take turns in beginning. What is
timed is what differs: the exits' forward pass, their losses and the backward pass.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import torch

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.beginning import begin
from offramp.config import load_recipe, override
from offramp.data.sampling import length_buckets
from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.objectives.base import Term
from offramp.optimise.exits_together import read_together
from offramp.optimise.state_cache import Lesson, Room, open_cache
from offramp.preparation import second_objective
from offramp.types import ExitOutput

TEXTS, BATCHES, ROUNDS = 1920, (16, 64), 3
WAYS = ("one after the other", "all together")
KINDS = ("linear", "match", "mha", "residual", "fusion", "leam", "lsan")

Reads = Callable[[MultiExitModel, Lesson], dict[int, ExitOutput]]


def run() -> list[Ratio]:
    return [ratio for kind in KINDS for ratio in _of_kind(kind)]


def _of_kind(kind: str) -> list[Ratio]:
    data, labels = tokens(TEXTS)
    config = override(load_recipe("acl-multi-exit"), [f"exits.kind={kind}"])
    torch.manual_seed(0)
    model, _ = begin(config, labels)
    below = tuple(range(1, model.depth))
    objective = second_objective(config, labels, [])
    model.train(False)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        lessons = open_cache(Path(folder), model, data, below, nullcontext, Room(1e12))
        for depth in below:
            model.exits[depth - 1].train()
        for size in BATCHES:
            rows = length_buckets(data.lengths, size, torch.Generator().manual_seed(0))
            many = len(rows) // ROUNDS
            rounds = [_round(model, objective, lessons.lesson, rows[n * many : (n + 1) * many]) for n in range(ROUNDS)]
            apart_from = cast(Exit, model.exits[0]).apart_from
            other, own = WAYS[::-1] if apart_from and size >= apart_from else WAYS
            rounds = [1 / found for found in rounds] if own == WAYS[0] else rounds
            what = f"five `{kind}` exits {other} over {own}, batch {size}"
            found.append(Ratio(what, rounds, 1.0, at_least=True))
    return found


def _round(
    model: MultiExitModel, objective: Term, lesson: Callable[[list[int]], Lesson], batches: list[list[int]]
) -> float:
    """The time of the loop over that of all together, over some batches after a first one of each."""
    spent = {_one_by_one: 0.0, _together: 0.0}
    for number, rows in enumerate([batches[0], *batches]):
        given = lesson(rows)
        for reads in list(spent)[:: 1 if number % 2 else -1]:
            seconds = _update(model, objective, given, reads)
            spent[reads] += seconds if number else 0.0
    return spent[_one_by_one] / spent[_together]


def _update(model: MultiExitModel, objective: Term, given: Lesson, reads: Reads) -> float:
    model.zero_grad()
    start = time.perf_counter()
    outputs = reads(model, given)
    total = torch.stack([objective(output, given.labels, given.teacher).total for output in outputs.values()]).sum()
    total.backward()
    return time.perf_counter() - start


def _together(model: MultiExitModel, given: Lesson) -> dict[int, ExitOutput]:
    return read_together(model, given.states, list(given.states))


def _one_by_one(model: MultiExitModel, given: Lesson) -> dict[int, ExitOutput]:
    return {depth: model.read(depth, states) for depth, states in given.states.items()}
