"""From what users give, tables and a configuration, to what the stages take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from offramp.config import Config, ProtocolConfig
from offramp.data.back_translation import back_translated, load_pair
from offramp.data.label_sets import strata
from offramp.data.labels import Labels
from offramp.data.noise import drop_words, noisy, swap_words
from offramp.data.protocols import imbalanced, mislabelled
from offramp.data.sampling import class_capped, stratified_sample, stratified_split
from offramp.data.sources import Table, read
from offramp.data.splits import LACON_SHARE, as_many_again, scl_split
from offramp.data.tokens import Tokens, limit
from offramp.errors import ConfigError, DataError
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.objectives import objective
from offramp.objectives.base import Term
from offramp.objectives.softened import Softened
from offramp.reading import SET, TAGS
from offramp.types import Batch, Example

VALIDATES, SCORES = 0, 1
"""The parts of SCL's split."""


def as_examples(texts: Any, tags: bool = False) -> list[Example]:
    """Strings, pairs or examples as examples; with `tags`, strings, lists of words or examples."""
    if isinstance(texts, str):
        raise DataError("Texts should be a list. Found one string: put it in a list.")
    if hasattr(texts, "columns"):
        raise DataError("Texts should be a list. Found a frame: choose its column, or two as a list of pairs.")
    if tags:
        bare = [Example(item.text, words=item.words) if isinstance(item, Example) else item for item in texts]
        listed = [(item, None) if isinstance(item, list | tuple | np.ndarray) else item for item in bare]
        return read(listed, labels_required=False, tags=True).examples if listed else []
    # A bare pair would read as a text and its label.
    pairs = (tuple, list, np.ndarray)
    given = [Example(*item) if isinstance(item, pairs) and len(item) == 2 else item for item in texts]
    # Whoever wants labels puts them on: those that are there may be sets.
    given = [Example(item.text, item.pair) if isinstance(item, Example) else item for item in given]
    return read(given, labels_required=False).examples if given else []


def as_table(texts: Any, labels: Sequence[Any], name: str, separator: str | None = None, tags: bool = False) -> Table:
    """Texts and their labels, with a separator their sets of labels, or their words' tags, as a table of this name."""
    if len(texts) != len(labels):
        raise DataError(f"There should be as many labels as texts. Found {len(texts)} texts and {len(labels)} labels.")
    if separator is not None and getattr(labels, "ndim", 1) > 1:
        raise DataError(
            "Sets of labels should be lists of labels, one list for each text. Found a matrix: write the names of the "
            "labels, as scikit-learn's `MultiLabelBinarizer.inverse_transform` does."
        )
    if tags:
        given = as_examples(texts, tags=True)
        examples = [Example(e.text, words=e.words, tags=own) for e, own in zip(given, labels, strict=True)]
        return replace(read(examples, tags=True), name=name)
    examples = [Example(e.text, e.pair, label) for e, label in zip(as_examples(texts), labels, strict=True)]
    return replace(read(examples, separator=separator), name=name)


def divide(train: Table, validation: Table | None, config: Config) -> tuple[Labels, list[Example], list[Example]]:
    """The labels, the texts to learn from, and the texts to validate on.

    The order is: labels in play, `data.class_cap`, `data.cap`, imbalance, who is held out, and last the noise, which
    so finds the same texts at every level of it and never touches those that validate.
    """
    protocol = config.protocol
    _check_split(validation, config)
    seed = config.optimise.seed if protocol.seed < 0 else protocol.seed
    draw = torch.Generator().manual_seed(seed)
    labels, numbers = _in_play(train, train, config)
    everyone = [row for row, number in enumerate(numbers) if number < len(labels)]

    def of(rows: list[int]) -> list[int]:
        return [numbers[row] for row in rows]

    rows = everyone
    if config.data.class_cap:
        # Where as many texts validate as are learnt from, a label with few texts has half of them to learn from.
        few = protocol.split == "lacon-few"
        rows = [rows[place] for place in class_capped(of(rows), config.data.class_cap, draw, half=few)]
    if 0 < config.data.cap < len(rows):
        rows = [rows[place] for place in stratified_sample(of(rows), config.data.cap, draw)]
    if protocol.imbalance:
        rows = [rows[place] for place in imbalanced(of(rows), protocol.imbalance, protocol.minority, draw)]
    if validation is not None:
        held = _validated(validation, train, config)
    elif protocol.split == "lacon-few":
        places = {row: place for place, row in enumerate(everyone)}
        again = as_many_again(of(everyone), [places[row] for row in rows], draw)
        held = [train.examples[everyone[place]] for place in again]
    else:
        share = LACON_SHARE if protocol.split == "lacon" else config.data.validation
        kept, apart = stratified_split(of(rows), share, draw)
        held = [train.examples[rows[place]] for place in apart]
        rows = [rows[place] for place in kept]
    return labels, _made_worse([train.examples[row] for row in rows], labels, protocol, draw), held


