"""MODEL -> PEOPLE: what a lane makes of the texts of a batch: tokens, a decision, answers; on request, every exit's.

Texts that share a batch may be of any length, and all are padded to the longest: those of unlike length run apart.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from offramp.classifier import Classifier
from offramp.data.tokens import Tokens
from offramp.reading import answers, probabilities
from offramp.runtime.compaction import walk
from offramp.runtime.engine import Engine
from offramp.runtime.predictions import Prediction, SetPrediction, predictions, set_predictions
from offramp.runtime.tag_predictions import TagPrediction, tag_predictions
from offramp.serve.choice import Choice, Choices
from offramp.types import Batch, Decision, Example, ExitOutput, Label, Policy, directions

SHORT = 32  # tokens up to which padding costs less than another batch


@dataclass(frozen=True, slots=True)
class Ask:
    """What texts must have in common to share a batch."""

    choice: Choice
    paired: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True)
class ExitAnswer:
    """What the exit at one depth says of a text."""

    depth: int
    trained: bool
    label: Label | None  # None where texts have sets of labels, or words have tags
    probabilities: list[float]  # (C,)
    distances: list[float]  # (C,), 1 less the cosine of the representation and each label embedding
    labels: list[Label] | None = None  # in place of `label`
    tagged: TagPrediction | None = None  # in place of all of them, where words have tags


@dataclass(frozen=True, slots=True)
class Answer:
    """What a text was answered, how surely, and where it left."""

    label: Label | None  # None where texts have sets of labels, or words have tags
    probability: float
    depth: int
    certified: bool  # by a policy whose risk is kept by a certificate
    cut: bool  # whether the text was longer than the model takes
    exits: list[ExitAnswer] | None = None
    labels: list[Label] | None = None  # in place of `label`
    tagged: TagPrediction | None = None  # in place of both, where words have tags
    probabilities: list[float] | None = None  # of `labels`


class Answerer:
    """A model that several lanes drive at once."""

    def __init__(self, classifier: Classifier, choices: Choices, engine: Engine, lanes: int) -> None:
        self.classifier, self.choices, self.engine = classifier, choices, engine
        # A tokenizer that two threads use at once may find itself borrowed.
        self.tokenizers = [copy.deepcopy(classifier.tokenizer_) for _ in range(lanes)]

    def __call__(self, lane: int, ask: Ask, texts: list[Example]) -> list[Answer]:
        """The answers to texts, in their order."""
        tokenizer, most, tags = self.tokenizers[lane], self.classifier.max_tokens_, self.classifier.tags_

        def read(some: list[Example]) -> Tokens:
            return Tokens.of(tokenizer, some, warn=False, **self.classifier.reading())

        tokens = read(texts)
        cut = [False] * len(texts)
        if tokens.truncated:
            full = [place for place, length in enumerate(tokens.lengths) if length >= most]
            for place in full:
                cut[place] = bool(read([texts[place]]).truncated)
        found: dict[int, Answer] = {}
        for rows in like_length(tokens.lengths.tolist()):
            lost = [cut[row] for row in rows]
            made = (
                self._tagged(ask, tokens, rows, texts, lost) if tags else self._answers(ask, tokens.batch(rows), lost)
            )
            found |= zip(rows, made, strict=True)
        return [found[place] for place in range(len(texts))]

    def _answers(self, ask: Ask, batch: Batch, cut: Sequence[bool]) -> Iterator[Answer]:
        chosen, names = self.choices.find(ask.choice), self.classifier.labels_.names
        if ask.detail:
            outputs = {depth: _plain(output) for depth, output in self.engine.outputs(batch).items()}
            decision = replay(self.engine, outputs, batch, chosen.policy, len(names))
            exits: list[list[ExitAnswer] | None] = list(self._exits(outputs, len(batch)))
        else:
            decision, exits = self.engine.decide(batch, chosen.policy), [None] * len(batch)
        made = set_predictions if self.classifier.sets_ else predictions
        found = made(Decision(decision.logits.float().cpu(), decision.depth), names, chosen.certified)
        for each, shortened, every in zip(found, cut, exits, strict=True):
            label = each.label if isinstance(each, Prediction) else None
            answer = Answer(label, each.probability, each.depth, each.certified, shortened, every)
            if isinstance(each, SetPrediction):
                answer = replace(answer, labels=list(each.labels), probabilities=list(each.probabilities))
            yield answer

    def _tagged(
        self, ask: Ask, tokens: Tokens, rows: Sequence[int], texts: Sequence[Example], cut: Sequence[bool]
    ) -> Iterator[Answer]:
        """The answers of a model that tags words; on request, the tags that every exit gives."""
        chosen, names = self.choices.find(ask.choice), self.classifier.labels_.names
        batch, every = tokens.batch(rows), {}
        if ask.detail:
            outputs = {depth: _plain(output) for depth, output in self.engine.outputs(batch).items()}
            decision = replay(self.engine, outputs, batch, chosen.policy, len(names))
            for depth, output in outputs.items():
                here = Decision(output.logits, torch.full((len(output.logits),), depth))
                every[depth] = tag_predictions(here, tokens, rows, texts, names, False)
        else:
            decision = self.engine.decide(batch, chosen.policy)
        plain = Decision(decision.logits.float().cpu(), decision.depth)
        told = tag_predictions(plain, tokens, rows, texts, names, chosen.certified)
        for number, (each, lost) in enumerate(zip(told, cut, strict=True)):
            exits = [
                ExitAnswer(depth, depth in self.engine.trained, None, [], [], tagged=given[number])
                for depth, given in every.items()
            ]
            detail = exits if ask.detail else None
            yield Answer(None, each.probability, each.depth, each.certified, lost, detail, tagged=each)

    def _exits(self, outputs: Mapping[int, ExitOutput], texts: int) -> Iterator[list[ExitAnswer]]:
        """What every exit says of each text."""
        names, trained, sets = self.classifier.labels_.names, self.engine.trained, self.classifier.sets_
        told = {}
        for depth, output in outputs.items():
            far = 1 - directions(output.representation) @ directions(output.label_embeddings).T  # (B, C)
            sure = probabilities(output.logits, sets)  # (B, C)
            told[depth] = (answers(output.logits, sets).tolist(), sure.tolist(), far.tolist())
        for text in range(texts):
            every = []
            for depth, (given, likely, apart) in told.items():
                best = given[text]
                label = None if sets else names[best]
                labels = [name for name, has in zip(names, best, strict=True) if has] if sets else None
                every.append(ExitAnswer(depth, depth in trained, label, likely[text], apart[text], labels))
            yield every


def replay(engine: Engine, outputs: Mapping[int, ExitOutput], batch: Batch, policy: Policy, classes: int) -> Decision:
    """Where texts leave under a policy, from what every exit has said of them."""
    readable = set(engine.trained if policy.trained_only else engine.exits) or set(engine.exits)
    return walk(_Told(outputs, batch.answers), batch, policy, list(outputs), readable, classes)


class _Told:
    """A batch whose exits have all spoken, on its way past them."""

    def __init__(self, outputs: Mapping[int, ExitOutput], texts: int) -> None:
        self.outputs, self.rows = outputs, torch.arange(texts)

    def advance(self, depth: int, read: bool) -> ExitOutput | None:
        told, rows = self.outputs[depth], self.rows
        return ExitOutput(told.representation[rows], told.logits[rows], told.label_embeddings) if read else None

    def keep(self, rows: Tensor) -> None:
        self.rows = self.rows[rows]


def like_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts that run together: none is longer than twice another, unless all are short.

    >>> list(like_length([10, 200, 30, 150, 40]))
    [[1, 3], [4, 2], [0]]
    """
    order = np.argsort(lengths, kind="stable")[::-1].tolist()
    group: list[int] = []
    for place in order:
        if group and lengths[group[0]] > max(SHORT, 2 * lengths[place]):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _plain(output: ExitOutput) -> ExitOutput:
    return ExitOutput(
        *(part.detach().float().cpu() for part in (output.representation, output.logits, output.label_embeddings))
    )
