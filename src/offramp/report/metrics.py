"""DECISIONS -> NUMBERS, PICTURES: the scores of an evaluation, as a whole and exit by exit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from offramp.errors import DataError, unknown_name

if TYPE_CHECKING:
    from offramp.types import Label

Integers = NDArray[np.int64]

NAMES: dict[str, str] = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro-F1",
    "mcc": "Matthews correlation",
    "micro_f1": "micro-F1",
    "span_f1": "span F1",
}
"""The scores, each with the name a reader sees; the last two are those of label sets and of tags only."""

SHOWN: dict[str, str] = {"accuracy": "accuracy", "macro_f1": "macro-F1", "mcc": "Matthews"}
"""The scores of a table, each with its heading."""


@dataclass(frozen=True, slots=True)
class Scores:
    """How well n predicted classes agree with the true ones."""

    accuracy: float
    macro_f1: float
    mcc: float
    n: int
    f1: float | None = None  # of class number 1, where there are two classes

    def value(self, name: str) -> float:
        """One score: `accuracy`, `f1`, `macro_f1` or `mcc`."""
        known = [known for known in NAMES if hasattr(self, known)]
        if name not in known:
            raise unknown_name("score", name, known)
        found = getattr(self, name)
        if found is None:
            raise DataError(
                "`f1` should be asked of two labels, the second of which is the positive one. Use `macro_f1`."
            )
        return float(found)


@dataclass(frozen=True, slots=True)
class ExitScore:
    """The scores of one exit, had every text left there."""

    depth: int
    accuracy: float
    macro_f1: float
    mcc: float
    trained: bool
    f1: float | None = None  # of class number 1, where there are two classes


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Texts of one label that were taken for another."""

    truth: Label
    predicted: Label
    count: int
    share: float  # of the texts whose true label is `truth`


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a model and its policy made of n labelled texts."""

    shown: ClassVar[dict[str, str]] = SHOWN
    n: int
    accuracy: float
    macro_f1: float
    mcc: float
    mean_depth: float
    depths: dict[int, int]  # how many texts left at each depth, 1..L, zeros included
    by_exit: list[ExitScore]  # by depth
    confusion: list[list[int]]  # (C, C), rows are the truth
    labels: list[Label]  # (C,)
    policy: dict[str, object]
    f1: float | None = None  # of the second of two labels

    @classmethod
    def of(
        cls,
        truth: Sequence[int],
        predicted: Sequence[int],
        depths: Sequence[int],
        exit_predictions: Mapping[int, Sequence[int]],
        trained: Collection[int],
        layers: int,
        labels: Sequence[Label],
        policy: Mapping[str, object],
    ) -> Evaluation:
        """The evaluation of classes predicted under a policy, and of each exit by itself.

        Inputs: true and predicted classes and the depth where each text left, all (B,); the classes each exit
        predicts for all texts, by depth; which depths were trained; L; the label of each class; the policy.
        """
        classes = len(labels)
        whole = scores(truth, predicted, classes)
        mean_depth, left = where_left(depths, whole.n, layers)
        by_exit = []
        for depth in sorted(exit_predictions):
            own = scores(truth, exit_predictions[depth], classes)
            by_exit.append(ExitScore(depth, own.accuracy, own.macro_f1, own.mcc, depth in trained, own.f1))
        return cls(
            n=whole.n,
            accuracy=whole.accuracy,
            macro_f1=whole.macro_f1,
            mcc=whole.mcc,
            mean_depth=mean_depth,
            depths=left,
            by_exit=by_exit,
            confusion=confusion(truth, predicted, classes).tolist(),
            labels=list(labels),
            policy=dict(policy),
            f1=whole.f1,
        )

    @property
    def layers(self) -> int:
        """L: how many layers the backbone has."""
        return len(self.depths)

    def confused_pairs(self, most: int = 8) -> list[ConfusedPair]:
        """The pairs of labels that were confused most often, largest count first."""
        pairs = [
            ConfusedPair(self.labels[i], self.labels[j], count, count / sum(row))
            for i, row in enumerate(self.confusion)
            for j, count in enumerate(row)
            if count and i != j
        ]
        return sorted(pairs, key=lambda pair: (-pair.count, -pair.share))[:most]

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain JSON values; the keys of `depths` become strings."""
        return {**asdict(self), "depths": {str(depth): count for depth, count in self.depths.items()}}