def scored(test: Table, train: Table, config: Config) -> Table:
    """The texts of `test` that a protocol scores: those of the labels in play, and of SCL's split its test half.

    For SCL's split, `test` is the whole validation set, the same that `divide` is given.
    """
    labels, numbers = _in_play(test, train, config)
    rows = _part(numbers, len(labels), config, SCORES)
    return test.keep(rows) if len(rows) < len(numbers) else test


def scored_by(labels: Labels, texts: Table, config: Config) -> Table:
    """The same where the training texts are no longer at hand, for a model with these labels, all of them in play."""
    if not config.protocol.classes and config.protocol.split != "scl":
        raise ConfigError(
            "The protocol of the training should say which texts are scored: `protocol.split` scl, or "
            "`protocol.classes`. Found neither: score all of them."
        )
    mine = {str(name) for name in labels.names}
    others = [config.protocol.classes and e.label is not None and str(e.label) not in mine for e in texts.examples]
    if all(others):
        raise DataError(f"Some texts should have a label of the model: {', '.join(sorted(mine))}. Found none.")
    in_play = texts.keep([row for row, other in enumerate(others) if not other])
    return in_play.keep(_part(encode(labels, in_play), len(labels), config, SCORES))


def _validated(validation: Table, train: Table, config: Config) -> list[Example]:
    labels, numbers = _in_play(validation, train, config)
    return [validation.examples[row] for row in _part(numbers, len(labels), config, VALIDATES)]


def _part(numbers: Sequence[int], count: int, config: Config, place: int) -> list[int]:
    """The rows of texts with the first `count` labels, and of SCL's split those of one of its parts."""
    rows = [row for row, number in enumerate(numbers) if number < count]
    if config.protocol.split != "scl":
        return rows
    return [rows[own] for own in scl_split([numbers[row] for row in rows])[place]]


def _in_play(data: Table, train: Table, config: Config) -> tuple[Labels, list[int]]:
    """The labels in play, the first of the training texts' labels, and each text's class number, in play or not."""
    known, count = Labels.of(train.labels, train.name, train.order), config.protocol.classes
    if count and not 2 <= count <= len(known):
        raise ConfigError(
            f"`protocol.classes` should be between 2 and {len(known)}, the number of labels, or 0. Found {count}."
        )
    labels = Labels(known.names[:count]) if count else known
    if config.data.labels == SET:
        return labels, strata(encode_sets(labels, data))
    if config.data.labels == TAGS:
        return labels, strata([[int(k in own) for k in range(len(labels))] for own in encode_tags(labels, data)])
    if config.optimise.metric == "f1" and len(labels) != 2:
        raise ConfigError(f"`optimise.metric` should be f1 for two labels only. Found {len(labels)}: use macro_f1.")
    return labels, encode(known, data)


def _check_split(validation: Table | None, config: Config) -> None:
    """Refuse texts to validate on where the protocol takes them from the training texts, and their lack."""
    split = config.protocol.split
    if split == "scl" and validation is None:
        raise DataError("`protocol.split` scl should come with validation texts, which it divides. Found none.")
    if split.startswith("lacon") and validation is not None:
        raise DataError(
            f"`protocol.split` {split} should come without validation texts: it holds out training texts. "
            f"Found {validation.name}, on which it would score."
        )


