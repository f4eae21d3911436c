"""MODEL -> FAST MODEL: batched early exit in torch.

Texts that leave are compacted out of the batch, the rest are trimmed to their longest, and what the
policy remembers of a text moves along. Whoever shares a batch, a text gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import torch

from offramp.exits.model import MultiExitModel
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


@torch.inference_mode()
def decide(model: MultiExitModel, batch: Batch, policy: Policy) -> Decision:
    """Run a batch under a policy; the last exit answers whoever did not leave before."""
    every = range(1, model.depth + 1)
    exits = set(model.config.trained_exits if policy.trained_only else every) or set(every)
    logits = torch.empty(len(batch), len(model.config.labels), device=batch.input_ids.device)  # (B, C)
    depths = torch.empty(len(batch), dtype=torch.int64, device=batch.input_ids.device)  # (B,)
    rows = torch.arange(len(batch), device=batch.input_ids.device)  # who is still here
    memory = policy.start(batch).to(batch.input_ids.device)  # (B, S)
    states = model.encoder.embed(batch)
    for depth in every:
        states = model.encoder.step(depth, states)
        last = depth == model.depth
        if not last and not (depth in exits and policy.reads(depth)):
            continue
        output = model.read(depth, states)
        leaving, memory = policy.leave(depth, output, memory)
        if last or bool(leaving.all()):
            logits[rows] = output.logits.to(logits.dtype)
            depths[rows] = depth
            break
        if bool(leaving.any()):
            gone, stay = leaving.nonzero()[:, 0], (~leaving).nonzero()[:, 0]
            logits[rows[gone]] = output.logits[gone].to(logits.dtype)
            depths[rows[gone]] = depth
            rows, memory, states = rows[stay], memory[stay], states.keep(stay)
    return Decision(logits=logits, depth=depths)