def where_left(depths: Sequence[int], texts: int, layers: int) -> tuple[float, dict[int, int]]:
    """The mean depth of so many texts, and how many left at each depth, zeros included."""
    left = np.asarray(depths, dtype=np.int64)  # (B,)
    if left.shape != (texts,):
        raise DataError(f"`depths` should hold one depth for each of {texts} texts. Found {len(left)}.")
    if left.min() < 1 or left.max() > layers:
        raise DataError(f"A depth should be between 1 and {layers}. Found {left.min()} to {left.max()}.")
    return float(left.mean()), {depth: int((left == depth).sum()) for depth in range(1, layers + 1)}


def scores(truth: Sequence[int], predicted: Sequence[int], classes: int) -> Scores:
    """Accuracy, macro-F1, Matthews correlation and, of two classes, the F1 of predicted classes.

    F1 is that of class number 1, the positive one, and 0 where that class is neither in `truth` nor in `predicted`.
    Macro-F1 is the plain mean over the classes that occur in `truth` or in `predicted`: a class that is in
    neither has no F1 and does not count. The Matthews correlation is 0 where it is undefined, that is where
    `truth` or `predicted` holds one class only.

    Needs scikit-learn.

    >>> scores([0, 1, 1, 1], [0, 0, 1, 1], classes=3)
    Scores(accuracy=0.75, macro_f1=0.7333333333333334, mcc=0.5773502691896258, n=4, f1=None)
    """
    from sklearn import metrics

    true, answer = _classes(truth, predicted, classes)
    constant = len(np.unique(true)) == 1 or len(np.unique(answer)) == 1
    return Scores(
        accuracy=float(metrics.accuracy_score(true, answer)),
        macro_f1=float(metrics.f1_score(true, answer, average="macro", zero_division=0.0)),
        mcc=0.0 if constant else float(metrics.matthews_corrcoef(true, answer)),
        n=len(true),
        f1=float(metrics.f1_score(true, answer, zero_division=0.0)) if classes == 2 else None,
    )


def score_without_a_look(truth: Sequence[int], classes: int, name: str) -> float:
    """The best score of giving every text one and the same class: what to be better than.

    For F1 that is the positive class, however rare.

    >>> score_without_a_look([0, 0, 0, 1], classes=2, name="accuracy")
    0.75
    >>> score_without_a_look([0, 0, 0, 1], classes=2, name="f1")
    0.4
    """
    return max(scores(truth, [one] * len(truth), classes).value(name) for one in range(classes))


def confusion(truth: Sequence[int], predicted: Sequence[int], classes: int) -> Integers:
    """How many texts of each true class (row) were given each class (column), (C, C).

    >>> confusion([0, 1, 1, 1], [0, 0, 1, 1], classes=2).tolist()
    [[1, 0], [1, 2]]
    """
    true, answer = _classes(truth, predicted, classes)
    counts = np.bincount(true * classes + answer, minlength=classes * classes)  # (C * C,)
    return counts.reshape(classes, classes).astype(np.int64)


def _classes(truth: Sequence[int], predicted: Sequence[int], classes: int) -> tuple[Integers, Integers]:
    """Both as arrays, (B,), checked."""
    true, answer = np.asarray(truth, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    if len(true) != len(answer):
        raise DataError(f"There should be one prediction for each of {len(true)} texts. Found {len(answer)}.")
    if not len(true):
        raise DataError("A score needs at least one labelled text. Found none.")
    for found in (true, answer):
        if found.min() < 0 or found.max() >= classes:
            raise DataError(f"A class should be between 0 and {classes - 1}. Found {found.min()} to {found.max()}.")
    return true, answer
