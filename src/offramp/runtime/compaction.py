"""MODEL -> FAST MODEL: one walk under a policy, whatever runs the layers.

Texts that leave are compacted out of the batch, and what the policy remembers of a text moves along with it. Where
words have tags each word leaves by itself: the exits above do not read it, and its text is compacted out when its last
word has left. Until then all of its tokens go through the layers, because they are what its other words are read by.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from offramp.types import Batch, Decision, ExitOutput, Policy


class Walker(Protocol):
    """A batch on its way through the layers of a model."""

    def advance(self, depth: int, read: bool) -> ExitOutput | None:
        """Run the layers up to this depth, and where it is read the exit there."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these texts, or words, only, trimmed to their longest text."""
        ...


def walk(
    walker: Walker, batch: Batch, policy: Policy, stops: Sequence[int], readable: Collection[int], classes: int
) -> Decision:
    """Where each text, or word, leaves and what it is answered; the exit at the last stop answers whoever is left.

    `stops` are the depths at which the walk halts, `readable` those whose exits a policy may read.
    """
    device = batch.input_ids.device
    count = batch.answers
    logits = torch.empty(count, classes, device=device)  # (B, C)
    depths = torch.empty(count, dtype=torch.int64, device=device)  # (B,)
    rows = torch.arange(count, device=device)  # who is still here
    memory = batch.to_answers(policy.start(batch)).to(device)  # (B, S)
    for depth in stops:
        last = depth == stops[-1]
        output = walker.advance(depth, last or (depth in readable and policy.reads(depth)))
        if output is None:
            continue
        leaving, memory = policy.leave(depth, output, memory)
        if last or bool(leaving.all()):
            logits[rows] = output.logits.to(logits.dtype)
            depths[rows] = depth
            break
        if bool(leaving.any()):
            gone, stay = leaving.nonzero()[:, 0], (~leaving).nonzero()[:, 0]
            logits[rows[gone]] = output.logits[gone].to(logits.dtype)
            depths[rows[gone]] = depth
            rows, memory = rows[stay], memory[stay]
            walker.keep(stay)
    return Decision(logits=logits, depth=depths)
