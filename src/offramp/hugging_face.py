"""At home with Hugging Face: the model as its auto classes, its pipelines and its `Trainer` use it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.hub import cached_file

from offramp.errors import ConfigError
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.reading import answers
from offramp.types import Batch, Label, Policy

if TYPE_CHECKING:
    from offramp.optimise.strategies import Phase

FROM_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
"""What `from_pretrained` is told of where files lie."""


@dataclass
class EarlyExitOutput(SequenceClassifierOutput):
    """Hugging Face's output, and where each text left, (B,)."""

    depth: Tensor | None = None


class EarlyExitModel(MultiExitModel):
    """The model with a policy and an objective of its own.

    Without labels, texts leave under `policy`, which `from_pretrained` takes from the folder: the certified one, or the
    one of its settings. With labels, `loss` is the sum of the exits' losses, as the strategy `joint` has it, and the
    logits are the last exit's, so that `Trainer` trains and evaluates it.
    """

    def __init__(self, config: MultiExitConfig, *given: Any) -> None:
        super().__init__(config, *given)
        self.policy: Policy | None = None
        self._lesson: tuple[Any, Any] | None = None

    @classmethod
    def from_pretrained(cls, name: Any, *given: Any, **how: Any) -> Any:  # type: ignore[override]
        """The model of a folder or of a hub's repository, with the policy that lies beside it."""
        places = {key: how[key] for key in FROM_HUB if how.get(key) is not None}
        loaded = super().from_pretrained(name, *given, **how)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.policy = _policy_beside(model, name, places)
        return loaded

    def learns(self, objective: Any, phase: Any) -> None:
        """Take an objective, and a phase that says which exits it is asked of and how much each counts."""
        self._lesson = objective, phase
        self.config.trained_exits = sorted(phase.exits)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """The answer of the exit where each text leaves; with labels, the exits' loss and the last exit's answer."""
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        if labels is not None:
            loss, logits = self._learn(batch, labels)
            return SequenceClassifierOutput(loss=loss, logits=logits)  # type: ignore[arg-type]
        if self.policy is None or self.training:
            return super().forward(input_ids, attention_mask, token_type_ids)
        from offramp.runtime.torch_engine import decide

        decision = decide(self, batch, self.policy)
        return EarlyExitOutput(logits=decision.logits, depth=decision.depth)  # type: ignore[arg-type]

    def _learn(self, batch: Batch, labels: Tensor) -> tuple[Tensor, Tensor]:
        from offramp.objectives.ce import CrossEntropy
        from offramp.optimise.gradients import Scene, loss_of
        from offramp.optimise.strategies import plan

        if self.training:
            self.policy = None  # its thresholds, and what was promised of them, are about the weights as they were
            if self._lesson is None:
                self.learns(CrossEntropy(), plan("joint", self)[0])
        objective, phase = self._lesson or (CrossEntropy(), self._examined(plan("joint", self)[0]))
        outputs = self.outputs(batch, phase.exits)
        return loss_of(Scene(self, objective, phase), outputs, labels).total, outputs[self.depth].logits

    def _examined(self, phase: Phase) -> Phase:
        """The phase with the exits that have learnt something: to be asked teaches none of the others."""
        return replace(phase, exits=tuple(self.config.trained_exits) or (self.depth,), weights=())


def model_to_train(
    labels: Sequence[Label],
    recipe: str = "jt",
    backbone: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] | None = None,
    seed: int | None = None,
) -> tuple[EarlyExitModel, Any]:
    """A model and its tokenizer, for `Trainer`: labels by class number, the objective of the recipe.

    Its exits are fresh, unless `backbone` is a model folder whose exits fit.

    The recipe's strategy should be `joint` or `single`: a `Trainer` knows one phase, and neither alignment nor views.
    """
    from offramp.beginning import begin
    from offramp.classifier import Classifier
    from offramp.data.labels import Labels
    from offramp.optimise.coherence import check
    from offramp.optimise.strategies import plan
    from offramp.preparation import first_objective

    config = Classifier(recipe, backbone, settings, seed).config()
    check(config)
    known, objective = Labels(tuple(labels)), first_objective(config, Labels(tuple(labels)), [])
    for field, found, wanted in (
        ("optimise.strategy", config.optimise.strategy, ("joint", "single")),
        ("alignment.scope", config.alignment.scope, ("none",)),
        ("compress.method", config.compress.method, ("none",)),
        ("objective.class_weights", config.objective.class_weights, ("none",)),
    ):
        if found not in wanted:
            raise ConfigError(f"`{field}` should be {' or '.join(wanted)} for a `Trainer`. Found `{found}`.")
    if objective.views > 1:
        raise ConfigError(f"The objective should see each text once for a `Trainer`. Found {config.objective.name}.")
    with torch.random.fork_rng():
        torch.manual_seed(config.optimise.seed)
        model, tokenizer = begin(config, known, EarlyExitModel)
    assert isinstance(model, EarlyExitModel)
    model.learns(objective, plan(config.optimise.strategy, model, config.optimise)[0])
    return model, tokenizer


def compute_metrics(prediction: Any) -> dict[str, float]:
    """Accuracy, macro-F1 and Matthews correlation of what a `Trainer` predicted; of label sets, their own scores."""
    from offramp.report.metrics import NAMES, scores
    from offramp.report.set_metrics import SHOWN, set_scores

    logits, truth = torch.as_tensor(prediction.predictions), np.asarray(prediction.label_ids)
    if truth.ndim == 2:
        sets = set_scores(truth.tolist(), answers(logits, sets=True).tolist())
        return {name: getattr(sets, name) for name in SHOWN}
    found = scores(truth.tolist(), answers(logits, sets=False).tolist(), logits.shape[1])
    return {name: value for name in NAMES if (value := getattr(found, name, None)) is not None}


def _policy_beside(model: MultiExitModel, name: Any, places: Mapping[str, Any]) -> Policy | None:
    """The policy in force in a model folder; None where nothing is told of one, as in a folder of plain weights."""
    from offramp.config import from_mapping
    from offramp.exits.folder import SETTINGS
    from offramp.policies import policy
    from offramp.runtime import certified
    from offramp.runtime.torch_engine import TorchEngine

    def beside(file: str) -> Path | None:
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        found = cached_file(name, file, **places, **quiet)
        return None if found is None else Path(found)

    certificate = beside(certified.CERTIFICATE)
    if certificate is not None:
        beside(certified.FITTED)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **places)
        mark = certified.fingerprint(TorchEngine(model), tokenizer, model.config.max_tokens)
        read = certified.read(certificate.parent, TorchEngine.name, mark)
        if read is not None:
            return read.policy()
    settings = beside(SETTINGS)
    if settings is None:
        return None
    wanted = from_mapping(tomllib.loads(settings.read_text("utf-8"))).policy
    return policy(wanted.name, wanted.threshold, wanted.depth or model.depth, wanted.patience, sets=model.config.sets)


AutoConfig.register("offramp", MultiExitConfig, exist_ok=True)
AutoModelForSequenceClassification.register(MultiExitConfig, EarlyExitModel, exist_ok=True)
