"""LOSS -> PARAMETERS: strategies, the plans for the one loop.

A strategy is a list of phases; a phase says which exits are in play and which parameters learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from offramp.errors import unknown_name
from offramp.exits.model import MultiExitModel


@dataclass(frozen=True)
class Phase:
    """One stretch of training."""

    name: str
    exits: tuple[int, ...]  # depths whose losses are summed
    trainable: tuple[nn.Parameter, ...]


def single(model: MultiExitModel) -> list[Phase]:
    """The backbone and the last exit, as fine-tuning usually goes."""
    last = model.depth
    trainable = [*model.encoder.parameters(), *model.exits[last - 1].parameters()]
    return [Phase("single", (last,), tuple(trainable))]


STRATEGIES: dict[str, Callable[[MultiExitModel], list[Phase]]] = {"single": single}


def plan(strategy: str, model: MultiExitModel) -> list[Phase]:
    """The phases of the strategy of this name."""
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return STRATEGIES[strategy](model)
