"""MODEL -> FAST MODEL: what a decision says: a label, or a set of them, how surely, and where the text left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.policies.confidence import confidence
from offramp.reading import answers, probabilities
from offramp.runtime.tag_predictions import TagPrediction
from offramp.types import Decision, Label


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a text was answered, how surely, and where it left."""

    label: Label
    probability: float
    depth: int
    certified: bool = False  # by a policy whose risk is kept by a certificate


@dataclass(frozen=True, slots=True)
class SetPrediction:
    """Which labels a text was given, how surely, and where it left."""

    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]  # of these labels
    probability: float  # of what was decided on the least sure of all labels, given or not
    depth: int
    certified: bool = False  # by a policy whose risk is kept by a certificate


Answered = Prediction | SetPrediction | TagPrediction


def predictions(decision: Decision, names: Sequence[Label], certified: bool) -> list[Answered]:
    """What the texts of a decision were answered, where each has one label."""
    top, index = probabilities(decision.logits, sets=False).max(dim=1)
    found = zip(index.tolist(), top.tolist(), decision.depth.tolist(), strict=True)
    return [Prediction(names[i], p, d, certified) for i, p, d in found]


def set_predictions(decision: Decision, names: Sequence[Label], certified: bool) -> list[Answered]:
    """What the texts of a decision were answered, where each has a set of labels."""
    given, sure = answers(decision.logits, sets=True), confidence(decision.logits, sets=True)
    found = zip(
        given.tolist(),
        probabilities(decision.logits, sets=True).tolist(),
        sure.tolist(),
        decision.depth.tolist(),
        strict=True,
    )
    told: list[Answered] = []
    for row, each, least, depth in found:
        own = [number for number, has in enumerate(row) if has]
        told.append(SetPrediction(tuple(names[k] for k in own), tuple(each[k] for k in own), least, depth, certified))
    return told
