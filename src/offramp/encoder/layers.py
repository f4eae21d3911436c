"""TOKENS -> LAYER STATES: the only walk through a backbone's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from offramp.encoder.families import FAMILIES, Family
from offramp.errors import ModelError
from offramp.types import Batch, States

Instead = Callable[[int, States, bool], Tensor | None]
"""What may take the place of a layer: its depth, the states below it and whether the model is being trained, to the
hidden states above it, (B, T, H), or to None for the layer itself."""


def family_of(config: PreTrainedConfig) -> Family:
    """The family a backbone belongs to, by its configuration."""
    if config.model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelError(f"The backbone should be of a known family ({known}). Found `{config.model_type}`.")
    return FAMILIES[config.model_type]


class Encoder(nn.Module):
    """A backbone as `embed` and `step`.

    `step` takes the mask inside the states. The family's own mask travels along and is made again
    from the 2-D one after a compaction, so that it is built once per shape and never sliced.
    """

    def __init__(self, backbone: PreTrainedModel) -> None:
        super().__init__()
        self.family = family_of(backbone.config)
        self.backbone: Any = backbone
        self.depth = len(self.family.layers(backbone))
        self.hidden_size = int(backbone.config.hidden_size)
        self.instead: Instead | None = None

    def embed(self, batch: Batch) -> States:
        """The states below the first layer."""
        hidden = self.family.embed(self.backbone, batch)  # (B, T, H)
        return States(hidden=hidden, output=hidden, mask=batch.mask)

    def step(self, depth: int, states: States) -> States:
        """The states after the layer at `depth`; 1 is the first layer."""
        # In a one-tuple, because None is also Hugging Face's word for "nothing is masked".
        made = states.attention or (self.family.attention(self.backbone, states.hidden, states.mask),)
        hidden = self.instead(depth, states, self.training) if self.instead else None
        if hidden is None:
            hidden = self.family.layer(self.backbone, depth - 1, states.hidden, states.mask, made[0])
        return States(hidden, self.family.output(self.backbone, hidden), states.mask, made)
