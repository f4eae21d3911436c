"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: a model with some of another's layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from offramp.errors import ConfigError
from offramp.exits.model import MultiExitModel

_DEPTH = ("num_hidden_layers", "n_layers", "layer_types")
"""Fields in which backbones tell their layers."""


def spread(layers: int, depth: int) -> tuple[int, ...]:
    """So many of `depth` layers, as evenly as can be, the first among them.

    >>> spread(3, 6), spread(4, 6)
    ((1, 3, 5), (1, 2, 4, 5))
    """
    return tuple(place * depth // layers + 1 for place in range(layers))


def modules(layers: int, depth: int) -> tuple[tuple[int, ...], ...]:
    """For each of so many layers, those of `depth` that it stands for.

    >>> modules(3, 6), modules(2, 5)
    (((1, 2), (3, 4), (5, 6)), ((1, 2), (3, 4, 5)))
    """
    ends = [place * depth // layers for place in range(layers + 1)]
    return tuple(tuple(range(low + 1, high + 1)) for low, high in pairwise(ends))


def thinned(model: MultiExitModel, depths: Sequence[int], top: int) -> MultiExitModel:
    """A model of its own with copies of the layers at these depths, and of the exit at depth `top` as its last."""
    known = range(1, model.depth + 1)
    # The first layer is built in its own way in some families.
    if list(depths) != sorted({1, *depths}) or not {*depths, top} <= set(known):
        raise ConfigError(
            f"The layers that stay should be 1 and others up to {model.depth}, in order. Found {list(depths)}."
        )
    made = copy.deepcopy(model)
    backbone, encoder = made.encoder.backbone, made.encoder
    layers = encoder.family.layers(backbone)
    for depth in reversed(known):
        if depth not in depths:
            del layers[depth - 1]
    backbone.config.num_hidden_layers = encoder.depth = len(layers)
    if getattr(backbone.config, "layer_types", None):
        backbone.config.layer_types = [backbone.config.layer_types[depth - 1] for depth in depths]
    made.exits = nn.ModuleList([made.exits[depth - 1] for depth in (*depths[:-1], top)])
    config, heads = made.config, model.config.layer_heads
    config.last_kind = config.last_kind if top == model.depth else config.exit_kind
    told = {name: value for name, value in backbone.config.to_dict().items() if name in _DEPTH}
    config.backbone = {**config.backbone, **told}
    config.layer_heads = [heads[depth - 1] for depth in depths] if heads else []
    config.trained_exits = [made.depth] if top in model.config.trained_exits else []
    return made
