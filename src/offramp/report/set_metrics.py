"""DECISIONS -> NUMBERS, PICTURES: the scores of an evaluation where each text has a set of labels.

Letters in the shapes: B texts, C labels. Truth and answers are rows of 0 and 1, (B, C).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from offramp.errors import DataError, unknown_name
from offramp.report.metrics import where_left

if TYPE_CHECKING:
    from offramp.types import Label

Rows = Sequence[Sequence[int]]
SHOWN: dict[str, str] = {
    "accuracy": "subset accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_loss": "Hamming loss",
}
"""The scores of a table, each with its heading."""


@dataclass(frozen=True, slots=True)
class SetScores:
    """How well n sets of labels agree with the true ones."""

    accuracy: float  # share of the texts whose whole set is right
    micro_f1: float
    macro_f1: float
    hamming_loss: float  # share of all decisions, text by label, that are wrong
    n: int

    def value(self, name: str) -> float:
        """One score: `accuracy`, `micro_f1` or `macro_f1`."""
        known = ("accuracy", "micro_f1", "macro_f1")
        if name not in known:
            raise unknown_name("score of label sets", name, known)
        return float(getattr(self, name))


@dataclass(frozen=True, slots=True)
class SetExitScore:
    """The scores of one exit, had every text left there."""

    depth: int
    accuracy: float
    micro_f1: float
    macro_f1: float
    hamming_loss: float
    trained: bool


@dataclass(frozen=True, slots=True)
class LabelScore:
    """How well one label was told."""

    label: Label
    texts: int  # that have it
    given: int  # that were given it
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class SetEvaluation:
    """What a model and its policy made of n texts with sets of labels."""

    shown: ClassVar[dict[str, str]] = SHOWN
    n: int
    accuracy: float
    micro_f1: float
    macro_f1: float
    hamming_loss: float
    mean_depth: float
    depths: dict[int, int]  # how many texts left at each depth, 1..L, zeros included
    by_exit: list[SetExitScore]  # by depth
    by_label: list[LabelScore]  # (C,)
    labels: list[Label]  # (C,)
    policy: dict[str, object]

    @classmethod
    def of(
        cls,
        truth: Rows,
        predicted: Rows,
        depths: Sequence[int],
        exit_predictions: Mapping[int, Rows],
        trained: Collection[int],
        layers: int,
        labels: Sequence[Label],
        policy: Mapping[str, object],
    ) -> SetEvaluation:
        """As `Evaluation.of`, with rows in place of classes."""
        whole = set_scores(truth, predicted)
        mean_depth, left = where_left(depths, whole.n, layers)
        by_exit = []
        for depth in sorted(exit_predictions):
            own = set_scores(truth, exit_predictions[depth])
            by_exit.append(
                SetExitScore(
                    depth, own.accuracy, own.micro_f1, own.macro_f1, own.hamming_loss, trained=depth in trained
                )
            )
        return cls(
            **asdict(whole),
            mean_depth=mean_depth,
            depths=left,
            by_exit=by_exit,
            by_label=label_scores(truth, predicted, labels),
            labels=list(labels),
            policy=dict(policy),
        )

    @property
    def layers(self) -> int:
        """L: how many layers the backbone has."""
        return len(self.depths)

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain JSON values; the keys of `depths` become strings."""
        return {**asdict(self), "depths": {str(depth): count for depth, count in self.depths.items()}}


def set_scores(truth: Rows, predicted: Rows) -> SetScores:
    """Subset accuracy, micro-F1, macro-F1 and Hamming loss.

    Macro-F1 is the plain mean over the labels that some text has or was given: one of neither has no F1 and does not
    count. Where there is none at all, both F1 are 0.

    Needs scikit-learn.

    >>> set_scores([[1, 1, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]])
    SetScores(accuracy=0.5, micro_f1=0.8, macro_f1=0.8333333333333333, hamming_loss=0.16666666666666666, n=2)
    """
    from sklearn import metrics

    true, answer = _rows(truth, predicted)
    both = {name: metrics.f1_score(true, answer, average=name, zero_division=np.nan) for name in ("micro", "macro")}
    return SetScores(
        accuracy=float(metrics.accuracy_score(true, answer)),
        micro_f1=float(np.nan_to_num(both["micro"])),
        macro_f1=float(np.nan_to_num(both["macro"])),
        hamming_loss=float(metrics.hamming_loss(true, answer)),
        n=len(true),
    )


def label_scores(truth: Rows, predicted: Rows, labels: Sequence[Label]) -> list[LabelScore]:
    """Precision, recall and F1 of every label, 0 where one is undefined."""
    from sklearn import metrics

    true, answer = _rows(truth, predicted)
    told = metrics.precision_recall_fscore_support(true, answer, zero_division=0.0)
    precision, recall, f1, texts = (column.tolist() for column in told)
    rows = zip(labels, texts, answer.sum(axis=0).tolist(), precision, recall, f1, strict=True)
    return [LabelScore(*row) for row in rows]


def _rows(truth: Rows, predicted: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both as arrays, (B, C), checked."""
    true, answer = np.asarray(truth, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if not true.size or true.shape != answer.shape or true.ndim != 2:
        raise DataError(
            "A score should have a row of 0 and 1 for each text, of the truth and of the answers. "
            f"Found the shapes {true.shape} and {answer.shape}."
        )
    return true, answer
