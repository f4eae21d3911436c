"""LOSS -> PARAMETERS: several exits of one kind read in one pass.

Exits below the last are small, and a Python loop over them spends its time between the operations. Their parameters are
stacked and the exit is mapped over the stack; a dropout mask is drawn once and serves all of them, each of which learns
apart from the others. On a CPU, which begins an operation at once, that does not pay for every kind of exit: one that
classifies one vector of a text has so few operations that to stack its parameters takes longer, and the convolutions of
label attention are faster apart, at the latest in larger batches. There they are read one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.types import ExitOutput, States


def read_below(model: MultiExitModel, states: dict[int, States], depths: Sequence[int]) -> dict[int, ExitOutput]:
    """What the exits at these depths say of the states at their depths, in the way that is the faster one."""
    mould, seen = cast(Exit, model.exits[depths[0] - 1]), states[depths[0]]
    worth = mould.apart_from and len(seen.mask) >= mould.apart_from
    if worth and seen.words is None and seen.output.device.type == "cpu":
        return {depth: model.read(depth, states[depth]) for depth in depths}
    return read_together(model, states, depths)


def read_together(model: MultiExitModel, states: dict[int, States], depths: Sequence[int]) -> dict[int, ExitOutput]:
    """What the exits at these depths say of the states at their depths; gradients reach each exit's own parameters."""
    exits = [cast(Exit, model.exits[depth - 1]) for depth in depths]
    mould = exits[0]
    named = [dict(exit.named_parameters()) for exit in exits]
    stacked = {name: torch.stack([parameters[name] for parameters in named]) for name in named[0]}  # (E, ...)
    hidden = torch.stack([states[depth].output for depth in depths])  # (E, B, T, H)
    mask, words = states[depths[0]].mask, states[depths[0]].words  # (B, T)
    given = (mask,) if words is None else (mask, words)

    def one(parameters: dict[str, Tensor], seen: Tensor) -> tuple[Tensor, Tensor]:
        output: ExitOutput = functional_call(mould, parameters, (seen, *given))
        return output.representation, output.logits

    # Fused attention cannot be mapped; the exits' is small.
    with sdpa_kernel(SDPBackend.MATH):
        representation, logits = vmap(one, randomness="same")(stacked, hidden)  # (E, B, D), (E, B, C)
    return {
        depth: ExitOutput(representation[place], logits[place], exits[place].label_parameter)
        for place, depth in enumerate(depths)
    }
