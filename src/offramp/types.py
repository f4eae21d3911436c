"""The values that flow: from a labelled text to the decision where it leaves.

Letters in the shapes: B texts, T tokens, H hidden, D representation, C classes, L layers. Where words have tags, each
of the W words of a batch takes the place of a text from the exits on: what is said of B texts is said of W words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

Label = str | int
"""A label as the user wrote it; the model keeps the spelling and the type."""


@dataclass(frozen=True, slots=True)
class Example:
    """One text, or a pair of texts, with its label when it has one, or with a set of labels, or a tag for each word."""

    text: str
    pair: str | None = None
    label: Label | None = None
    weight: float = 1.0  # in the cross entropy of training
    labels: tuple[Label, ...] | None = None  # in place of `label`, where each text has a set of them
    words: tuple[str, ...] | None = None  # of the text, in which they stand in this order, where they have tags
    tags: tuple[Label, ...] | None = None  # in place of `label`, one for each word
    original: Example | None = field(default=None, compare=False)  # what it was before noise was put into its text


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens of B texts, padded on the right to the longest of them."""

    input_ids: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) int64, 1 where there is a token
    token_types: Tensor | None = None  # (B, T) int64, for families that have them
    labels: Tensor | None = None  # (B,) int64; of sets (B, C), 1 where a text has a label; of tagged words (W,)
    rows: Tensor | None = None  # (B,) int64, places in the data set
    weights: Tensor | None = None  # (B,) of the texts in the cross entropy; None: all the same
    words: Tensor | None = None  # (B, T), 1 at the first token of a word that is to be tagged; None: texts have labels

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        moved = {
            name: value.to(device)
            for name in ("input_ids", "mask", "token_types", "labels", "rows", "weights", "words")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    @property
    def answers(self) -> int:
        """How many answers are wanted: one for each text, or for each marked word."""
        return len(self) if self.words is None else int(self.words.sum())

    def to_answers(self, of_texts: Tensor) -> Tensor:
        """What is known of each text, (B, ...), at each of its answers: as it is, or for every marked word again."""
        return of_texts if self.words is None else of_texts[self.words.nonzero()[:, 0].to(of_texts.device)]

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])


@dataclass(frozen=True, slots=True)
class States:
    """What a backbone carries from layer to layer, and what an exit may read of it."""

    hidden: Tensor  # (B, T, H), goes into the next layer
    output: Tensor  # (B, T, H), what exits read: `hidden`, normalised where the family does so last
    mask: Tensor  # (B, T) int64
    attention: tuple[Any] | None = None  # what the family made of `mask`; None: to be made again from it
    words: Tensor | None = None  # (B, T), the marks of the words that are still to be tagged; None: texts have labels

    def keep(self, rows: Tensor) -> States:
        """Only these texts, trimmed to the longest of them.

        The family's own mask is dropped, not sliced: the next layer makes it from the 2-D one.
        """
        mask = self.mask[rows]  # (B', T)
        width = int(mask.sum(dim=1).max()) if len(rows) else 0
        hidden = self.hidden[rows, :width]
        output = hidden if self.output is self.hidden else self.output[rows, :width]
        words = None if self.words is None else self.words[rows, :width]
        return States(hidden=hidden, output=output, mask=mask[:, :width], words=words)

    def keep_words(self, rows: Tensor) -> States:
        """Only these of the marked words, counted in reading order; texts that have none of them go.

        Of a text that stays all tokens stay, those of its other words too: they are what the words are read by.
        """
        assert self.words is not None
        left = torch.zeros_like(self.words)  # (B, T)
        left.view(-1)[places_of(self.words)[rows]] = 1
        here = left.any(dim=1)  # (B,)
        marked = replace(self, words=left)
        return marked if bool(here.all()) else marked.keep(here.nonzero()[:, 0])


def places_of(words: Tensor) -> Tensor:
    """The places of the marked words among all B * T tokens, in reading order: (B, T) to (W,)."""
    return words.flatten().nonzero()[:, 0]


@dataclass(frozen=True, slots=True)
class ExitOutput:
    """What the exit at one depth says of B texts, or of W words, text by text and each text from left to right."""

    representation: Tensor  # (B, D), the vector the exit classifies
    logits: Tensor  # (B, C)
    label_embeddings: Tensor  # (C, D), a vector per label: the classifier's weights, or those an exit attends with


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or wider: similarities and log-sum-exps are not taken in less."""
    return tensor if tensor.dtype.itemsize >= 4 else tensor.float()


def directions(vectors: Tensor) -> Tensor:
    """The vectors, (..., D), at length 1 and in float32 or wider; a zero vector has no direction and stays zero."""
    precise = wide(vectors)
    lengths: Tensor = torch.linalg.vector_norm(precise, dim=-1, keepdim=True)  # (..., 1)
    # Dividing a zero vector by a small number instead would make its gradient drown all others.
    return precise / lengths.masked_fill(lengths < 1e-12, 1.0)


@dataclass(frozen=True, slots=True)
class Loss:
    """An objective's value: a main term and, where there is one, an auxiliary term.

    Alignment compares the gradients of the two terms, so they stay apart until the step.
    """

    main: Tensor  # ()
    auxiliary: Tensor | None = None  # ()
    main_weight: float = 1.0
    auxiliary_weight: float = 0.0
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """The weighted sum: what a plain backward pass starts from."""
        main = self.main if self.main_weight == 1.0 else self.main_weight * self.main
        return main if self.auxiliary is None else main + self.auxiliary_weight * self.auxiliary


@dataclass(frozen=True, slots=True)
class Decision:
    """Where each of B texts left, and with which logits."""

    logits: Tensor  # (B, C), of the exit where the text left
    depth: Tensor  # (B,) int64, 1 = after the first layer


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one update of the training loop logged."""

    step: int
    epoch: float
    loss: float
    parts: dict[str, float]
    lr: float
    angle: float | None = None  # degrees between the two terms' gradients
    kept: float | None = None  # share of this update's batches whose auxiliary term was kept
    main_norm: float | None = None
    auxiliary_norm: float | None = None
    cosines: dict[str, float] = field(default_factory=dict)  # between the two gradients, by group of parameters
    phase: str = ""
    texts: int | None = None  # that made the update; None in the log of an older offramp


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """What one pass over the training texts gave on the validation texts."""

    epoch: int
    step: int
    score: float
    metric: str
    loss: float
    best: bool  # its weights are kept: the best so far, or a later one that is worse by no more than noise
    by_exit: dict[str, float] = field(default_factory=dict)  # depth to score
    phase: str = ""
    epochs: int = 0  # that the phase has at most; 0: not known


class Objective(Protocol):
    """A loss: the exit's output and the labels in, a `Loss` out. It never sees a model."""

    @property
    def views(self) -> int:
        """How often each text stands in the batch: all texts in their first view, then all in their second."""
        ...

    @property
    def taught(self) -> bool:
        """Whether it learns from a teacher's output."""
        ...

    def __call__(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; `teacher` is the last exit's output, for objectives that learn from it.

        `weights` (B,) are those of the texts in its cross entropy.
        """
        ...


class Policy(Protocol):
    """When to leave: vectorised over texts, with a state per text that survives compaction."""

    trained_only: bool
    """Whether exits that were not trained are passed by."""

    def reads(self, depth: int) -> bool:
        """Whether the exit at this depth can end the way of a text."""
        ...

    def start(self, batch: Batch) -> Tensor:
        """The state of each text before the first exit, (B, S); S may be 0, and may change from exit to exit."""
        ...

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """Who leaves here, (B,) bool, and everybody's new state, (B, S)."""
        ...
