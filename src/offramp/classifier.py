"""The facade: fit, predict, evaluate, save, load.

A scikit-learn classifier over texts. `offramp train` and the other verbs are thin shells around it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from offramp.config import DEFAULT_RECIPE, Config, changes, load_recipe, override
from offramp.data.labels import Labels
from offramp.data.sampling import class_capped, sorted_batches, stratified_sample, stratified_split
from offramp.data.sources import Table, read
from offramp.data.tokens import Tokens, limit, warn_of_cuts
from offramp.encoder.load import load_backbone, load_tokenizer
from offramp.errors import ConfigError, DataError, ModelError, TrainingError, unknown_name
from offramp.exits import checkpoint
from offramp.exits.label_names import begin_from_names
from offramp.exits.model import MultiExitModel, build
from offramp.objectives import objective
from offramp.objectives.base import Term
from offramp.objectives.softened import Softened
from offramp.optimise.coherence import check, check_width
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop, Result
from offramp.optimise.run_folder import claim, fingerprint, finish, finished
from offramp.optimise.saved_state import SavedState
from offramp.policies import POLICIES, policy
from offramp.report.metrics import Evaluation, scores
from offramp.runtime.torch_engine import decide
from offramp.types import Batch, Example, Label, Policy

Texts = Sequence[str] | Sequence[tuple[str, str]] | Sequence[Example]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a text was answered, how surely, and where it left."""

    label: Label
    probability: float
    depth: int


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A text classifier with an exit after every layer.

    `recipe` names a configuration, `settings` changes single fields of it (a mapping, or a list of "key=value").
    `policy`, `threshold` and `depth` say when a text leaves; they may change after fitting.

    >>> from offramp import Classifier
    >>> texts = ["I love it", "what a joy", "so good", "I hate it", "what a pain", "so bad"]
    >>> labels = ["yes", "yes", "yes", "no", "no", "no"]
    >>> classifier = Classifier(settings={"optimise.epochs": 1}).fit(texts, labels)
    >>> set(classifier.predict(["love", "hate"])) <= {"no", "yes"}
    True
    """

    def __init__(
        self,
        recipe: str = DEFAULT_RECIPE,
        backbone: str | None = None,
        settings: Mapping[str, Any] | Sequence[str] | None = None,
        seed: int | None = None,
        policy: str | None = None,
        threshold: float | None = None,
        depth: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self.recipe = recipe
        self.backbone = backbone
        self.settings = settings
        self.seed = seed
        self.policy = policy
        self.threshold = threshold
        self.depth = depth
        self.batch_size = batch_size

    # --- configuration

    def config(self) -> Config:
        """The resolved configuration this classifier trains with."""
        given = self.settings or {}
        extra = [f"{k}={_written(v)}" for k, v in given.items()] if isinstance(given, Mapping) else list(given)
        if self.backbone is not None:
            extra.append(f"encoder.backbone={self.backbone}")
        if self.seed is not None:
            extra.append(f"optimise.seed={self.seed}")
        return override(load_recipe(self.recipe), extra)

    # --- training

    def fit(self, X: Any, y: Sequence[Label], validation: tuple[Any, Sequence[Label]] | None = None) -> Classifier:
        """Fine-tune on texts (or pairs of texts) and their labels."""
        self.fit_table(
            _table(X, y, "training texts"),
            _table(*validation, "validation texts") if validation is not None else None,
        )
        return self

    def fit_table(
        self,
        train: Table,
        validation: Table | None = None,
        folder: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> Result:
        """Fine-tune on tables.

        With a folder, the model is saved there, checkpoints go into its `training`, and a run that was stopped can be
        resumed; nothing is written before the data and the backbone have been read.
        """
        config = self.config()
        check(config)
        labels, learn, held = _divide(train, validation, config)
        if folder:
            checkpoint.vacant(folder, resume, overwrite)
        if folder and resume and checkpoint.is_model(folder):
            ended = self._resume_finished(folder, config, learn, held)
            if ended is not None:
                return ended
        tokenizer = load_tokenizer(config.encoder.backbone, config.encoder.revision)
        with torch.random.fork_rng():
            torch.manual_seed(config.optimise.seed)
            # Loading draws too: a layer the folder lacks begins at random.
            backbone = load_backbone(config.encoder.backbone, config.encoder.revision, config.encoder.attention)
            model = build(
                backbone,
                labels.names,
                exit_kind=config.exits.kind,
                exit_size=config.exits.size,
                exit_heads=config.exits.heads,
                exit_temperature=config.exits.temperature,
                exit_window=config.exits.window,
                exit_dropout=config.exits.dropout,
            )
            check_width(config, model.representation_width)
            model.config.max_tokens = _limit(model, tokenizer, config.data.max_length)
            if config.exits.labels == "names":
                begin_from_names(model, _names(tokenizer, labels, model.config.max_tokens))
            learn_tokens = _tokens(tokenizer, learn, labels, model.config.max_tokens)
            held_tokens = _tokens(tokenizer, held, labels, model.config.max_tokens)
            cuts = learn_tokens.truncated + held_tokens.truncated
            warn_of_cuts(cuts, len(learn) + len(held), model.config.max_tokens)
            if folder:
                anew = overwrite and not resume
                if anew:
                    checkpoint.clear(folder)
                claim(folder / "training", config, fingerprint(learn, held), resume)
                if anew:
                    checkpoint.forget(folder)
            loop = Loop(
                model,
                _objective(config, labels, learn),
                config,
                learn_tokens,
                held_tokens,
                lambda truth, predicted: scores(truth, predicted, len(labels)).value(config.optimise.metric),
                folder / "training" if folder else None,
                watch,
                _second_objective(config, labels, learn) if config.optimise.strategy == "two-stage" else None,
            )
            result = loop.run(resume)
        self._adopt(model, tokenizer, config)
        self.held_out_ = read(held)
        if folder:
            saved = SavedState(folder / "training")
            try:
                finish(folder / "training", result)
                self.save(folder)
            except (OSError, TrainingError) as error:
                raise TrainingError(f"{error} {saved.advice()}") from error
            saved.remove()
        return result

    def _resume_finished(
        self, folder: Path, config: Config, learn: list[Example], held: list[Example]
    ) -> Result | None:
        """How a finished run ended, its model taken over; None where a checkpoint is left to go on from."""
        training = folder / "training"
        result = finished(training)
        if result is None and SavedState(training).newest() is None:
            raise ModelError(
                f"`{folder}` should hold a run to resume. It holds a model without its run: choose another folder, "
                "or add --overwrite."
            )
        if result is not None:
            claim(training, config, fingerprint(learn, held), resume=True)
            self._adopt(*checkpoint.load(folder))
            self.held_out_ = read(held)
            SavedState(training).remove()
        return result

    def _adopt(self, model: MultiExitModel, tokenizer: Any, config: Config) -> None:
        self.model_, self.tokenizer_, self.config_ = model, tokenizer, config
        self.labels_ = Labels(tuple(model.config.labels))
        self.classes_ = np.array(self.labels_.names)

    # --- prediction

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """The label of each text."""
        return np.array([p.label for p in self.decide(X)], dtype=self.classes_.dtype)

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """The probability of each class, by the exit where the text left, (texts, classes)."""
        logits, _ = self._run(self._tokenise(X))
        return np.asarray(torch.softmax(logits, dim=1))

    def decide(self, X: Any) -> list[Prediction]:
        """Label, probability and depth of each text."""
        return self._answers(self._tokenise(X))

    def _answers(self, tokens: Tokens) -> list[Prediction]:
        logits, depths = self._run(tokens)
        top, index = torch.softmax(logits, dim=1).max(dim=1)
        names = self.labels_.names
        return [
            Prediction(names[i], p, d) for i, p, d in zip(index.tolist(), top.tolist(), depths.tolist(), strict=True)
        ]

    def stream(self, examples: Iterable[Example], chunk: int = 1024) -> Iterator[Prediction]:
        """Predictions in the order of the texts, a chunk at a time: memory does not grow.

        One warning at the end counts the texts that were cut.
        """
        if chunk < 1:
            raise ConfigError(f"`chunk` should be 1 or more. Found {chunk}.")
        rest = iter(examples)
        cuts = texts = 0
        try:
            while waiting := list(islice(rest, chunk)):
                tokens = self._tokenise(waiting, warn=False)
                cuts, texts = cuts + tokens.truncated, texts + len(tokens)
                yield from self._answers(tokens)
        finally:
            if cuts:
                warn_of_cuts(cuts, texts, self.model_.config.max_tokens)

    def evaluate(self, data: Table) -> Evaluation:
        """Scores under the policy, and of every exit on its own."""
        self._check_fitted()
        truth = _encode(self.labels_, data)
        tokens = self._tokenise(data.examples)
        logits, depths = self._run(tokens)
        by_exit = {d: torch.zeros(len(tokens), dtype=torch.int64) for d in range(1, self.model_.depth + 1)}
        with torch.inference_mode():
            for rows in sorted_batches(tokens.lengths, self.batch_size):
                for depth, output in self.model_.outputs(tokens.batch(rows).to(self.model_.device)).items():
                    by_exit[depth][torch.tensor(rows)] = output.logits.argmax(dim=1).cpu()
        return Evaluation.of(
            truth,
            logits.argmax(dim=1).tolist(),
            depths.tolist(),
            {depth: found.tolist() for depth, found in by_exit.items()},
            self.model_.config.trained_exits,
            self.model_.depth,
            list(self.labels_.names),
            self.policy_in_force(),
        )

    def representations(self, data: Table, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the exit at `depth` makes of labelled texts, (N, D), and its label embeddings, (C, D)."""
        self._check_fitted()
        tokens = self._tokenise(data.examples, warn=False)  # whoever asks has evaluated these texts
        found: list[torch.Tensor] = []
        order: list[int] = []
        with torch.inference_mode():
            for rows in sorted_batches(tokens.lengths, self.batch_size):
                output = self.model_.outputs(tokens.batch(rows).to(self.model_.device), [depth])[depth]
                found.append(output.representation.float().cpu())
                order += rows
        vectors = torch.cat(found)[torch.tensor(order).argsort()]
        return vectors, output.label_embeddings.detach().float().cpu()

    def policy_in_force(self) -> dict[str, object]:
        """The policy's name and the settings it uses."""
        self._check_fitted()
        config = self.config_.policy
        # A threshold or a depth alone says which policy is meant.
        implied = "confidence" if self.threshold is not None else "fixed" if self.depth is not None else config.name
        name = self.policy if self.policy is not None else implied
        found: dict[str, object] = {"name": name}
        if name not in POLICIES:
            raise unknown_name("policy", name, POLICIES)
        if name == "confidence":
            found["threshold"] = self.threshold if self.threshold is not None else config.threshold
        if name == "fixed":
            depth = self.depth if self.depth is not None else config.depth
            if not 0 <= depth <= self.model_.depth:
                raise ConfigError(f"`depth` should be between 1 and {self.model_.depth}. Found {depth}.")
            found["depth"] = depth or self.model_.depth
        return found

    def _policy(self) -> Policy:
        found: dict[str, Any] = self.policy_in_force()
        return policy(found["name"], found.get("threshold", 1.0), found.get("depth", 0))

    def _run(self, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (N, C) and depths (N,) of texts in their order."""
        chosen = self._policy()
        logits = torch.empty(len(tokens), len(self.labels_))
        depths = torch.empty(len(tokens), dtype=torch.int64)
        for rows in sorted_batches(tokens.lengths, self.batch_size):
            decision = decide(self.model_, tokens.batch(rows).to(self.model_.device), chosen)
            logits[torch.tensor(rows)] = decision.logits.float().cpu()
            depths[torch.tensor(rows)] = decision.depth.cpu()
        return logits, depths

    def _tokenise(self, X: Any, warn: bool = True) -> Tokens:
        self._check_fitted()
        return Tokens.of(self.tokenizer_, _examples(X), self.model_.config.max_tokens, warn=warn)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ModelError("A classifier should be fitted or loaded first: call fit(texts, labels) or load(folder).")

    # --- on disk

    def save(self, folder: str | Path) -> None:
        """Write a model folder."""
        self._check_fitted()
        checkpoint.save(Path(folder), self.model_, self.tokenizer_, self.config_)

    @classmethod
    def load(cls, folder: str | Path, **parameters: Any) -> Classifier:
        """Read a model folder; `parameters` are the constructor's. Fitted again, it trains as the model was trained."""
        model, tokenizer, config = checkpoint.load(Path(folder))
        classifier = cls(**{"recipe": config.recipe, "settings": changes(config), **parameters})
        classifier._adopt(model, tokenizer, config)
        return classifier


# --- from what users give to what the stages take


def _written(value: Any) -> str:
    """A setting's value as it would stand on the command line."""
    return json.dumps(list(value), ensure_ascii=False) if isinstance(value, list | tuple) else str(value)


def _examples(texts: Any) -> list[Example]:
    """Strings, pairs or examples as examples."""
    if isinstance(texts, str):
        raise DataError("Texts should be a list. Found one string: put it in a list.")
    if hasattr(texts, "columns"):
        raise DataError("Texts should be a list. Found a frame: choose its column, or two as a list of pairs.")
    # A bare pair would read as a text and its label.
    pairs = (tuple, list, np.ndarray)
    given = [Example(*item) if isinstance(item, pairs) and len(item) == 2 else item for item in texts]
    return read(given, labels_required=False).examples if given else []


def _table(texts: Any, labels: Sequence[Label], name: str) -> Table:
    if len(texts) != len(labels):
        raise DataError(f"There should be as many labels as texts. Found {len(texts)} texts and {len(labels)} labels.")
    examples = [
        Example(e.text, e.pair, label.item() if isinstance(label, np.generic) else label)
        for e, label in zip(_examples(texts), labels, strict=True)
    ]
    return replace(read(examples), name=name)


def _divide(train: Table, validation: Table | None, config: Config) -> tuple[Labels, list[Example], list[Example]]:
    """The labels, the texts to learn from, and the texts to validate on."""
    draw = torch.Generator().manual_seed(config.optimise.seed)
    labels = Labels.of(train.labels, train.name)
    learn, numbers = train.examples, _encode(labels, train)
    if config.data.class_cap:
        rows = class_capped(numbers, config.data.class_cap, draw)
        learn, numbers = [learn[row] for row in rows], [numbers[row] for row in rows]
    if 0 < config.data.cap < len(learn):
        rows = stratified_sample(numbers, config.data.cap, draw)
        learn, numbers = [learn[row] for row in rows], [numbers[row] for row in rows]
    if validation is not None:
        _encode(labels, validation)
        return labels, learn, validation.examples
    kept, held = stratified_split(numbers, config.data.validation, draw)
    return labels, [learn[row] for row in kept], [learn[row] for row in held]


def _encode(labels: Labels, data: Table) -> list[int]:
    """The labels' numbers; a label the model does not know is named with its place."""
    return labels.encode(data.labels, data.where)


def _tokens(tokenizer: Any, examples: list[Example], labels: Labels, most: int) -> Tokens:
    numbers = labels.encode(e.label for e in examples if e.label is not None)
    return Tokens.of(tokenizer, examples, most, numbers, warn=False)


def _names(tokenizer: Any, labels: Labels, most: int) -> Batch:
    """The labels as texts."""
    # A minus sign tells -1 from 1; within a word it is a hyphen.
    spoken = [re.sub(r"_|(?<=\w)-", " ", str(name)) for name in labels.names]
    tokens = Tokens.of(tokenizer, [Example(name) for name in spoken], most, warn=False)
    return tokens.batch(range(len(labels)))


def _limit(model: MultiExitModel, tokenizer: Any, wanted: int) -> int:
    """Tokens a text may have."""
    usable = model.encoder.family.usable_positions(model.encoder.backbone.config)
    return limit(tokenizer, usable, wanted)


def _class_weights(config: Config, labels: Labels, learn: list[Example]) -> torch.Tensor | None:
    if config.objective.class_weights != "balanced":
        return None
    counts = Counter(labels.index(e.label) for e in learn if e.label is not None)
    return torch.tensor([len(learn) / (len(labels) * counts[k]) if counts[k] else 0.0 for k in range(len(labels))])


def _second_objective(config: Config, labels: Labels, learn: list[Example]) -> Term:
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


def _objective(config: Config, labels: Labels, learn: list[Example]) -> Term:
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
