"""From what users give, tables and a configuration, to what the stages take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from offramp.config import Config
from offramp.data.labels import Labels
from offramp.data.sampling import class_capped, stratified_sample, stratified_split
from offramp.data.sources import Table, read
from offramp.data.tokens import Tokens, limit
from offramp.errors import DataError
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.objectives.base import Term
from offramp.objectives.softened import Softened
from offramp.types import Batch, Example, Label


def as_examples(texts: Any) -> list[Example]:
    """Strings, pairs or examples as examples."""
    if isinstance(texts, str):
        raise DataError("Texts should be a list. Found one string: put it in a list.")
    if hasattr(texts, "columns"):
        raise DataError("Texts should be a list. Found a frame: choose its column, or two as a list of pairs.")
    # A bare pair would read as a text and its label.
    pairs = (tuple, list, np.ndarray)
    given = [Example(*item) if isinstance(item, pairs) and len(item) == 2 else item for item in texts]
    return read(given, labels_required=False).examples if given else []


def as_table(texts: Any, labels: Sequence[Label], name: str) -> Table:
    """Texts and their labels as a table of this name."""
    if len(texts) != len(labels):
        raise DataError(f"There should be as many labels as texts. Found {len(texts)} texts and {len(labels)} labels.")
    examples = [
        Example(e.text, e.pair, label.item() if isinstance(label, np.generic) else label)
        for e, label in zip(as_examples(texts), labels, strict=True)
    ]
    return replace(read(examples), name=name)


def divide(train: Table, validation: Table | None, config: Config) -> tuple[Labels, list[Example], list[Example]]:
    """The labels, the texts to learn from, and the texts to validate on."""
    draw = torch.Generator().manual_seed(config.optimise.seed)
    labels = Labels.of(train.labels, train.name)
    learn, numbers = train.examples, encode(labels, train)
    if config.data.class_cap:
        rows = class_capped(numbers, config.data.class_cap, draw)
        learn, numbers = [learn[row] for row in rows], [numbers[row] for row in rows]
    if 0 < config.data.cap < len(learn):
        rows = stratified_sample(numbers, config.data.cap, draw)
        learn, numbers = [learn[row] for row in rows], [numbers[row] for row in rows]
    if validation is not None:
        encode(labels, validation)
        return labels, learn, validation.examples
    kept, held = stratified_split(numbers, config.data.validation, draw)
    return labels, [learn[row] for row in kept], [learn[row] for row in held]


def encode(labels: Labels, data: Table) -> list[int]:
    """The labels' numbers; a label the model does not know is named with its place."""
    return labels.encode(data.labels, data.where)


def tokenise(tokenizer: Any, examples: list[Example], labels: Labels, most: int) -> Tokens:
    """Labelled texts as tokens."""
    numbers = labels.encode(e.label for e in examples if e.label is not None)
    return Tokens.of(tokenizer, examples, most, numbers, warn=False)


def label_texts(tokenizer: Any, labels: Labels, most: int) -> Batch:
    """The labels as texts."""
    # A minus sign tells -1 from 1; within a word it is a hyphen.
    spoken = [re.sub(r"_|(?<=\w)-", " ", str(name)) for name in labels.names]
    tokens = Tokens.of(tokenizer, [Example(name) for name in spoken], most, warn=False)
    return tokens.batch(range(len(labels)))


def token_limit(model: MultiExitModel, tokenizer: Any, wanted: int) -> int:
    """Tokens a text may have."""
    usable = model.encoder.family.usable_positions(model.encoder.backbone.config)
    return limit(tokenizer, usable, wanted)


def _class_weights(config: Config, labels: Labels, learn: list[Example]) -> torch.Tensor | None:
    if config.objective.class_weights != "balanced":
        return None
    counts = Counter(labels.index(e.label) for e in learn if e.label is not None)
    return torch.tensor([len(learn) / (len(labels) * counts[k]) if counts[k] else 0.0 for k in range(len(labels))])


def second_objective(config: Config, labels: Labels, learn: list[Example]) -> Term:
    """The objective of the exits below the last, with the weights and the smoothing of the run's cross entropy."""
    settings = config.stage2
    found = objective(
        settings.objective,
        temperature=settings.temperature,
        weight=settings.weight,
        heads=settings.heads,
        denominator=settings.denominator,
        reduction=settings.reduction,
        label_smoothing=config.objective.label_smoothing,
        class_weights=_class_weights(config, labels, learn),
    )
    return Softened(found, settings.soft, settings.soft_temperature) if settings.soft else found


def first_objective(config: Config, labels: Labels, learn: list[Example]) -> Term:
    """The objective of the run, or of its first stage."""
    settings = config.objective
    return objective(
        settings.name,
        temperature=settings.temperature,
        weight=settings.weight,
        heads=settings.heads,
        denominator=settings.denominator,
        reduction=settings.reduction,
        label_smoothing=settings.label_smoothing,
        class_weights=_class_weights(config, labels, learn),
    )
