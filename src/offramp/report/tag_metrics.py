"""DECISIONS -> NUMBERS, PICTURES: the scores of an evaluation where each word has a tag.

A span counts as found where its label, its first and its last word are all right, as CoNLL's own script counts. A word
that was not read, because its text was cut before it, has no answer: it is wrong, and in no span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from offramp.data.words import spans
from offramp.errors import DataError, unknown_name
from offramp.report.metrics import Evaluation, where_left
from offramp.report.set_metrics import SetEvaluation

if TYPE_CHECKING:
    from offramp.types import Label

Tags = Sequence[Sequence["Label | None"]]
"""The tags of the words of each text; None: not read."""
SHOWN: dict[str, str] = {
    "accuracy": "word accuracy",
    "span_precision": "span precision",
    "span_recall": "span recall",
    "span_f1": "span F1",
}
"""The scores of a table, each with its heading."""


@dataclass(frozen=True, slots=True)
class TagScores:
    """How well the tags of n texts agree with the true ones."""

    accuracy: float  # share of the words whose tag is right
    span_precision: float
    span_recall: float
    span_f1: float
    n: int
    words: int

    def value(self, name: str) -> float:
        """One score: `accuracy` or `span_f1`."""
        known = ("accuracy", "span_f1")
        if name not in known:
            raise unknown_name("score of tags", name, known)
        return float(getattr(self, name))


@dataclass(frozen=True, slots=True)
class TagExitScore:
    """The scores of one exit, had every word left there."""

    depth: int
    accuracy: float
    span_precision: float
    span_recall: float
    span_f1: float
    trained: bool


@dataclass(frozen=True, slots=True)
class SpanScore:
    """How well the spans of one label were found."""

    label: str
    spans: int  # that there are
    given: int  # that were told
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class TagEvaluation:
    """What a model and its policy made of n texts whose words have tags."""

    shown: ClassVar[dict[str, str]] = SHOWN
    n: int  # texts
    words: int
    unread: int  # words that were cut off
    accuracy: float
    span_precision: float
    span_recall: float
    span_f1: float
    mean_depth: float  # of texts: a text has left when its last word has
    depths: dict[int, int]  # how many texts left at each depth, 1..L, zeros included
    mean_word_depth: float
    word_depths: dict[int, int]  # the same of words
    by_exit: list[TagExitScore]  # by depth
    by_label: list[SpanScore]
    labels: list[Label]  # (C,), the tags
    policy: dict[str, object]

    @classmethod
    def of(
        cls,
        truth: Tags,
        predicted: Tags,
        depths: Sequence[Sequence[int | None]],
        exit_predictions: Mapping[int, Tags],
        trained: Collection[int],
        layers: int,
        labels: Sequence[Label],
        policy: Mapping[str, object],
    ) -> TagEvaluation:
        """The evaluation of tags given under a policy, and of each exit by itself.

        True tags, given ones and depths are lists of one for each word of each text; None for a word that was not read.
        """
        whole = tag_scores(truth, predicted)
        read = [[depth for depth in own if depth is not None] for own in depths]
        flat = [depth for own in read for depth in own]
        mean_depth, left = where_left([max(own, default=1) for own in read], whole.n, layers)
        mean_word_depth, left_words = where_left(flat, len(flat), layers)
        by_exit = []
        for depth in sorted(exit_predictions):
            own = tag_scores(truth, exit_predictions[depth])
            scores = own.accuracy, own.span_precision, own.span_recall, own.span_f1
            by_exit.append(TagExitScore(depth, *scores, trained=depth in trained))
        return cls(
            **asdict(whole),
            unread=whole.words - len(flat),
            mean_depth=mean_depth,
            depths=left,
            mean_word_depth=mean_word_depth,
            word_depths=left_words,
            by_exit=by_exit,
            by_label=span_scores(truth, predicted),
            labels=list(labels),
            policy=dict(policy),
        )

    @property
    def layers(self) -> int:
        """L: how many layers the backbone has."""
        return len(self.depths)

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain JSON values; the keys of `depths` and `word_depths` become strings."""
        counts = {name: getattr(self, name) for name in ("depths", "word_depths")}
        return {**asdict(self), **{name: {str(d): n for d, n in found.items()} for name, found in counts.items()}}


Evaluated = Evaluation | SetEvaluation | TagEvaluation
"""What texts were scored, whatever they have: one label, a set of them, or tags."""


def tag_scores(truth: Tags, predicted: Tags) -> TagScores:
    """Word accuracy, and precision, recall and F1 of spans over all labels; 0 where one is undefined.

    >>> tag_scores([["B-x", "I-x", "O", "B-y"]], [["B-x", "I-x", "O", "B-x"]])
    TagScores(accuracy=0.75, span_precision=0.5, span_recall=0.5, span_f1=0.5, n=1, words=4)
    """
    _check(truth, predicted)
    words = sum(map(len, truth))
    right = sum(
        _alike(a, b) for own, given in zip(truth, predicted, strict=True) for a, b in zip(own, given, strict=True)
    )
    there, told, both = (sum(found.values()) for found in _counts(truth, predicted))
    return TagScores(right / words, *_shares(there, told, both), n=len(truth), words=words)


def span_scores(truth: Tags, predicted: Tags) -> list[SpanScore]:
    """Precision, recall and F1 of the spans of every label that is there or was told, 0 where one is undefined."""
    _check(truth, predicted)
    there, told, both = _counts(truth, predicted)
    labels = sorted({*there, *told})
    return [SpanScore(k, there[k], told[k], *_shares(there[k], told[k], both[k])) for k in labels]


def _counts(truth: Tags, predicted: Tags) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """By label: the spans that there are, those that were told, and those that are both."""
    there: Counter[str] = Counter()
    told: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for own, given in zip(truth, predicted, strict=True):
        true, answer = set(spans(own)), set(spans(given))
        there.update(span.label for span in true)
        told.update(span.label for span in answer)
        both.update(span.label for span in true & answer)
    return there, told, both


def _shares(there: int, told: int, both: int) -> tuple[float, float, float]:
    """Precision, recall and F1."""
    precision, recall = both / told if told else 0.0, both / there if there else 0.0
    return precision, recall, 2 * both / (there + told) if there + told else 0.0


def _alike(true: Label | None, given: Label | None) -> bool:
    return given is not None and str(true) == str(given)


def _check(truth: Tags, predicted: Tags) -> None:
    if len(truth) != len(predicted) or any(len(a) != len(b) for a, b in zip(truth, predicted, strict=True)):
        raise DataError("A score should have an answer for each word of each text. Found more or fewer.")
    if not any(map(len, truth)):
        raise DataError("A score needs at least one word with a tag. Found none.")
