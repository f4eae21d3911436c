"""LOSS -> PARAMETERS: strategies, the plans for the one loop.

A strategy is a list of phases; a phase says which exits are in play, which parameters learn, and what stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from offramp.config import OptimiseConfig
from offramp.errors import ConfigError, unknown_name
from offramp.exits.model import MultiExitModel
from offramp.types import Batch, Loss


@dataclass(frozen=True)
class Phase:
    """One stretch of training."""

    name: str
    exits: tuple[int, ...]  # depths whose losses are summed
    trainable: tuple[nn.Parameter, ...]
    groups: tuple[str, ...] = ()  # of each trainable parameter: embeddings, layer-1, ..., exit-1, ...
    weights: tuple[float, ...] = ()  # of the exits' losses; empty: 1 each
    turns: tuple[tuple[int, ...], ...] = ()  # exits that take turns; empty: `exits`, always
    unit: str = "epoch"  # of a turn: epoch or step
    frozen: bool = False  # the backbone and the last exit stand still, and the exits below learn apart from each other
    loss: Callable[[MultiExitModel, Batch], Loss] | None = None  # of a batch, in place of the objective at the exits
    before: Callable[[float], None] | None = None  # told before each update which share of the updates is done
    newest: bool = False  # the last epoch's weights are kept, whatever its score

    @property
    def apart(self) -> tuple[str, ...]:
        """Of each trainable parameter, the part that learns as if it were alone; empty where all learn together."""
        return self.groups if self.frozen else ()

    def turn(self, epoch: int, step: int) -> Phase:
        """The phase with the exits that are in play at this epoch and update, both counted from 0."""
        if not self.turns:
            return self
        exits = self.turns[(epoch if self.unit == "epoch" else step) % len(self.turns)]
        weights = weighing([self.weight(depth) for depth in exits]) if self.weights else ()
        return replace(self, exits=exits, weights=weights)

    def in_play(self, epochs: int, updates: int) -> tuple[int, ...]:
        """The exits that have been in play after so many epochs and updates."""
        turns = self.turns[: epochs if self.unit == "epoch" else updates] or (self.exits,)
        return tuple(depth for depth in self.exits if any(depth in turn for turn in turns))

    def within(self, epochs: int, updates: int) -> Phase:
        """The phase with the exits that come into play in so many epochs and updates."""
        exits = self.in_play(epochs, updates)
        return replace(self, exits=exits, weights=tuple(map(self.weight, exits)) if self.weights else ())

    def weight(self, depth: int) -> float:
        """The weight of the loss at this depth."""
        return self.weights[self.exits.index(depth)] if self.weights else 1.0


def single(model: MultiExitModel, config: OptimiseConfig) -> list[Phase]:
    """The backbone and the last exit, as fine-tuning usually goes."""
    last = model.depth
    trainable = [*model.encoder.parameters(), *model.exits[last - 1].parameters()]
    return [Phase("single", (last,), tuple(trainable), groups(model, trainable))]


def joint(model: MultiExitModel, config: OptimiseConfig) -> list[Phase]:
    """JT: the backbone and all exits, with the sum of all exits' losses."""
    return [_all("joint", model, config)]


def alternating(model: MultiExitModel, config: OptimiseConfig) -> list[Phase]:
    """ALT: the last exit's loss and all exits' losses in turn, by epoch or by update."""
    exits = tuple(range(1, model.depth + 1))
    return [_all("alternating", model, config, turns=((model.depth,), exits), unit=config.unit)]


def two_stage(model: MultiExitModel, config: OptimiseConfig) -> list[Phase]:
    """2ST: as `single`; then the exits below the last, on the backbone that stands still."""
    return [*single(model, config), *grow(model, config)] if model.depth > 1 else single(model, config)


def grow(model: MultiExitModel, config: OptimiseConfig) -> list[Phase]:
    """The exits below the last, on a backbone and a last exit that have learnt already and stand still."""
    if model.depth < 2:
        raise ConfigError("Exits should be grown on a backbone of two layers or more. Found one.")
    below = tuple(range(1, model.depth))
    trainable = [parameter for depth in below for parameter in model.exits[depth - 1].parameters()]
    return [Phase("exits", below, tuple(trainable), groups(model, trainable), frozen=True)]


STRATEGIES: dict[str, Callable[[MultiExitModel, OptimiseConfig], list[Phase]]] = {
    "single": single,
    "joint": joint,
    "two-stage": two_stage,
    "alternating": alternating,
    "grow": grow,
}


def plan(strategy: str, model: MultiExitModel, config: OptimiseConfig | None = None) -> list[Phase]:
    """The phases of the strategy of this name."""
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    return STRATEGIES[strategy](model, config or OptimiseConfig())


def groups(model: MultiExitModel, parameters: Iterable[nn.Parameter]) -> tuple[str, ...]:
    """For each parameter, the part of the model it belongs to: `embeddings`, `layer-1` and on, `exit-1` and on."""
    layers = model.encoder.family.layers(model.encoder.backbone)
    parts = {f"layer-{depth}": layer for depth, layer in enumerate(layers, 1)}
    parts |= {f"exit-{depth}": exit for depth, exit in enumerate(model.exits, 1)}
    names = {id(parameter): name for name, part in parts.items() for parameter in part.parameters()}
    # What is left are the embeddings and what some families have around their layers.
    return tuple(names.get(id(parameter), "embeddings") for parameter in parameters)


def weighing(shares: Sequence[float]) -> tuple[float, ...]:
    """Weights in these proportions, 1 in the mean: an exit alone has 1."""
    mean = sum(shares) / len(shares)
    return tuple(share / mean for share in shares)


def _all(
    name: str,
    model: MultiExitModel,
    config: OptimiseConfig,
    turns: tuple[tuple[int, ...], ...] = (),
    unit: str = "epoch",
) -> Phase:
    exits = tuple(range(1, model.depth + 1))
    trainable = [*model.encoder.parameters(), *model.exits.parameters()]
    weights = weighing(exits) if config.depth_weights == "depth" else ()
    return Phase(name, exits, tuple(trainable), groups(model, trainable), weights, turns, unit)
