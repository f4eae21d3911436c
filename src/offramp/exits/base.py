"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: what every exit offers."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from offramp.encoder.windows import first_tokens
from offramp.exits.mean import even, token_mean
from offramp.types import ExitOutput, places_of

FIRST, MEAN = "first", "mean"
"""What a `linear` or `match` exit reads of a text: its first token's state, or the mean of all of them."""


class Exit(nn.Module):
    """The classifier at a depth: states and mask in, an `ExitOutput` out.

    Only the tokens of a text take part in its answer: neither the padding nor the other texts of the batch. A text of
    several windows is read as a whole.

    Where words have tags, an exit that has `every_token` takes the marks of words as a third input and reads these
    words in place of the texts: its parameters are the same, only where it reads is another.
    """

    window: int = 0  # tokens of a window of a long text; 0: texts have one
    reads: str = FIRST  # what stands for a text, in an exit that classifies one vector of it
    apart_from: ClassVar[int] = 0
    """Texts in a batch from which, on a CPU, several exits of the kind are read faster one after the other than
    together, as `python -m benchmarks exits` measures it; 0: always together.
    """

    def one_vector(self, states: Tensor, mask: Tensor) -> Tensor:
        """What stands for each text, (B, T, H) and (B, T) to (B, H)."""
        return even(token_mean(states, mask)) if self.reads == MEAN else self.first(states, mask)

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

    def every_token(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """What it says at every token: a representation of (B, T, D) and logits of (B, T, C)."""
        raise NotImplementedError

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        """(C, T, H) and (C, T) of the label names to vectors of the label embeddings' space, (C, D).

        Label embeddings lie among the representations, unless an exit says otherwise.
        """
        representation: Tensor = self(states, mask).representation
        return representation


def of_words(every: ExitOutput, words: Tensor) -> ExitOutput:
    """What an exit says of the marked words, (B, T), from what it says at every token."""
    places = places_of(words)  # (W,)
    representation, logits = (part.flatten(0, 1)[places] for part in (every.representation, every.logits))
    return ExitOutput(representation, logits, every.label_embeddings)
