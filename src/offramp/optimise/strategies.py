"""LOSS -> PARAMETERS: strategies, the plans for the one loop.

A strategy is a list of phases; a phase says which exits are in play and which parameters learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    groups: tuple[str, ...] = ()  # of each trainable parameter: embeddings, layer-1, ..., exit-1, ...


def single(model: MultiExitModel) -> list[Phase]:
    """The backbone and the last exit, as fine-tuning usually goes."""
    last = model.depth
    trainable = [*model.encoder.parameters(), *model.exits[last - 1].parameters()]
    return [Phase("single", (last,), tuple(trainable), groups(model, trainable))]


def groups(model: MultiExitModel, parameters: Iterable[nn.Parameter]) -> tuple[str, ...]:
    """For each parameter, the part of the model it belongs to: `embeddings`, `layer-1` and on, `exit-1` and on."""
    layers = model.encoder.family.layers(model.encoder.backbone)
    parts = {f"layer-{depth}": layer for depth, layer in enumerate(layers, 1)}
    parts |= {f"exit-{depth}": exit for depth, exit in enumerate(model.exits, 1)}
    names = {id(parameter): name for name, part in parts.items() for parameter in part.parameters()}
    # What is left are the embeddings and what some families have around their layers.
    return tuple(names.get(id(parameter), "embeddings") for parameter in parameters)


STRATEGIES: dict[str, Callable[[MultiExitModel], list[Phase]]] = {"single": single}


def plan(strategy: str, model: MultiExitModel) -> list[Phase]:
    """The phases of the strategy of this name."""
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return STRATEGIES[strategy](model)
