"""Time of the second stage: over epochs of the first, and over training each exit on its own without a cache.

The second stage trains all exits below the last for 15 epochs, the caching pass included. The papers' way is one run
per exit, which walks the backbone again in every epoch; its time is measured over fewer epochs and scaled, since its
epochs are all alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.config import load_recipe, override
from offramp.data.tokens import Tokens
from offramp.encoder.load import load_backbone
from offramp.exits.model import build
from offramp.objectives import objective
from offramp.optimise.loop import Loop
from offramp.optimise.strategies import Phase, groups

TEXTS, HELD, EPOCHS, SAMPLED = 5000, 452, 15, 1


@dataclass
class Clock:
    """Notes when phases begin and epochs end."""

    starts: list[float] = field(default_factory=list)
    ends: list[tuple[str, float]] = field(default_factory=list)

    def start(self, updates: int, done: int) -> None:
        self.starts.append(time.perf_counter())

    def step(self, record: Any) -> None:
        pass

    def epoch(self, record: Any) -> None:
        self.ends.append((record.phase, time.perf_counter()))

    def phase(self, number: int, name: str) -> float:
        """Seconds from the beginning of a phase to the end of its last epoch."""
        return max(end for phase, end in self.ends if phase == name) - self.starts[number]


def run() -> list[Ratio]:
    data, labels = tokens(TEXTS + HELD)
    train, held = _part(data, 0, TEXTS), _part(data, TEXTS, TEXTS + HELD)
    config = override(load_recipe("acl-multi-exit"), ["optimise.epochs=1", f"stage2.epochs={EPOCHS}"])
    torch.manual_seed(0)
    model = build(load_backbone("minilm-l6"), labels.names)
    second = objective("acl-cl", temperature=config.stage2.temperature, weight=config.stage2.weight, reduction="mean")
    first = objective("acl", temperature=config.objective.temperature, weight=config.objective.weight)
    clock = Clock()
    Loop(model, first, config, train, held, lambda *_: 0.0, watch=clock, second=second).run()
    stage1, stage2 = clock.phase(0, "single"), clock.phase(1, "exits")
    alone = 0.0
    for depth in range(1, model.depth):
        alone += _alone(model, depth, train, held, second) * EPOCHS / SAMPLED
    detail = {"first stage, one epoch": stage1, "second stage": stage2, "each exit on its own": alone}
    return [
        Ratio(f"{EPOCHS} epochs of all exits over an epoch of stage 1", [stage2 / stage1], 1.5, False, detail),
        Ratio("each exit on its own without a cache over all exits", [alone / stage2], 10.0, True, detail),
    ]


def _alone(model: Any, depth: int, train: Tokens, held: Tokens, second: Any) -> float:
    """Seconds that one exit takes for `SAMPLED` epochs, without a cache."""
    settings = [f"stage2.epochs={SAMPLED}", "stage2.cache_gb=0"]
    config = override(load_recipe("acl-multi-exit"), settings)
    trainable = tuple(model.exits[depth - 1].parameters())
    phase = Phase("exits", (depth,), trainable, groups(model, trainable), frozen=True)
    clock = Clock()
    loop = Loop(model, second, config, train, held, lambda *_: 0.0, watch=clock, second=second)
    loop._phase(phase, None, time.monotonic())
    return clock.phase(0, "exits")


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