def _made_worse(
    examples: list[Example], labels: Labels, protocol: ProtocolConfig, draw: torch.Generator
) -> list[Example]:
    """Training texts with the protocol's noise, in place of the texts or, as copies, beside them."""
    if protocol.label_noise:
        numbers = labels.encode(example.label for example in examples if example.label is not None)
        wrong = mislabelled(numbers, protocol.label_noise, len(labels), draw)
        examples = [replace(e, label=labels.names[number]) for e, number in zip(examples, wrong, strict=True)]
    if not (protocol.word_dropout or protocol.word_swap or protocol.back_translation):
        return examples
    worse = examples * max(protocol.copies, 1)
    if protocol.back_translation:
        there, back = load_pair(protocol.back_translation)
        texts = [text for e in worse for text in (e.text, e.pair) if text is not None]
        told = iter(back_translated(texts, there, back, protocol.temperature, draw))
        worse = noisy(worse, lambda _: next(told))
    if protocol.word_dropout:
        worse = noisy(worse, lambda text: drop_words(text, protocol.word_dropout, draw))
    if protocol.word_swap:
        worse = noisy(worse, lambda text: swap_words(text, protocol.word_swap, draw))
    return [*examples, *worse] if protocol.copies else worse


def encode(labels: Labels, data: Table) -> list[int]:
    """The labels' numbers; a label the model does not know is named with its place."""
    for row, example in enumerate(data.examples):
        if example.tags is not None:
            raise DataError(
                f"A text should have one label. Found a tag for each word in {data.where(row)}. Where words have tags, "
                "set data.labels=tags."
            )
        if example.labels is not None:
            raise DataError(
                f"A text should have one label. Found a set of them in {data.where(row)}. Where texts have several "
                "labels, set data.labels=set."
            )
    return labels.encode(data.labels, data.where)


def encode_sets(labels: Labels, data: Table) -> list[list[int]]:
    """Each text's labels as a row of 0 and 1, (N, C); a label the model does not know is named with its place."""
    sets = list(data.label_sets())
    if None in sets:
        raise DataError(
            f"Every text should have a set of labels, be it empty. Found none in {data.where(sets.index(None))}."
        )
    return labels.encode_sets((own for own in sets if own is not None), data.where)


def encode_tags(labels: Labels, data: Table) -> list[list[int]]:
    """The number of the tag of each word of each text; a tag the model does not know is named with its place."""
    for row, example in enumerate(data.examples):
        if example.tags is None:
            raise DataError(f"Every word should have a tag. Found a text without tags in {data.where(row)}.")
    return labels.encode_lists((e.tags for e in data.examples if e.tags is not None), data.where)


def tokenise(tokenizer: Any, examples: list[Example], labels: Labels, made_of: MultiExitConfig) -> Tokens:
    """Labelled texts as tokens."""
    if made_of.tags:
        rows = encode_tags(labels, Table(examples, "the texts"))
        found = Tokens.of(tokenizer, examples, made_of.max_tokens, rows, warn=False, tags=True, pairs=made_of.pairs)
        for row in np.flatnonzero(np.diff(found.words.offsets) == 0) if found.words else ():
            raise DataError(
                "A text should have a word that the tokenizer reads. Found none in "
                f"{examples[row].text[:60]!r}. Remove it."
            )
        return found
    numbers: list[int] | list[list[int]] = labels.encode(e.label for e in examples if e.label is not None)
    if made_of.sets:
        numbers = encode_sets(labels, Table(examples, "the texts"))
    most, windows, overlap, pairs = made_of.max_tokens, made_of.windows, made_of.overlap, made_of.pairs
    return Tokens.of(tokenizer, examples, most, numbers, warn=False, windows=windows, overlap=overlap, pairs=pairs)


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
    told = (label for e in learn for label in (e.tags or (e.label,)) if label is not None)
    counts = Counter(labels.index(label) for label in told)
    total = counts.total()
    return torch.tensor([total / (len(labels) * counts[k]) if counts[k] else 0.0 for k in range(len(labels))])


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
        alike=settings.alike,
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
        parts=settings.parts,
        denominator=settings.denominator,
        reduction=settings.reduction,
        alike=settings.alike,
        label_smoothing=settings.label_smoothing,
        class_weights=_class_weights(config, labels, learn),
    )
