"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the linear exit.

The classification head Hugging Face puts on the family: the first token's state, a dense layer with
the family's activation (BERT's pooler), dropout, and a linear layer.

    h = dropout(act(P s_first + p)),   logits = h W + b

With `projection = none` there is no dense layer, with `projection = mlp` LaCon's g stands in its place.
With `reads = mean`, the mean of all states stands in the place of s_first, centred and of length sqrt(H).

Where words have tags, s is the state of each word's first token.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers.activations import ACT2FN

from offramp.exits.base import MEAN, Exit, of_words
from offramp.exits.mean import even
from offramp.exits.projection import MLP, OWN, Projection
from offramp.types import ExitOutput


class LinearExit(Exit):
    """First token or mean, pooler where the family has one, linear."""

    apart_from = 1

    def __init__(
        self, hidden: int, classes: int, dropout: float, activation: str | None, projection: str = OWN
    ) -> None:
        super().__init__()
        activation = activation if projection == OWN else None
        dense = nn.Linear(hidden, hidden) if activation else None
        self.pool = Projection(hidden) if projection == MLP else dense
        self.activation = ACT2FN[activation] if activation else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, classes)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.classifier.weight

    def forward(self, states: Tensor, mask: Tensor, words: Tensor | None = None) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output; with marks of words, (B, T), to that of the W marked words."""
        if words is not None:
            return of_words(self.every_token(states, mask), words)
        return self._read(self.one_vector(states, mask))

    def every_token(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """What it says at every token: a representation of (B, T, H) and logits of (B, T, C)."""
        # In two dimensions, as the first tokens are: an exported exit is then not taken for a layer.
        tokens = even(states) if self.reads == MEAN else states
        flat, shape = self._read(tokens.flatten(0, 1)), mask.shape
        return ExitOutput(
            flat.representation.unflatten(0, shape), flat.logits.unflatten(0, shape), flat.label_embeddings
        )

    def _read(self, tokens: Tensor) -> ExitOutput:
        pooled = tokens if self.pool is None else self.activation(self.pool(tokens))
        representation = self.dropout(pooled)  # (B, H)
        return ExitOutput(representation, self.classifier(representation), self.classifier.weight)
