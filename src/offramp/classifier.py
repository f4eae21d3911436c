"""The facade: fit, predict, evaluate, save, load.

A scikit-learn classifier over texts. `offramp train` and the other verbs are thin shells around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from offramp.beginning import begin
from offramp.calibration import SCORED, Request, certify, evidential
from offramp.config import DEFAULT_RECIPE, Config, DataConfig, ExitsConfig, changes, load_recipe, override
from offramp.data.incoming import portion
from offramp.data.labels import Labels
from offramp.data.seen import digests
from offramp.data.sources import Table, columns, read
from offramp.data.tokens import CHUNK, Tokens, warn_of_cuts
from offramp.errors import ConfigError, DataError, ModelError, NotFinite, TrainingError, unknown_name
from offramp.exits import checkpoint
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.exits.predecessor import folder_of, seen_with
from offramp.growing import spelled, with_its_labels
from offramp.lock import held
from offramp.optimise import processes
from offramp.optimise.coherence import check
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop, Result
from offramp.optimise.run_folder import (
    BAD_BATCH,
    begins_anew,
    claim,
    fingerprint,
    finish,
    finished,
    keeping,
    write_texts,
)
from offramp.optimise.saved_state import SavedState
from offramp.optimise.state_cache import remove_caches
from offramp.optimise.static import Static, remove_stages
from offramp.policies import POLICIES, policy
from offramp.policies.certificate import Certificate
from offramp.policies.patient_confidence import PATIENCE
from offramp.policies.scored import Scored
from offramp.preparation import (
    as_examples,
    as_table,
    divide,
    encode,
    encode_sets,
    encode_tags,
    first_objective,
    scored_by,
    second_objective,
    tokenise,
)
from offramp.reading import ONE, SET, TAGS, alike, probabilities
from offramp.reading import answers as answers_of
from offramp.report.curve import Curve
from offramp.report.metrics import Evaluation, scores
from offramp.report.set_metrics import SetEvaluation, set_scores
from offramp.report.tag_metrics import Evaluated, TagEvaluation, tag_scores
from offramp.runtime import certified
from offramp.runtime.certified import Certified
from offramp.runtime.engine import Engine, answers, pool, run
from offramp.runtime.exported import Comparison, export, load_exported
from offramp.runtime.onnx_folder import is_exported, refuse
from offramp.runtime.predictions import Answered, Prediction, SetPrediction, predictions, set_predictions
from offramp.runtime.sweep import Make
from offramp.runtime.tag_predictions import TagPrediction, tag_predictions
from offramp.runtime.torch_engine import TorchEngine, set_threads
from offramp.sample_weights import ClassWeight, check_class_weight, check_objective, weighted
from offramp.speed_curve import speed_curve
from offramp.types import Decision, Example, Label, Policy

Texts = Sequence[str] | Sequence[tuple[str, str]] | Sequence[Example]


class NotFitted(ModelError, NotFittedError):  # type: ignore[misc]
    """A classifier is asked before it has learnt; scikit-learn looks for its own kind of error."""


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A text classifier with an exit after every layer.

    `recipe` names a configuration, `settings` changes single fields of it (a mapping, or a list of "key=value").
    `policy`, `threshold` and `depth` say when a text leaves; they may change after fitting. `class_weight` is
    scikit-learn's: `balanced`, or a weight for each label. A field of the configuration is a parameter too, with two
    underscores in place of the dot: `set_params(optimise__epochs=3)`, which is how a grid search names it.

    >>> from offramp import Classifier
    >>> texts = ["I love it", "what a joy", "so good", "I hate it", "what a pain", "so bad"]
    >>> labels = ["yes", "yes", "yes", "no", "no", "no"]
    >>> classifier = Classifier("ce", settings={"optimise.epochs": 1}).fit(texts, labels)
    >>> set(classifier.predict(["love", "hate"])) <= {"no", "yes"}
    True
    """

    seen_: torch.Tensor | None

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
        class_weight: ClassWeight = None,
    ) -> None:
        self.recipe = recipe
        self.backbone = backbone
        self.settings = settings
        self.seed = seed
        self.policy = policy
        self.threshold = threshold
        self.depth = depth
        self.batch_size = batch_size
        self.class_weight = class_weight

    # --- configuration

    def config(self) -> Config:
        """The resolved configuration this classifier trains with."""
        check_class_weight(self.class_weight)
        extra = [f"{key}={_written(value)}" for key, value in _mapped(self.settings).items()]
        if self.backbone is not None:
            extra.append(f"encoder.backbone={self.backbone}")
        if self.seed is not None:
            extra.append(f"optimise.seed={self.seed}")
        if self.class_weight == "balanced":
            extra.append("objective.class_weights=balanced")
        return override(load_recipe(self.recipe), extra)

    def set_params(self, **params: Any) -> Classifier:
        """Change parameters; `stage__field` changes a field of the configuration."""
        fields = {key.replace("__", ".", 1): value for key, value in params.items() if "__" in key}
        super().set_params(**{key: value for key, value in params.items() if "__" not in key})
        if fields:
            self.settings = {**_mapped(self.settings), **fields}
            self.config()  # a field that does not exist is named now
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "engine_")

    # --- training

    def fit(
        self,
        X: Any,
        y: Sequence[Any],
        validation: tuple[Any, Sequence[Any]] | None = None,
        sample_weight: Sequence[float] | None = None,
    ) -> Classifier:
        """Fine-tune on texts (or pairs of texts) and their labels; with `data.labels=set`, on lists of labels.

        With `data.labels=tags`, on texts or lists of words, and for each a list of as many tags as it has words.

        A text counts in the cross entropy as much as its weight says; one of weight 0 is left out. Neither the
        contrast nor the validation score knows weights.
        """
        how = _labels_of(self.config())
        self.fit_table(
            weighted(as_table(X, y, "training texts", **how), sample_weight, self.class_weight),
            as_table(*validation, "validation texts", **how) if validation is not None else None,
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
        resumed; nothing is written before the data and the backbone have been read. Where processes train together
        (`torchrun`), only the first needs the folder.
        """
        config = self.config()
        check(config)
        _check_policy(config)
        if config.data.labels == TAGS and processes.count() > 1:
            raise ConfigError("Tags should be learnt by one process. Found several: start offramp without torchrun.")
        names: tuple[Label, ...] = ()
        if config.optimise.strategy == "grow":
            train, validation, names = with_its_labels(train, validation, config)
        labels, learn, validate = divide(train, validation, config)
        check_objective(config, learn)
        texts = Labels(names) if names else labels, learn, validate
        if processes.count() > 1:
            processes.begin()
            # The first process writes and tells.
            folder, watch = (folder, watch) if processes.rank() == 0 else (None, None)
        if folder is None:
            return self._fit(config, *texts, watch=watch)
        before = folder_of(config)
        if before is not None and before.resolve() == folder.resolve():
            raise ModelError(
                f"A run should not write over the model it goes on from, `{before}`. Choose another folder."
            )
        checkpoint.vacant(folder, resume, overwrite)
        with held(folder):
            refuse(folder)
            checkpoint.vacant(folder, resume, overwrite)  # somebody may have been quicker
            return self._fit(config, *texts, folder, resume, overwrite, watch)

    def _fit(
        self,
        config: Config,
        labels: Labels,
        learn: list[Example],
        held: list[Example],
        folder: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> Result:
        """Fine-tune, in a folder that nobody else works in."""
        if folder and resume and "stage2.keep_cache" not in _mapped(self.settings):
            config = keeping(folder / "training", config)
        ended = None
        if folder and resume and checkpoint.is_model(folder):
            ended = self._resume_finished(folder, config, learn, held)
        if processes.count() > 1:
            ended = processes.of_first(ended)
        if ended is not None:
            return ended
        with torch.random.fork_rng():
            torch.manual_seed(config.optimise.seed)
            model, tokenizer = begin(config, labels)
            seen = seen_with(config, digests([*learn, *held]))
            model.config.pairs = learn[0].pair is not None
            learn_tokens = tokenise(tokenizer, learn, labels, model.config)
            held_tokens = tokenise(tokenizer, held, labels, model.config)
            cuts = learn_tokens.truncated + held_tokens.truncated
            unread = sum(tokens.words.unread for tokens in (learn_tokens, held_tokens) if tokens.words is not None)
            warn_of_cuts(cuts, len(learn) + len(held), model.config.max_tokens * model.config.windows, unread)
            if folder:
                anew = overwrite and not resume
                if anew:
                    checkpoint.clear(folder)
                    if folder.is_dir():
                        certified.write(folder, None)
                claim(folder / "training", config, fingerprint(learn, held), resume)
                if anew:
                    checkpoint.forget(folder)
            objective, training = first_objective(config, labels, learn), folder / "training" if folder else None

            def score(truth: Sequence[Any], predicted: Sequence[Any]) -> float:
                if held_tokens.words is not None:
                    every = _whole(held_tokens, truth, labels.names), _whole(held_tokens, predicted, labels.names)
                    return tag_scores(*every).value(config.optimise.metric)
                told = set_scores(truth, predicted) if model.config.sets else scores(truth, predicted, len(labels))
                return told.value(config.optimise.metric)

            with _bad_texts_kept(training, learn):
                if config.compress.method == "none":
                    staged = config.optimise.strategy in ("two-stage", "grow")
                    second = second_objective(config, labels, learn) if staged else None
                    loop = Loop(model, objective, config, learn_tokens, held_tokens, score, training, watch, second)
                    result = loop.run(resume)
                else:
                    static = Static(config, objective, learn_tokens, held_tokens, score, tokenizer, training, watch)
                    model, result = static.run(model, resume)
                    model.config.pairs = learn[0].pair is not None  # a teacher's configuration may not say
        self._adopt(model, tokenizer, config)
        self.held_out_, self.seen_ = self._table(held), seen
        if folder:
            saved = SavedState(folder / "training")
            try:
                checkpoint.forget(folder)  # of an earlier second stage: it is not the one that this result tells of
                finish(folder / "training", result)
                self.save(folder)
            except (OSError, TrainingError) as error:
                raise TrainingError(f"{error} {saved.advice()}") from error
            saved.remove(but_base=config.stage2.keep_cache)
            remove_stages(folder / "training")
        return result

    def _resume_finished(
        self, folder: Path, config: Config, learn: list[Example], held: list[Example]
    ) -> Result | None:
        """How a finished run ended, its model taken over; None where there is something to go on from, or anew."""
        training = folder / "training"
        result = finished(training)
        if result is None and SavedState(training).newest() is None:
            raise ModelError(
                f"`{folder}` should hold a run to resume. It holds a model without its run: choose another folder, "
                "or add --overwrite."
            )
        if result is not None:
            data = fingerprint(learn, held)
            if begins_anew(training, config, data):
                return None  # nothing is touched before the model has been begun with these settings
            claim(training, config, data, resume=True)
            self._adopt(*checkpoint.load(folder))
            self.held_out_, self.seen_ = self._table(held), checkpoint.load_seen(folder)
            SavedState(training).remove(but_base=config.stage2.keep_cache)
            remove_stages(training)
            if not config.stage2.keep_cache:
                remove_caches(training)
        return result

    def _adopt(self, model: MultiExitModel, tokenizer: Any, config: Config) -> None:
        self.model_ = model
        self._take(TorchEngine(model), tokenizer, config, model.config)

    def _take(self, engine: Engine, tokenizer: Any, config: Config, made_of: MultiExitConfig) -> None:
        self.engine_, self.tokenizer_, self.config_ = engine, tokenizer, config
        self.labels_ = Labels(tuple(made_of.labels))
        self.classes_ = np.array(self.labels_.names)
        self.sets_, self.tags_ = made_of.sets, made_of.tags
        self.pairs_ = made_of.pairs
        self.max_tokens_, self.windows_, self.overlap_ = made_of.max_tokens, made_of.windows, made_of.overlap
        self.certified_: Certified | None = None
        self.seen_ = None

    # --- prediction

    def predict(self, X: Any) -> Any:
        """The label of each text, as an array; of sets of labels, a list of labels for each text.

        Of tags, a list of one for each word of each text; None for a word that the text was cut before.
        """
        found = self.decide(X)
        if self.tags_:
            return [list(p.tags) for p in found if isinstance(p, TagPrediction)]
        if self.sets_:
            return [list(p.labels) for p in found if isinstance(p, SetPrediction)]
        return np.array([p.label for p in found if isinstance(p, Prediction)], dtype=self.classes_.dtype)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, by the exit where the text left, (texts, classes).

        Those of one label sum to 1; those of a set of labels are independent. Of tags, an array of (words, classes) for
        each text, with rows of NaN for words that the text was cut before.
        """
        tokens = self._tokenise(X)
        found = np.asarray(probabilities(self._run(tokens).logits, self.sets_))
        if tokens.words is None:
            return found
        every = [np.full((count, found.shape[1]), np.nan, found.dtype) for count in tokens.words.counts.tolist()]
        for row, text, place in zip(found, tokens.words.owners, tokens.words.places, strict=True):
            every[text][place] = row
        return every

    def score(self, X: Any, y: Sequence[Any], sample_weight: Sequence[float] | None = None) -> float:
        """The accuracy; of sets of labels, the share of the texts whose whole set is right; of tags, that of words."""
        self._check_fitted()
        if self.tags_:
            if sample_weight is not None:
                raise ConfigError("Texts should have no weights where words have tags. Found some: leave them out.")
            table = as_table(X, y, "texts", tags=True)
            truth_of_words = [[self.labels_.names[k] for k in own] for own in encode_tags(self.labels_, table)]
            return tag_scores(truth_of_words, self.predict(table.examples)).accuracy
        if not self.sets_:
            return float(super().score(X, y, sample_weight))
        truth = torch.tensor(self.truth(as_table(X, y, "texts", columns(self.config_.data)["separator"])))
        right = alike(answers_of(self._run(self._tokenise(X)).logits, self.sets_), truth)
        return float(np.average(right.numpy(), weights=sample_weight))

    def left_to_score(self, data: Table) -> Table:
        """The texts that the protocol of the training leaves to be scored."""
        self._check_fitted()
        return scored_by(self.labels_, data, self.config_)

    def decide(self, X: Any) -> list[Answered]:
        """Label, probability and depth of each text; of sets of labels, all labels that it is given.

        Of tags, those of each word of each text, and the spans that they tell.
        """
        self._check_fitted()
        examples = as_examples(X, self.tags_)
        return self._answers(examples, self._tokens(examples))

    def _answers(self, examples: Sequence[Example], tokens: Tokens) -> list[Answered]:
        decision, made = self._run(tokens), set_predictions if self.sets_ else predictions
        if self.tags_:
            names, rows = self.labels_.names, range(len(tokens))
            return list(tag_predictions(decision, tokens, rows, examples, names, self.is_certified()))
        return made(decision, self.labels_.names, self.is_certified())

    def stream(self, examples: Iterable[Example | None], chunk: int = CHUNK) -> Iterator[Answered]:
        """Predictions in the order of the texts, a chunk at a time: memory does not grow.

        A None among the texts has those before it answered at once.
        One warning at the end counts the texts that were cut.
        """
        cuts = texts = unread = 0
        try:
            for found, cut in self.chunks(examples, chunk):
                cuts, texts = cuts + cut, texts + len(found)
                unread += sum(each.tags.count(None) for each in found if isinstance(each, TagPrediction))
                yield from found
        finally:
            self.warn_of_cuts(cuts, texts, unread)

    def chunks(self, examples: Iterable[Example | None], chunk: int = CHUNK) -> Iterator[tuple[list[Answered], int]]:
        """The predictions of so many texts at a time, and how many of these texts were cut.

        Where a text cannot be read, those before it are answered first.
        """
        if chunk < 1:
            raise ConfigError(f"`chunk` should be 1 or more. Found {chunk}.")
        rest, more = iter(examples), True
        while more:
            taken = portion(rest, chunk)
            if taken.texts:
                self._check_fitted()
                known = as_examples(taken.texts, self.tags_)
                tokens = self._tokens(known, warn=False)
                yield self._answers(known, tokens), tokens.truncated
            if taken.bad is not None:
                raise taken.bad
            more = taken.more

    def warn_of_cuts(self, cuts: int, texts: int, unread: int = 0) -> None:
        """One warning that counts the texts that were cut, where there are any, and the words that were not read."""
        if cuts:
            warn_of_cuts(cuts, texts, self.max_tokens_ * self.windows_, unread)

    def evaluate(self, data: Table) -> Evaluated:
        """Scores under the policy, and of every exit on its own."""
        self._check_fitted()
        if self.tags_:
            return self._evaluate_tags(data)
        truth = self.truth(data)
        tokens = self._tokenise(data.examples)
        decision = self._run(tokens)
        kind: type[Evaluation] | type[SetEvaluation] = SetEvaluation if self.sets_ else Evaluation
        return kind.of(
            truth,
            answers_of(decision.logits, self.sets_).tolist(),
            decision.depth.tolist(),
            answers(self.engine_, tokens, self.batch_size, self.sets_),
            self.engine_.trained,
            self.engine_.depth,
            list(self.labels_.names),
            self.policy_in_force(),
        )

    def _evaluate_tags(self, data: Table) -> TagEvaluation:
        truth, names = encode_tags(self.labels_, data), self.labels_.names
        tokens = self._tokenise(data.examples)
        decision = self._run(tokens)
        assert tokens.words is not None
        depths = tokens.words.whole(decision.depth.tolist(), absent=0)
        every = answers(self.engine_, tokens, self.batch_size)
        return TagEvaluation.of(
            [[names[k] for k in own] for own in truth],
            _whole(tokens, answers_of(decision.logits, sets=False).tolist(), names),
            [[depth or None for depth in own] for own in depths],
            {depth: _whole(tokens, given, names) for depth, given in every.items()},
            self.engine_.trained,
            self.engine_.depth,
            list(names),
            self.policy_in_force(),
        )

    def truth(self, data: Table, tokens: Tokens | None = None) -> list[Any]:
        """The class numbers of labelled texts, or their rows of 0 and 1 where they have sets of labels.

        A classifier that grew exits also knows its labels by their numbers. Of tags, the class numbers of the words
        that are read, in reading order; `tokens` are those of the texts, where they are known.
        """
        self._check_fitted()
        if self.tags_:
            numbers = encode_tags(self.labels_, data)
            words = (self._tokenise(data.examples, warn=False) if tokens is None else tokens).words
            assert words is not None
            return words.read(numbers)
        if self.sets_:
            return encode_sets(self.labels_, data)
        grown = self.config_.optimise.strategy == "grow"
        return encode(self.labels_, spelled(data, self.labels_.names) if grown else data)

    def representations(self, data: Table, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What the exit at `depth` makes of labelled texts, (N, D), and its label embeddings, (C, D)."""
        tokens = self._tokenise(data.examples, warn=False)  # whoever asks has evaluated these texts
        output = pool(self.engine_, tokens, self.batch_size, [depth]).outputs[depth]
        return output.representation, output.label_embeddings

    def curve(self, data: Table, policy: str | None = None) -> Curve:
        """Accuracy, layers and time of a policy from one threshold to another, and the AUROC of its score.

        The policy is the one in force where that has a threshold, else `confidence`.
        """
        name, make = self._swept(policy)
        tokens = self._tokenise(data.examples, warn=False)  # whoever asks has evaluated these texts
        truth = self.truth(data, tokens)
        return speed_curve(self.engine_, tokens, truth, name, make, self.certified_, self.batch_size, self.sets_)

    # --- policy

    def calibrate(
        self,
        data: Table,
        max_drop: float | None = None,
        max_disagreement: float | None = None,
        confidence: float = 0.95,
        budget_layers: float | None = None,
        policy: str = "auto",
    ) -> Certificate:
        """Choose a policy and its thresholds on held-out texts; from now on it is in force unless another is named.

        With neither a drop, nor a disagreement, nor a budget, the drop is at most 0.01. A disagreement needs no labels.
        """
        self._check_fitted()
        asked = (max_drop, max_disagreement, confidence, budget_layers, policy)
        request = Request.of(*asked, self.sets_, self.tags_, self.config_.policy.patience)
        data = evidential(self.seen_, data)
        known = self.truth(data) if request.needs_labels and not self.tags_ else None
        tokens = self._tokenise(data.examples)
        truth = self.truth(data, tokens) if request.needs_labels and self.tags_ else known
        self.certified_ = certify(self.engine_, tokens, truth, request, data.name, self.batch_size, self.fingerprint())
        return self.certified_.certificate

    def fingerprint(self) -> str:
        """What tells this model, and how it reads texts, from any other: by it a certificate knows its model."""
        self._check_fitted()
        return certified.fingerprint(self.engine_, self.tokenizer_, self.max_tokens_)

    @property
    def certificate(self) -> Certificate | None:
        """What the calibrated policy promises; None where nothing is promised, or another policy is in force."""
        self._check_fitted()
        if self.certified_ is None or self._is_named() or not self.is_certified():
            return None
        return self.certified_.certificate

    def policy_in_force(self) -> dict[str, object]:
        """The policy's name and the settings it uses."""
        self._check_fitted()
        if self.certified_ is not None and not self._is_named():
            told = self.certified_.certificate
            return {"name": told.policy, "thresholds": dict(told.thresholds), "certified": told.certified}
        config = self.config_.policy
        # A threshold or a depth alone says which policy is meant.
        implied = "confidence" if self.threshold is not None else "fixed" if self.depth is not None else config.name
        name = self.policy if self.policy is not None else implied
        found: dict[str, object] = {"name": name}
        if name not in POLICIES:
            raise unknown_name("policy", name, POLICIES)
        if issubclass(POLICIES[name], Scored):
            found["threshold"] = self.threshold if self.threshold is not None else config.threshold
        if name == "patient-confidence":
            found["patience"] = config.patience
        if name == "fixed":
            depth = self.depth if self.depth is not None else config.depth
            if not 0 <= depth <= self.engine_.depth:
                raise ConfigError(f"`depth` should be between 1 and {self.engine_.depth}. Found {depth}.")
            found["depth"] = depth or self.engine_.depth
        return found

    def make_policy(self) -> Policy:
        """The policy in force, ready to run."""
        found: dict[str, Any] = self.policy_in_force()
        if self.certified_ is not None and not self._is_named():
            return self.certified_.policy()
        fitted = None if self.certified_ is None else self.certified_.tensors_of(found["name"])
        patience = found.get("patience", PATIENCE)
        return policy(found["name"], found.get("threshold", 1.0), found.get("depth", 0), patience, fitted, self.sets_)

    def _swept(self, name: str | None) -> tuple[str, Make]:
        """The policy that a curve is of, and how it is made with any thresholds."""
        in_force = str(self.policy_in_force()["name"])
        chosen = name if name is not None else in_force if in_force in SCORED else "confidence"
        if chosen not in SCORED:
            raise unknown_name("policy with a threshold", chosen, SCORED)
        certified, patience = self.certified_, self.config_.policy.patience
        fitted = None if certified is None else certified.tensors_of(chosen)
        if certified is not None and certified.certificate.policy == chosen and not self._is_named():
            patience = int(certified.certificate.settings.get("patience", PATIENCE))

        def make(thresholds: float | Mapping[int, float]) -> Scored:
            made = policy(chosen, thresholds, patience=patience, tensors=fitted, sets=self.sets_)
            assert isinstance(made, Scored)
            return made

        return chosen, make

    def _is_named(self) -> bool:
        """Whether the caller chose a policy."""
        return not (self.policy is None and self.threshold is None and self.depth is None)

    def is_certified(self) -> bool:
        """Whether a certificate keeps the risk of the policy in force: its own, or all layers, which harm nothing."""
        known = self.certified_ is not None and self.certified_.certificate.certified
        return known and (not self._is_named() or self.runs_all_layers())

    def runs_all_layers(self) -> bool:
        """Whether the policy in force lets nobody leave before the last layer."""
        told = self.policy_in_force()
        return told["name"] == "never" or (told["name"] == "fixed" and told["depth"] == self.engine_.depth)

    def _run(self, tokens: Tokens) -> Decision:
        """Logits (N, C) and depths (N,) of texts in their order."""
        chosen = self.make_policy()
        if not len(tokens):
            return Decision(torch.empty(0, len(self.labels_)), torch.empty(0, dtype=torch.int64))
        return run(self.engine_, tokens, chosen, self.batch_size)

    def _tokenise(self, X: Any, warn: bool = True) -> Tokens:
        self._check_fitted()
        return self._tokens(as_examples(X, self.tags_), warn)

    def _tokens(self, examples: Sequence[Example], warn: bool = True) -> Tokens:
        return Tokens.of(self.tokenizer_, examples, warn=warn, **self.reading())

    def reading(self) -> dict[str, Any]:
        """How its texts become tokens, as `Tokens.of` takes it."""
        cut = {"max_length": self.max_tokens_, "windows": self.windows_, "overlap": self.overlap_}
        return {**cut, "tags": self.tags_, "pairs": self.pairs_}

    def _table(self, examples: list[Example]) -> Table:
        """Examples of the training as a table."""
        return read(examples, **_labels_of(self.config_))

    def _check_fitted(self) -> None:
        if not hasattr(self, "engine_"):
            raise NotFitted("A classifier should be fitted or loaded first: call fit(texts, labels) or load(folder).")

    # --- on disk

    def save(self, folder: str | Path) -> None:
        """Write a model folder, with its certificate where it has one."""
        model = self._torch_model()
        refuse(Path(folder))
        checkpoint.save(Path(folder), model, self.tokenizer_, self.config_, seen=self.seen_)
        self.save_certificate(folder)

    def save_certificate(self, folder: str | Path) -> None:
        """Write what `calibrate` found into a model folder, or remove what is there."""
        self._check_fitted()
        certified.write(Path(folder), self.certified_)

    def export(
        self,
        folder: str | Path,
        int8: bool = False,
        exits: Sequence[int] | None = None,
        data: Table | None = None,
        max_drop: float = 0.01,
    ) -> dict[str, float | int]:
        """Write the model as ONNX segments, which `load` reads; a certificate does not go along.

        With texts, the accuracy of the last exit on them before and after is returned; int8 that loses more than
        `max_drop` of it is refused, and nothing is written.
        """
        model = self._torch_model()
        if not 0 <= max_drop < 1:
            raise ConfigError(f"`max_drop` should be 0 or more and below 1. Found {max_drop:g}.")
        measured = None if data is None else self._compare(data, max_drop if int8 else None)
        return export(Path(folder), model, self.tokenizer_, self.config_, int8, exits, measured, self.seen_)

    def _compare(self, data: Table, most: float | None) -> Comparison:
        tokens = self._tokenise(data.examples)
        truth = self.truth(data, tokens)
        if len(truth) != tokens.answers:
            raise DataError(f"Every text should have a label. Found {len(truth)} labels of {len(data.examples)} texts.")
        return Comparison(self.engine_, tokens, truth, self.batch_size, most, self.sets_)

    def _torch_model(self) -> MultiExitModel:
        self._check_fitted()
        if not isinstance(self.engine_, TorchEngine):
            raise ModelError("The model should be one that `offramp train` wrote. Found an exported one.")
        return self.engine_.model

    @classmethod
    def load(
        cls, folder: str | Path, threads: int | None = None, certificate: bool = True, **parameters: Any
    ) -> Classifier:
        """Read a model folder, as trained or as exported; `parameters` are the constructor's.

        `threads` are by default one per core; of a model in torch they are those of the whole process. Without
        `certificate` the one in the folder is not read, be it void or damaged: to calibrate again. Fitted again, it
        trains as the model was trained.
        """
        home = Path(folder)
        if is_exported(home):
            engine, made_of, tokenizer, config = load_exported(home, threads)
            classifier = cls._with(config, parameters)
            classifier._take(engine, tokenizer, config, made_of)
        else:
            if threads is not None:
                set_threads(threads)
            model, tokenizer, config = checkpoint.load(home)
            classifier = cls._with(config, parameters)
            classifier._adopt(model, tokenizer, config)
        classifier.seen_ = checkpoint.load_seen(home)
        if certificate:
            classifier.certified_ = certified.read(home, classifier.engine_.name, classifier.fingerprint())
        return classifier

    @classmethod
    def of(cls, model: MultiExitModel, tokenizer: Any, seen: Any = None, **parameters: Any) -> Classifier:
        """A classifier around a model that was trained elsewhere; `parameters` are the constructor's.

        `seen` are the texts that it was trained on, in any form that `predict` takes: `calibrate` leaves them out.
        """
        made_of = model.config
        exits = ExitsConfig(made_of.exit_kind, size=made_of.exit_size, heads=made_of.exit_heads)
        labels = TAGS if made_of.tags else SET if made_of.sets else ONE
        data = DataConfig(labels=labels, max_length=made_of.max_tokens)
        config = Config(recipe="elsewhere", exits=exits, data=data)
        classifier = cls(**parameters)
        classifier._adopt(model.train(False), tokenizer, config)
        classifier.seen_ = None if seen is None else digests(as_examples(seen, made_of.tags))
        return classifier

    @classmethod
    def _with(cls, config: Config, parameters: Mapping[str, Any]) -> Classifier:
        return cls(**{"recipe": config.recipe, "settings": changes(config), **parameters})


def _labels_of(config: Config) -> dict[str, Any]:
    """How `as_table` and `read` take the labels of a configuration."""
    how = columns(config.data)
    return {name: how[name] for name in ("separator", "tags")}


def _whole(tokens: Tokens, classes: Sequence[int], names: Sequence[Label]) -> list[list[Label | None]]:
    """The tag of each word of each text, from the class of each word that is read; None for any other."""
    assert tokens.words is not None
    every = tokens.words.whole(classes, absent=-1)
    return [[None if number < 0 else names[number] for number in own] for own in every]


@contextmanager
def _bad_texts_kept(training: Path | None, texts: Sequence[Example]) -> Iterator[None]:
    """Write down the texts whose loss was no number, for whoever looks for the reason."""
    try:
        yield
    except NotFinite as error:
        if training is None:
            raise
        file = training / BAD_BATCH
        with suppress(OSError):  # the reason is told even where the disk is full
            write_texts(file, [texts[row] for row in error.rows])
            raise NotFinite(f"{error} The texts of that batch are in `{file}`.", error.rows) from error
        raise


def _check_policy(config: Config) -> None:
    """Refuse a threshold that the policy cannot have, or a policy to be fitted, before the training and not after."""
    wanted = config.policy
    policy(wanted.name, wanted.threshold, wanted.depth, wanted.patience, sets=config.data.labels == SET)


def _mapped(settings: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Settings by their keys; a list of them may hold `key=value` only."""
    if settings is None or isinstance(settings, Mapping):
        return dict(settings or {})
    pairs = [setting.partition("=") for setting in settings]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise ConfigError(f"A setting should look like key=value. Found `{wrong[0]}`.")
    return {key.strip(): value.strip() or value for key, _, value in pairs}


def _written(value: Any) -> str:
    """A setting's value as it would stand on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(list(value), ensure_ascii=False) if isinstance(value, list | tuple) else str(value)
