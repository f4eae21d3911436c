"""LOSS -> PARAMETERS: LayerDrop, layers left out at random in training, and some for good afterwards.

In training each layer is left out with probability p, apart from the others and anew in each batch. What is left out
for good is every other layer, or as evenly as `compress.layers` allows; nothing is trained after that.

Reference: Fan et al., Reducing Transformer Depth on Demand with Structured Dropout (2020), sections 3.1 and 3.2.
Differences: they pre-train with it, here the fine-tuning has it; validation runs the layers that will stay, so that
the epoch that is kept is the one that prunes best. They advise p = 1 - layers that stay / layers.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import spread, thinned
from offramp.optimise.stage import FULL, Lessons, Models, Stage, alone, layers
from offramp.optimise.strategies import Phase
from offramp.types import States


class LayerDrop:
    """Lets the states pass by a layer: at random in training, by those that will not stay otherwise."""

    def __init__(self, rate: float, staying: Collection[int]) -> None:
        self.rate, self.staying = rate, staying

    def __call__(self, depth: int, states: States, training: bool) -> Tensor | None:
        """The states themselves, or None where the layer runs."""
        left_out = bool(torch.rand(()) < self.rate) if training else depth not in self.staying
        return states.hidden if left_out else None


def stages(lessons: Lessons) -> list[Stage]:
    """One: all layers are trained, some of them are left."""
    config = lessons.config

    def staying(model: MultiExitModel) -> tuple[int, ...]:
        return spread(layers(config, model.depth), model.depth)

    def phase(model: MultiExitModel, models: Models) -> Phase:
        model.encoder.instead = LayerDrop(config.compress.drop, staying(model))
        return alone(model)

    return [
        Stage(
            "layerdrop",
            config.optimise,
            begin=lambda models: models[FULL],
            phase=phase,
            end=lambda model: thinned(model, staying(model), top=model.depth),
        )
    ]
