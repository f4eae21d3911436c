"""MODEL -> FAST MODEL: what every engine offers, and what all of its exits say of many texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch

from offramp import reading
from offramp.data.sampling import sorted_batches
from offramp.data.tokens import CHUNK, Tokens
from offramp.policies.replay import Pooled
from offramp.runtime.lanes import side_by_side
from offramp.types import Batch, Decision, ExitOutput, Policy

Made = TypeVar("Made")


class Engine(Protocol):
    """A model that is ready to answer."""

    @property
    def name(self) -> str:
        """What it runs on: `torch`, `onnx`, `onnx int8`."""
        ...

    @property
    def depth(self) -> int:
        """How many layers the model has."""
        ...

    @property
    def trained(self) -> tuple[int, ...]:
        """The depths of the exits that a policy may trust."""
        ...

    @property
    def exits(self) -> tuple[int, ...]:
        """The depths of the exits that can answer."""
        ...

    def fingerprint(self) -> str:
        """What tells this model from any other."""
        ...

    def decide(self, batch: Batch, policy: Policy) -> Decision:
        """Run a batch under a policy; the last exit answers whoever did not leave before."""
        ...

    def outputs(self, batch: Batch, depths: Collection[int] | None = None) -> dict[int, ExitOutput]:
        """What the exits at these depths, or all that can answer, say of every text."""
        ...

    def lanes(self) -> AbstractContextManager[tuple[Engine, int]]:
        """This model as several threads may drive it at once, a batch each, and how many of them are worth it."""
        ...


def run(engine: Engine, tokens: Tokens, policy: Policy, batch_size: int) -> Decision:
    """The decisions on texts, or on their words, in their order: texts of like length share a batch."""
    logits: torch.Tensor | None = None
    depths = torch.empty(tokens.answers, dtype=torch.int64)  # (N,)
    for rows, decision in _passes(engine, tokens, batch_size, lambda lane, batch: lane.decide(batch, policy)):
        if logits is None:
            logits = torch.empty(tokens.answers, decision.logits.shape[1])  # (N, C)
        places = torch.from_numpy(tokens.answers_of(rows))
        logits[places] = decision.logits.float().cpu()
        depths[places] = decision.depth.cpu()
    return Decision(torch.empty(0, 0) if logits is None else logits, depths)


def pool(engine: Engine, tokens: Tokens, batch_size: int, depths: Collection[int] | None = None) -> Pooled:
    """What the exits say of all texts, or of their words, in the order of the texts; nobody leaves."""
    order: list[int] = []
    found: dict[int, list[ExitOutput]] = {}
    for rows, outputs in _passes(engine, tokens, batch_size, lambda lane, batch: lane.outputs(batch, depths)):
        order += tokens.answers_of(rows).tolist()
        for depth, output in outputs.items():
            found.setdefault(depth, []).append(output)
    back = torch.tensor(order).argsort()
    return Pooled(
        _narrow(tokens),
        {
            depth: ExitOutput(
                torch.cat([part.representation.float().cpu() for part in parts])[back],
                torch.cat([part.logits.float().cpu() for part in parts])[back],
                parts[0].label_embeddings.detach().float().cpu(),
            )
            for depth, parts in found.items()
        },
    )


def answers(engine: Engine, tokens: Tokens, batch_size: int, sets: bool = False) -> dict[int, list[Any]]:
    """What every exit answers to every text or word, by depth: a class, or of label sets a row of 0 and 1."""
    found: dict[int, list[Any]] = {depth: [None] * tokens.answers for depth in engine.exits}
    for rows, outputs in _passes(engine, tokens, batch_size, lambda lane, batch: lane.outputs(batch)):
        for depth, output in outputs.items():
            given = reading.answers(output.logits, sets).tolist()
            for row, answer in zip(tokens.answers_of(rows).tolist(), given, strict=True):
                found[depth][row] = answer
    return found


def _passes(
    engine: Engine, tokens: Tokens, batch_size: int, work: Callable[[Engine, Batch], Made]
) -> Iterator[tuple[list[int], Made]]:
    """What is made of every batch, with the rows that are in it."""
    batches = list(sorted_batches(tokens.lengths, batch_size))
    if len(batches) < 2:
        yield from ((rows, work(engine, tokens.batch(rows))) for rows in batches)
        return
    with engine.lanes() as (lane, count):
        made = side_by_side(lambda rows: work(lane, tokens.batch(rows)), batches, count)
        yield from zip(batches, made, strict=True)


def _narrow(tokens: Tokens) -> Batch:
    """All texts as one batch, in numbers of 4 bytes and a mask of 1: a whole data set is padded to its longest text."""
    width = int(tokens.lengths.max(initial=0))
    ids = torch.full((len(tokens), width), tokens.pad, dtype=torch.int32)  # (N, T)
    mask = torch.zeros(len(tokens), width, dtype=torch.bool)  # (N, T)
    words = None if tokens.words is None else torch.zeros_like(mask)
    for start in range(0, len(tokens), CHUNK):
        part = tokens.batch(range(start, min(start + CHUNK, len(tokens))))
        here = slice(start, start + len(part)), slice(part.input_ids.shape[1])
        ids[here], mask[here] = part.input_ids.int(), part.mask.bool()
        if words is not None and part.words is not None:
            words[here] = part.words.bool()
    return Batch(ids, mask, words=words)
