"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: what stands between a text's vector and the label embeddings.

    g = 3-layer MLP, ReLU after each hidden layer, as wide as the states

Reference: Zhang et al., Label Anchored Contrastive Learning for Language Understanding, section 2.1, eq. 1; without g,
and g under cross entropy: Table 3.
"""

from __future__ import annotations

from torch import nn

OWN, NONE, MLP = "own", "none", "mlp"
PROJECTIONS = (OWN, NONE, MLP)
"""Of a `linear` or `match` exit: its own, that is BERT's pooler or LaCon's g; none; or g in any case."""


class Projection(nn.Sequential):
    """LaCon's projection head g."""

    layers = 3

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
