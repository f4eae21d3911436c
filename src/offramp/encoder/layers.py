"""TOKENS -> LAYER STATES: the only walk through a backbone's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from offramp.encoder.families import FAMILIES, Family
from offramp.encoder.windows import fold, folded, many, unfold
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
        self.window = 0  # tokens of a window of a long text; 0: texts have one

    def embed(self, batch: Batch) -> States:
        """The states below the first layer."""
        width = batch.input_ids.shape[1]
        if many(width, self.window):
            pad = getattr(self.backbone.config, "pad_token_id", None) or 0
            inside, present = folded(batch, self.window, pad)
            hidden = unfold(self.family.embed(self.backbone, inside), present, len(batch), width)  # (B, T, H)
        else:
            hidden = self.family.embed(self.backbone, batch)  # (B, T, H)
        return States(hidden=hidden, output=hidden, mask=batch.mask, words=batch.words)

    def step(self, depth: int, states: States) -> States:
        """The states after the layer at `depth`; 1 is the first layer."""
        if many(states.hidden.shape[1], self.window):
            return self._step_in_windows(depth, states)
        # In a one-tuple, because None is also Hugging Face's word for "nothing is masked".
        made = states.attention or (self.family.attention(self.backbone, states.hidden, states.mask),)
        hidden = self.instead(depth, states, self.training) if self.instead else None
        if hidden is None:
            hidden = self.family.layer(self.backbone, depth - 1, states.hidden, states.mask, made[0])
        return States(hidden, self.family.output(self.backbone, hidden), states.mask, made, states.words)

    def _step_in_windows(self, depth: int, states: States) -> States:
        """The layer over each window that holds tokens, as if it were a text."""
        texts, width = states.mask.shape
        mask = fold(states.mask, self.window)  # (B * K, window)
        present = mask.any(dim=1)  # (B * K,)
        hidden, mask = fold(states.hidden, self.window)[present], mask[present]
        made = states.attention or (self.family.attention(self.backbone, hidden, mask),)
        above = self.family.layer(self.backbone, depth - 1, hidden, mask, made[0])
        whole = unfold(above, present, texts, width)  # (B, T, H)
        return States(whole, self.family.output(self.backbone, whole), states.mask, made)
