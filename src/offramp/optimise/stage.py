"""LOSS -> PARAMETERS: what a method that makes a smaller model is made of.

A method is a list of stages, each of which is one phase of the one loop on one model. Between two stages the structure
of the model may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offramp.config import Config, OptimiseConfig
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import spread, thinned
from offramp.objectives.base import Term
from offramp.optimise.strategies import Phase, single

FULL = "full"
"""The stage that trains the full model, and the model that a method begins with."""

Models = Mapping[str, MultiExitModel]
"""The models that stand still: `FULL`, and those of the stages before this one, by their names."""


@dataclass(frozen=True)
class Stage:
    """One training on the way to a smaller model."""

    name: str
    settings: OptimiseConfig
    begin: Callable[[Models], MultiExitModel]  # a model that may change, from those that stand still
    phase: Callable[[MultiExitModel, Models], Phase] = lambda model, _: alone(model)
    end: Callable[[MultiExitModel], MultiExitModel] = lambda model: model  # what is left of the trained one


@dataclass(frozen=True)
class Lessons:
    """What a method may look at when it makes its stages."""

    config: Config
    objective: Term
    train: Tokens


def alone(model: MultiExitModel) -> Phase:
    """The backbone and the last exit, as in any fine-tuning."""
    return single(model, OptimiseConfig())[0]


def full(config: Config) -> list[Stage]:
    """The stage that trains the full model, unless a trained one is given."""
    return [] if config.compress.teacher else [Stage(FULL, config.optimise, lambda models: models[FULL])]


def layers(config: Config, depth: int) -> int:
    """How many of `depth` layers are to stay."""
    return config.compress.layers or max(1, depth // 2)


def student(config: Config, model: MultiExitModel) -> MultiExitModel:
    """A copy of every other layer of the full model, or as evenly as can be, with its embeddings and its last exit."""
    return thinned(model, spread(layers(config, model.depth), model.depth), top=model.depth)
