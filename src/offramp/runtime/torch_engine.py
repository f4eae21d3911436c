"""MODEL -> FAST MODEL: batched early exit in torch. Whoever shares a batch, a text gets the same answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.exits.base import FIRST
from offramp.exits.model import MultiExitModel
from offramp.exits.projection import OWN
from offramp.reading import SET, TAGS
from offramp.runtime.compaction import walk
from offramp.runtime.lanes import one_thread_each
from offramp.types import Batch, Decision, ExitOutput, Policy


class TorchEngine:
    """A model in torch, on whatever device it lies."""

    name = "torch"

    def __init__(self, model: MultiExitModel) -> None:
        self.model = model

    @property
    def depth(self) -> int:
        """How many layers the model has."""
        return self.model.depth

    @property
    def trained(self) -> tuple[int, ...]:
        """The depths of the exits that were trained."""
        return tuple(self.model.config.trained_exits)

    @property
    def exits(self) -> tuple[int, ...]:
        """Every depth."""
        return tuple(range(1, self.model.depth + 1))

    def fingerprint(self) -> str:
        """A hash of the weights and of what they are used for."""
        config = self.model.config
        # The last three change what an exit says of the same weights.
        facts = [config.labels, config.max_tokens, config.trained_exits, config.exit_kind]
        facts += [config.exit_heads, config.exit_temperature, config.exit_window]
        facts += [] if config.windows == 1 else [config.windows, config.overlap]
        facts += [SET] if config.sets else []
        facts += [TAGS] if config.tags else []
        facts += [] if config.last_kind == config.exit_kind else [config.last_kind]
        facts += [] if config.exit_reads == FIRST else [config.exit_reads]
        facts += [] if config.exit_projection == OWN else [config.exit_projection]
        found = hashlib.sha256(json.dumps(facts).encode())
        for name, tensor in self.model.state_dict().items():
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return found.hexdigest()

    def decide(self, batch: Batch, policy: Policy) -> Decision:
        """Run a batch under a policy."""
        return decide(self.model, batch.to(self.model.device), policy)

    @torch.inference_mode()
    def outputs(self, batch: Batch, depths: Collection[int] | None = None) -> dict[int, ExitOutput]:
        """What the exits at these depths, or all, say of every text."""
        return self.model.outputs(batch.to(self.model.device), depths)

    @contextmanager
    def lanes(self) -> Iterator[tuple[TorchEngine, int]]:
        """A batch for each of the cores that an operator had; a GPU takes one after the other."""
        if self.model.device.type != "cpu":
            yield self, 1
            return
        with one_thread_each() as cores:
            yield self, cores


def set_threads(threads: int) -> None:
    """How many threads torch uses, in this process."""
    if threads < 1:
        raise ConfigError(f"`threads` should be at least 1. Found {threads}.")
    torch.set_num_threads(threads)


@torch.inference_mode()
def decide(model: MultiExitModel, batch: Batch, policy: Policy) -> Decision:
    """Run a batch under a policy; the last exit answers whoever did not leave before."""
    every = range(1, model.depth + 1)
    exits = set(model.config.trained_exits if policy.trained_only else every) or set(every)
    return walk(_Layers(model, batch), batch, policy, every, exits, len(model.config.labels))


class _Layers:
    """A batch on its way through the layers."""

    def __init__(self, model: MultiExitModel, batch: Batch) -> None:
        self.model, self.states = model, model.encoder.embed(batch)

    def advance(self, depth: int, read: bool) -> ExitOutput | None:
        self.states = self.model.encoder.step(depth, self.states)
        return self.model.read(depth, self.states) if read else None

    def keep(self, rows: Tensor) -> None:
        self.states = self.states.keep(rows) if self.states.words is None else self.states.keep_words(rows)
