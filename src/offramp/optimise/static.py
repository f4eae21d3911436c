"""LOSS -> PARAMETERS: static models, made smaller for good by the stages of a method.

Each stage is a run of the one loop. The last one's log and checkpoints lie in the run's folder, those of the stages
before it in folders of their names below it. A stage that is done leaves its model there, an ordinary model folder, so
that a killed run goes on with the stage it was in; the models are removed when the run is done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offramp.config import Config
from offramp.data.tokens import Tokens
from offramp.errors import ConfigError, ModelError
from offramp.exits import checkpoint
from offramp.exits.heads import check_headed
from offramp.exits.model import MultiExitModel
from offramp.objectives.base import Term
from offramp.optimise import distilbert, head_pruning, layerdrop, processes, theseus, tinybert, truncate
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop, Result, Score
from offramp.optimise.run_folder import finish, finished
from offramp.optimise.saved_state import SavedState
from offramp.optimise.stage import FULL, Lessons, Stage, layers
from offramp.types import Label

METHODS: dict[str, Callable[[Lessons], list[Stage]]] = {
    "truncate": truncate.stages,
    "layerdrop": layerdrop.stages,
    "heads": head_pruning.stages,
    "distil": distilbert.stages,
    "tiny": tinybert.stages,
    "theseus": theseus.stages,
}
"""Names of `compress.method` to the functions that make the stages."""

_MODEL = "model"


@dataclass(frozen=True)
class Static:
    """A run that ends with a smaller model: what all its stages share."""

    config: Config
    objective: Term
    train: Tokens
    validation: Tokens
    score: Score
    tokenizer: Any
    folder: Path | None = None
    watch: Watch | None = None

    def run(self, model: MultiExitModel, resume: bool = False) -> tuple[MultiExitModel, Result]:
        """Train until done; the full model in, the smaller one and how the last stage ended out."""
        models, seconds = {FULL: _still(model)}, 0.0
        stages = METHODS[self.config.compress.method](Lessons(self.config, self.objective, self.train))
        for stage in stages:
            home = self.folder if stage is stages[-1] or self.folder is None else self.folder / stage.name
            below = home if stage is not stages[-1] else None
            done = _read(below) if resume and below is not None else None
            made, result = done or self._train(stage, models, home, resume)
            if below is not None and done is None:
                _write(below, made, result, self.tokenizer, self.config)
            models[stage.name] = _still(made)
            seconds += result.seconds
        made.requires_grad_(True)
        return made, replace(result, seconds=seconds)

    def _train(
        self, stage: Stage, models: dict[str, MultiExitModel], home: Path | None, resume: bool
    ) -> tuple[MultiExitModel, Result]:
        model = stage.begin(models)
        model.requires_grad_(True)
        config = replace(self.config, optimise=stage.settings)
        phase = stage.phase(model, models)
        loop = Loop(
            model, self.objective, config, self.train, self.validation, self.score, home, self.watch, phases=[phase]
        )
        for other in models.values():
            other.to(loop.accelerator.device)
        result = loop.run(resume)
        model.encoder.instead = None
        left = stage.end(model)
        return left, replace(result, by_exit={str(left.depth): result.score})


def check_static(config: Config, model: MultiExitModel) -> None:
    """Refuse a method that this model cannot be made smaller by."""
    if config.compress.method != "none" and processes.count() > 1:
        raise ConfigError(
            f"`compress.method` should be none where processes train together. Found {config.compress.method}."
        )
    method, depth = config.compress.method, model.depth
    if method in ("heads", "tiny"):
        check_headed(model.encoder.backbone)
    if method not in ("none", "heads") and not 0 < layers(config, depth) < depth:
        raise ConfigError(
            f"`compress.layers` should be between 1 and {depth - 1}, below the {depth} layers that there are. "
            f"Found {layers(config, depth)}."
        )


def full_model(folder: Path, labels: Sequence[Label]) -> tuple[MultiExitModel, Any]:
    """A trained model that is to be made smaller, and its tokenizer; its labels should be those of the texts."""
    model, tokenizer, _ = checkpoint.load(folder)
    if model.config.labels != list(labels):
        raise ModelError(
            f"`compress.teacher` should be a model with the labels of the training texts, {_few(labels)}. "
            f"`{folder}` has {_few(model.config.labels)}."
        )
    return model, tokenizer


def remove_stages(folder: Path) -> None:
    """Remove the models that the stages left in a run's folder: the run is done."""
    for path in folder.glob(f"*/{_MODEL}"):
        shutil.rmtree(path, ignore_errors=True)


def _few(names: Sequence[Label]) -> str:
    return ", ".join(map(str, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _still(model: MultiExitModel) -> MultiExitModel:
    """The model as others learn from it: without dropout and without gradients."""
    model.train(False)
    model.requires_grad_(False)
    return model


def _write(home: Path, model: MultiExitModel, result: Result, tokenizer: Any, config: Config) -> None:
    finish(home, result)
    checkpoint.save(home / _MODEL, model, tokenizer, config)
    SavedState(home).remove()


def _read(home: Path) -> tuple[MultiExitModel, Result] | None:
    """The model of a stage that is done and how it ended, or None."""
    result = finished(home)
    if result is None or not checkpoint.is_model(home / _MODEL):
        return None
    SavedState(home).remove()
    model = checkpoint.load(home / _MODEL)[0]
    for parameter in model.parameters():
        # A file's tensors lie anywhere in memory, which rounds some products in another way.
        parameter.data = parameter.data.clone()
    return model, result
