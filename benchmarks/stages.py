"""The second stage of two: its time over an epoch of the first, and over training each exit on its own without a cache.

The second stage trains all exits below the last, the caching pass included. The papers' way is one run per exit, which
walks the backbone again in every epoch; its time is measured over one epoch per exit and scaled, since its epochs are
all alike. Its quality is measured over all epochs and three seeds, on states in full precision that are walked once and
remembered: a backbone that stands still gives the same ones in every epoch.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.beginning import begin
from offramp.config import load_recipe, override
from offramp.data.labels import Labels
from offramp.data.sampling import sorted_batches
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop
from offramp.optimise.state_cache import Frozen, Lesson
from offramp.optimise.strategies import Phase, groups
from offramp.preparation import first_objective, second_objective
from offramp.types import ExitOutput, States

TEXTS, HELD, TESTED, EPOCHS, SEEDS = 4452, 500, 500, 15, 3


@dataclass
class Clock(Watch):
    """Notes when phases begin and epochs end."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def start(self, updates: int, done: int) -> None:
        self.starts.append(time.perf_counter())

    def epoch(self, record: Any) -> None:
        self.ends.append(time.perf_counter())

    def seconds(self) -> float:
        """From the beginning of the last phase to the end of its last epoch."""
        return self.ends[-1] - self.starts[-1]


class Remembered(Frozen):
    """States in full precision, walked once and held in memory."""

    def __init__(self, frozen: Frozen) -> None:
        super().__init__(frozen.model, frozen.tokens, frozen.depths, frozen.autocast)
        self.states: dict[int, States] = {}  # of one text each, by row
        self.answers: dict[int, tuple[Tensor, Tensor]] = {}
        (self.depth,) = frozen.depths
        for rows in sorted_batches(self.tokens.lengths, 64):
            walked = frozen.lesson(rows)
            for place, row in enumerate(rows):
                mask = walked.states[self.depth].mask[place]  # (T,)
                hidden = walked.states[self.depth].output[place, mask == 1]  # (t, H)
                self.states[row] = States(hidden, hidden, mask[mask == 1])
                self.answers[row] = (walked.teacher.representation[place], walked.teacher.logits[place])

    def lesson(self, rows: Sequence[int]) -> Lesson:
        """What a walk with the batch of these texts would have given."""
        hidden = pad_sequence([self.states[row].output for row in rows], batch_first=True)  # (B, T, H)
        mask = pad_sequence([self.states[row].mask for row in rows], batch_first=True)  # (B, T)
        representation, logits = (torch.stack(part) for part in zip(*(self.answers[row] for row in rows), strict=True))
        embeddings = self.model.exits[-1].label_parameter.detach()
        labels = self.tokens.batch(rows).labels
        assert labels is not None
        teacher = ExitOutput(representation, logits, embeddings)
        return Lesson({self.depth: States(hidden, hidden, mask)}, teacher, labels)


Known = dict[tuple[int, tuple[int, ...]], Remembered]


class Second(Loop):
    """The second stage alone, for some of the exits; with `known`, on remembered states."""

    known: Known | None = None

    def _open_states(self, phase: Phase, stack: ExitStack) -> None:
        super()._open_states(phase, stack)
        if self.known is not None:
            assert self.lessons is not None
            assert self.exam is not None
            self.lessons, self.exam = self._remembered(self.lessons), self._remembered(self.exam)

    def _remembered(self, frozen: Frozen) -> Frozen:
        assert self.known is not None
        place = (id(frozen.tokens), frozen.depths)
        if place not in self.known:
            self.known[place] = Remembered(frozen)
        return self.known[place]


