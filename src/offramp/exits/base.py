"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: what every exit offers."""

from __future__ import annotations

from torch import Tensor, nn

from offramp.encoder.windows import first_tokens
from offramp.types import ExitOutput


class Exit(nn.Module):
    """The classifier at a depth: states and mask in, an `ExitOutput` out.

    Only the tokens of a text take part in its answer: neither the padding nor the other texts of the batch. A text of
    several windows is read as a whole.
    """

    window: int = 0  # tokens of a window of a long text; 0: texts have one

    def first(self, states: Tensor, mask: Tensor) -> Tensor:
        """The first token's state, or the mean of those of all windows: (B, T, H) and (B, T) to (B, H)."""
        return first_tokens(states, mask, self.window)

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, D)."""
        raise NotImplementedError

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        raise NotImplementedError

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        """(C, T, H) and (C, T) of the label names to vectors of the label embeddings' space, (C, D).

        Label embeddings lie among the representations, unless an exit says otherwise.
        """
        representation: Tensor = self(states, mask).representation
        return representation
