"""REPRESENTATION, LOGITS -> LOSS: what every objective declares of itself, and what several share."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from offramp.errors import ConfigError
from offramp.types import ExitOutput, Loss


class Term(nn.Module):
    """A loss: hyper-parameters in, tensors in, a `Loss` out. It never sees a model."""

    hyper: ClassVar[tuple[str, ...]] = ()
    """Names of the hyper-parameters its constructor takes."""
    views: ClassVar[int] = 1
    """How often each text stands in the batch: all texts in their first view, then all in their second."""
    taught: ClassVar[bool] = False
    """Whether it learns from a teacher's output."""
    takes_sets: ClassVar[bool] = False
    """Whether `labels` may be sets: (B, C), 1 where a text has a label and 0 where not, in place of (B,)."""

    def forward(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        """The loss of a batch; `weights` (B,) are those of the texts in its cross entropy, where it has one."""
        raise NotImplementedError


def check_teacher(name: str, part: str, student: ExitOutput, teacher: ExitOutput | None) -> ExitOutput:
    """The teacher, whose `part` must have the shape of the student's."""
    if teacher is None:
        raise ConfigError(f"The objective `{name}` should be given a teacher's output. Found none.")
    wanted, found = (tuple(getattr(output, part).shape) for output in (student, teacher))
    if wanted != found:
        raise ConfigError(
            f"The objective `{name}` should have a teacher whose `{part}` has the student's shape, {wanted}. "
            f"Found {found}. Give it the same texts and classes, and an exit of the same kind and size."
        )
    return teacher