def run() -> list[Ratio]:
    data, labels = tokens(TEXTS + HELD + TESTED)
    train, held = _part(data, 0, TEXTS), _part(data, TEXTS, TEXTS + HELD)
    test = _part(data, TEXTS + HELD, TEXTS + HELD + TESTED)
    config = override(load_recipe("acl-multi-exit"), ["optimise.strategy=single", "optimise.epochs=1"])
    torch.manual_seed(0)
    model, _ = begin(config, labels)
    clock = Clock()
    Loop(model, first_objective(config, labels, []), config, train, held, _accuracy, watch=clock).run()
    stage1 = clock.seconds()
    below = tuple(range(1, model.depth))
    cached, together = _stage2(model, below, train, held, EPOCHS, cache=True)
    walked, _ = _stage2(model, below, train, held, EPOCHS, cache=False)
    same = (_answers(cached, data, below) == _answers(walked, data, below)).all(dim=0).float()  # (N,)
    agreed = {"learnt from": float(same[:TEXTS].mean()), "unseen": float(same[TEXTS:].mean())}
    alone = sum(_stage2(model, (depth,), train, held, 1, cache=False)[1] for depth in below) * EPOCHS
    seconds = {"first stage, one epoch": stage1, "second stage": together, "each exit on its own": alone}

    known: Known = {}
    ours, theirs = [], []
    for seed in range(SEEDS):
        shared, _ = _stage2(model, below, train, held, EPOCHS, cache=True, seed=seed)
        ours.append(mean(_scores(shared, test, below)))
        apart = []
        for depth in below:
            one, _ = _stage2(model, (depth,), train, held, EPOCHS, cache=False, seed=seed, known=known)
            apart += _scores(one, test, (depth,))
        theirs.append(mean(apart))
    spread = max(stdev(ours), stdev(theirs))
    quality = {"together, mean": mean(ours), "on its own, mean": mean(theirs), "standard deviation": spread}
    off = max(0.0, mean(theirs) - mean(ours)) / spread
    return [
        Ratio("share of texts that every exit answers alike, cache or not", [float(same.mean())], 0.999, True, agreed),
        Ratio(f"{EPOCHS} epochs of all exits over an epoch of stage 1", [together / stage1], 1.5, False, seconds),
        Ratio("each exit on its own without a cache over all exits", [alone / together], 10.0, True, seconds),
        Ratio("standard deviations by which all exits are worse than each on its own", [off], 1.0, False, quality),
    ]


def _stage2(
    model: MultiExitModel,
    depths: tuple[int, ...],
    train: Tokens,
    held: Tokens,
    epochs: int,
    cache: bool,
    seed: int = 0,
    known: Known | None = None,
) -> tuple[MultiExitModel, float]:
    """A copy of the model with these exits trained from a start of the seed, and the seconds that took."""
    settings = [
        f"stage2.epochs={epochs}",
        "stage2.least_updates=0",
        f"optimise.seed={seed}",
        *([] if cache else ["stage2.cache_gb=0"]),
    ]
    config = override(load_recipe("acl-multi-exit"), settings)
    mine = copy.deepcopy(model)
    torch.manual_seed(seed)
    labels = Labels(tuple(model.config.labels))
    fresh, _ = begin(config, labels)
    for depth in range(1, model.depth):
        mine.exits[depth - 1].load_state_dict(fresh.exits[depth - 1].state_dict())
    trainable = [parameter for depth in depths for parameter in mine.exits[depth - 1].parameters()]
    phase = Phase("exits", depths, tuple(trainable), groups(mine, trainable), frozen=True)
    clock = Clock()
    first, second = first_objective(config, labels, []), second_objective(config, labels, [])
    loop = Second(mine, first, config, train, held, _accuracy, watch=clock, second=second)
    loop.known = known
    loop.shuffler.manual_seed(seed)
    loop._phase(phase, None, time.monotonic())
    return mine, clock.seconds()


def _scores(model: MultiExitModel, test: Tokens, depths: Sequence[int]) -> list[float]:
    """The accuracy of these exits."""
    right = _answers(model, test, depths) == torch.as_tensor(test.labels)
    return [float(exit.float().mean()) for exit in right]


@torch.inference_mode()
def _answers(model: MultiExitModel, test: Tokens, depths: Sequence[int]) -> Tensor:
    """What these exits say of every text."""
    found = torch.empty(len(depths), len(test), dtype=torch.int64)
    for rows in sorted_batches(test.lengths, 64):
        for depth, output in model.outputs(test.batch(rows), depths).items():
            found[depths.index(depth), torch.tensor(rows)] = output.logits.argmax(dim=1)
    return found


def _accuracy(truth: Sequence[int], found: Sequence[int]) -> float:
    return mean(float(one == other) for one, other in zip(truth, found, strict=True))


def _part(data: Tokens, first: int, last: int) -> Tokens:
    begin, end = int(data.offsets[first]), int(data.offsets[last])
    assert data.labels is not None
    return Tokens(
        ids=data.ids[begin:end],
        offsets=data.offsets[first : last + 1] - begin,
        pad=data.pad,
        types=None if data.types is None else data.types[begin:end],
        labels=data.labels[first:last],
    )
