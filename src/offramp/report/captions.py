"""DECISIONS -> NUMBERS, PICTURES: how to read each figure, and what it shows here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from offramp.report.exit_map import ExitMap
from offramp.report.history import History
from offramp.report.metrics import NAMES, Evaluation
from offramp.report.tag_metrics import Evaluated

KEPT = "the best, or a later one that is worse by no more than noise"


@dataclass(frozen=True, slots=True)
class Caption:
    """Plain text, not yet escaped."""

    read: str
    shows: str


def exits(evaluation: Evaluated) -> Caption:
    """For the scores of each exit."""
    trained = [exit for exit in evaluation.by_exit if exit.trained]
    idle = len(evaluation.by_exit) - len(trained)
    read = "Each mark is the score an exit would get if every text left there."
    if idle:
        read += " Hollow grey marks are exits that were not trained; they say nothing of what that depth could do."
    if not trained:
        return Caption(read, "No exit was trained.")
    best = max(trained, key=lambda exit: exit.accuracy)
    near = next(exit for exit in trained if exit.accuracy >= best.accuracy - 0.01)
    shows = f"The most accurate trained exit is at depth {best.depth} ({best.accuracy:.3f})"
    if near.depth < best.depth:
        shows += f"; depth {near.depth} is the first within 0.01 of it ({near.accuracy:.3f})"
    if len(trained) > 1:
        shows += f"; the mean over {len(trained)} exits is {sum(e.accuracy for e in trained) / len(trained):.3f}"
    return Caption(read, shows + ".")


def depths(evaluation: Evaluated) -> Caption:
    """For the histogram of depths."""
    read = "Each bar counts the texts that left at a depth; the triangle is their mean."
    early = evaluation.n - evaluation.depths[evaluation.layers]
    saved = 1 - evaluation.mean_depth / evaluation.layers
    shows = f"{early:,} of {_texts(evaluation.n)} ({early / evaluation.n:.1%}) left before the last layer"
    shows += f"; {saved:.1%} of the layers did not have to run." if early else ": all went through every layer."
    return Caption(read, f"Under the policy {policy(evaluation.policy)}, {shows}" if evaluation.policy else shows)


def confusion(evaluation: Evaluation) -> Caption:
    """For the confusion matrix."""
    read = "Rows are true labels, columns predicted ones; the stronger the colour, the larger the share of its row."
    right = sum(row[i] for i, row in enumerate(evaluation.confusion))
    shows = f"{right:,} of {_texts(evaluation.n)} lie on the diagonal"
    worst = evaluation.confused_pairs(1)
    if worst:
        pair = worst[0]
        shows += f"; most often “{pair.truth}” was taken for “{pair.predicted}” ({_texts(pair.count)})"
    return Caption(read, shows + ".")


def loss(history: History) -> Caption:
    """For the loss."""
    read = "The faint line is the loss of single updates, the strong one its running median."
    if len({name for record in history.steps for name in record.parts}) > 1:
        read += " The panels below are the parts it is made of, each on its own scale."
    left = len(history.steps) - len(history.full_steps)
    if left:
        read += f" Updates of fewer texts than the others are left out ({left:,} of {len(history.steps):,})."
    values = [record.loss for record in history.full_steps if math.isfinite(record.loss)]
    tenth = math.ceil(len(values) / 10)
    first, last = median(values[:tenth]), median(values[-tenth:])
    shows = f"Its median over the first tenth of {len(values):,} updates is {first:.3g}, over the last tenth {last:.3g}"
    epochs = [record.loss for record in history.epochs if math.isfinite(record.loss)]
    if len(epochs) > 1:
        shows += f"; its mean over the first epoch is {epochs[0]:.3g}, over the last {epochs[-1]:.3g}"
    return Caption(read, shows + ".")


def angles(history: History, threshold: float | None) -> Caption:
    """For the gradient angles; without a threshold, an aggregator made the step of the two gradients."""
    read = (
        "Each point is the angle between the gradients of the contrastive term and of the cross entropy at one update; "
    )
    if threshold is None:
        read += "an aggregator weighed the two, and a weight of 0 counts as dropped."
    else:
        read += f"above {threshold:g}° the contrastive term was dropped."
    found = [record.angle for record in history.steps if record.angle is not None]
    middle = median(angle for angle in found if math.isfinite(angle))
    decided = sum(record.kept is not None for record in history.steps)
    shows = f"The median angle is {middle:.1f}°; the term was kept in {history.kept_share:.1%} of {decided:,} updates."
    return Caption(read, shows)


def cosines(history: History) -> Caption:
    """For the cosines of each group of parameters."""
    read = (
        "Each strip is a part of the model, each cell the median cosine between the gradients of the contrastive term "
        "and of the cross entropy there: blue where they agree, orange where they conflict, grey where one had none."
    )
    middles = {group: median(value for _, value in points) for group, points in history.cosines.items()}
    low, high = min(middles, key=middles.__getitem__), max(middles, key=middles.__getitem__)
    shows = f"Over the run the median is highest in {high} ({middles[high]:.2f})"
    if low != high:
        shows += f" and lowest in {low} ({middles[low]:.2f})"
    return Caption(read, shows + ".")


def validation(history: History) -> Caption:
    """For the validation scores."""
    metric = NAMES.get(history.epochs[0].metric, history.epochs[0].metric)
    best, last = history.best, history.epochs[-1]
    several = max(len(record.by_exit) for record in history.epochs)
    if several > 1:
        read = (
            f"Each point is the validation {metric} after an epoch, the mean of {several} exits in a band from the "
            "lowest to the highest of them, with the mean training loss below it"
        )
    else:
        read = f"Each point is the validation {metric} after an epoch, with the mean training loss below it"
    if history.apart:
        top = max(history.epochs, key=lambda record: -math.inf if math.isnan(record.score) else record.score)
        what = f"The mean of {several} exits" if several > 1 else "The score"
        shows = f"{what} was highest after epoch {top.epoch} of {len(history.epochs):,} ({top.score:.3f})."
        return Caption(f"{read}; each exit keeps an epoch of its own: {KEPT}.", shows)
    if best is None:
        return Caption(read + ".", f"After epoch {last.epoch} it is {last.score:.3f}.")
    shows = f"Of {len(history.epochs):,} epochs, epoch {best.epoch} is kept ({best.score:.3f})"
    if best.epoch != last.epoch:
        shows += f"; the last one scored {last.score:.3f}"
    return Caption(f"{read}; the ring marks the epoch that is kept: {KEPT}.", f"{shows}.")


def exit_map(found: ExitMap) -> Caption:
    """For the map of representations."""
    read = (
        f"Each point is a text as the exit at depth {found.depth} represents it, in the colour of its true label; the "
        "stars are the label embeddings. t-SNE keeps neighbours together; distances across the sheet say little."
    )
    if len(found.texts) < found.total:
        read += f" {len(found.texts):,} of {found.total:,} texts are shown, drawn at random."
    unnamed = len(found.names) - len(found.placed())
    if unnamed:
        read += f" {unnamed:,} of {len(found.names):,} names had no room."
    shows = (
        "The label embedding nearest to a text, by cosine, is that of its label "
        f"for {found.near:.1%} of {_texts(found.total)}."
    )
    return Caption(read, shows)


def policy(settings: Mapping[str, object]) -> str:
    """A policy in words.

    >>> policy({"name": "confidence", "threshold": 0.9})
    'confidence (threshold 0.9)'
    >>> policy({"name": "margin", "thresholds": {1: 0.906587, 4: 0.5}, "certified": True})
    'margin (thresholds 0.907 at depth 1, 0.5 at depth 4; certified)'
    """
    said = []
    for name, value in settings.items():
        if name == "certified":
            said += ["certified"] if value else []
        elif isinstance(value, Mapping):
            each = ", ".join(f"{threshold:.3g} at depth {depth}" for depth, threshold in value.items())
            said += [f"{name} {each}"] if each else []
        elif name != "name":
            said.append(f"{name} {value}")
    rest = "; ".join(said)
    return f"{settings.get('name', '')} ({rest})".strip() if rest else str(settings.get("name", ""))


def _texts(count: int) -> str:
    return "1 text" if count == 1 else f"{count:,} texts"
