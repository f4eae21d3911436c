"""LOSS -> PARAMETERS: the only training loop.

It runs a strategy's phases on accelerate, validates after every epoch, keeps the best weights, writes
checkpoints from which a killed run goes on to the same bits, and tells whoever watches what happens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

from offramp.config import Config
from offramp.data.sampling import POOL, class_balanced, length_buckets, sorted_batches
from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.errors import TrainingError
from offramp.exits.model import MultiExitModel
from offramp.optimise.aggregators import aggregator
from offramp.optimise.alignment import Rule
from offramp.optimise.grad_cache import CACHED
from offramp.optimise.gradients import SCOPES, Measured, Scene
from offramp.optimise.journal import Journal, Watch
from offramp.optimise.saved_state import SavedState
from offramp.optimise.strategies import Phase, plan
from offramp.optimise.update import Update, rate
from offramp.types import EpochRecord, Objective, StepRecord

Score = Callable[[Sequence[int], Sequence[int]], float]
"""Truth and prediction to the validation score."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    score: float
    metric: str
    best_epoch: int
    epochs: int
    updates: int
    seconds: float
    stopped_early: bool


@dataclass(slots=True)
class Place:
    """Where a run is: all that a checkpoint must know besides tensors."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    update: int = 0  # updates of the run
    top_score: float = -math.inf  # the best so far
    best_score: float = -math.inf  # that of the weights that are kept
    best_epoch: int = 0
    waiting: int = 0  # epochs since the top score
    epoch_loss: float = 0.0  # sum over the epoch's batches
    seconds: float = 0.0


class Loop:
    """One run: a model, its objective, its texts."""

    def __init__(
        self,
        model: MultiExitModel,
        objective: Objective,
        config: Config,
        train: Tokens,
        validation: Tokens,
        score: Score,
        folder: Path | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.model, self.objective, self.config = model, objective, config
        self.train, self.validation, self.score = train, validation, score
        tracker = {"log_with": "tensorboard", "project_dir": str(folder)} if folder else {}
        _forget_precision(config.optimise.precision)
        self.accelerator = Accelerator(mixed_precision=config.optimise.precision, **tracker)
        self.journal = Journal(self.accelerator, folder, watch)
        self.saved = SavedState(folder) if folder else None
        self.shuffler = torch.Generator()
        self.place = Place()
        self.best: dict[str, Tensor] = {}

    def run(self, resume: bool = False) -> Result:
        """Train until done; with `resume`, from the newest checkpoint."""
        # The shuffler and the global generator (dropout) are seeded apart, so that one does not shift the other.
        torch.manual_seed(self.config.optimise.seed)
        self.shuffler.manual_seed(self.config.optimise.seed + 1)
        self.model.to(self.accelerator.device)
        phases = plan(self.config.optimise.strategy, self.model)
        restored = self.saved.read() if resume and self.saved else None
        if restored:
            self.place = Place(**restored[1]["place"])
        began = time.monotonic() - self.place.seconds
        try:
            self.journal.open(self.place.update)
            for number in range(self.place.phase, len(phases)):
                self.place.phase = number
                self._phase(phases[number], restored, began)
                restored = None
        except OSError as error:
            raise TrainingError(f"The run's folder could not be written: {error}. {self._advice()}") from error
        finally:
            self.journal.close()
        return Result(
            score=self.place.best_score,
            metric=self.config.optimise.metric,
            best_epoch=self.place.best_epoch,
            epochs=self.place.epoch,
            updates=self.place.update,
            seconds=time.monotonic() - began,
            stopped_early=self.place.epoch < self.config.optimise.epochs,
        )

    # --- one phase

    def _phase(self, phase: Phase, restored: tuple[dict[str, Tensor], dict[str, Any]] | None, began: float) -> None:
        settings = self.config.optimise
        learning = {id(p) for p in phase.trainable}
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        update = Update(self.model, phase.trainable, settings)
        rule = Rule(self.config.alignment.threshold, aggregator(self.config.alignment.aggregator))
        views = Views(self.config.data.views, self.config.data.cutoff) if self.objective.views > 1 else None
        scene = Scene(self.model, self.objective, phase, rule, self.accelerator.autocast, views=views)
        epoch_state = self.shuffler.get_state()
        if restored:
            epoch_state = self._restore(restored[0], update)
        per_epoch = math.ceil(self._batch_count() / self._accumulation())
        updates = per_epoch * settings.epochs
        self.journal.start(updates, self.place.update)
        try:
            while self.place.epoch < settings.epochs and not self._tired():
                if self.place.batch == 0:
                    epoch_state = self.shuffler.get_state()
                self.shuffler.set_state(epoch_state)
                self._epoch(scene, update, updates, per_epoch, epoch_state, began)
                self._validate(phase)
                self._checkpoint(update, self.shuffler.get_state(), began)
        except (RuntimeError, MemoryError) as error:
            # torch's allocator for the processor raises a plain RuntimeError.
            ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
            if not ran_out:
                raise
            less = "optimise.batch_size and raise optimise.accumulation"
            less = "optimise.contrast_batch or optimise.batch_size" if settings.contrast_batch else less
            raise TrainingError(f"Memory ran out: {error}. Lower {less}. {self._advice()}") from error
        finally:
            update.close()
            for parameter in self.model.parameters():
                parameter.requires_grad_(True)
        self.model.load_state_dict(self.best)
        self.model.config.trained_exits = sorted({*self.model.config.trained_exits, *phase.exits})
        self.model.train(False)

    def _tired(self) -> bool:
        patience = self.config.optimise.patience
        return bool(patience) and self.place.waiting >= patience

    def _epoch(
        self, scene: Scene, update: Update, updates: int, per_epoch: int, epoch_state: Tensor, began: float
    ) -> None:
        settings = self.config.optimise
        batches = self._batches()
        self.model.train()
        accumulation = self._accumulation()
        for first in range(self.place.batch, len(batches), accumulation):
            group = batches[first : first + accumulation]
            # The last update of an epoch may have fewer batches than the others.
            here = replace(scene, share=1.0 / len(group))
            measured = [self._gradients(here, rows) for rows in group]
            share = rate(self.place.update, updates, settings.warmup)
            record = self._record(measured, share, per_epoch)
            norm = update.apply(share) if math.isfinite(record.loss) else None
            if norm is None or not math.isfinite(norm):
                what = f"The loss became {record.loss}" if norm is None else f"The gradient's norm became {norm}"
                raise TrainingError(
                    f"{what} at update {record.step}. Lower optimise.lr_backbone or raise objective.temperature. "
                    f"{self._advice()}"
                )
            self.place.update += 1
            self.place.batch = first + len(group)
            self.place.epoch_loss += sum(m.loss for m in measured)
            self.journal.step(record)
            due = settings.checkpoint_steps and self.place.update % settings.checkpoint_steps == 0
            if due and self.place.batch < len(batches):
                self._checkpoint(update, epoch_state, began)

    def _gradients(self, scene: Scene, rows: list[int]) -> Measured:
        """Leave the gradients of these texts; those that are more than a batch go through the gradient cache."""
        size, scope = self.config.optimise.batch_size, self.config.alignment.scope
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        batches = [self.train.batch(part).to(self.accelerator.device) for part in parts]
        return CACHED[scope](scene, batches) if len(batches) > 1 else SCOPES[scope](scene, batches[0])

    def _together(self) -> int:
        """How many texts a loss is taken over."""
        return self.config.optimise.contrast_batch or self.config.optimise.batch_size

    def _batch_count(self) -> int:
        """Batches of an epoch."""
        return math.ceil(len(self.train) / self._together())

    def _accumulation(self) -> int:
        """Batches whose gradients make one update."""
        settings = self.config.optimise
        if not settings.updates_per_epoch:
            return settings.accumulation
        return max(settings.accumulation, round(self._batch_count() / settings.updates_per_epoch))

    def _batches(self) -> list[list[int]]:
        data, size = self.config.data, self._together()
        if data.sampler == "balanced":
            return class_balanced(self.train.labels_or_raise(), data.per_class, size, self.shuffler)
        # Among as many texts as without a contrast batch: from a larger pool the same texts would meet every epoch.
        pool = max(1, POOL * self.config.optimise.batch_size // size)
        return length_buckets(self.train.lengths, size, self.shuffler, pool)

    def _record(self, measured: list[Measured], share: float, per_epoch: int) -> StepRecord:
        angles = [m.angle for m in measured if m.angle is not None]
        count = len(measured)

        def middle(values: Iterable[float]) -> float:
            """Of the batches that have the value: a zero gradient has no angle to another."""
            finite = [value for value in values if not math.isnan(value)]
            return sum(finite) / len(finite) if finite else math.nan

        return StepRecord(
            step=self.place.update + 1,
            epoch=(self.place.update + 1) / per_epoch,
            loss=sum(m.loss for m in measured) / count,
            parts={name: sum(m.parts[name] for m in measured) / count for name in measured[0].parts},
            lr=self.config.optimise.lr_backbone * share,
            angle=middle(a.degrees for a in angles) if angles else None,
            kept=sum(a.kept for a in angles) / len(angles) if angles else None,
            main_norm=sum(a.main_norm for a in angles) / len(angles) if angles else None,
            auxiliary_norm=sum(a.auxiliary_norm for a in angles) / len(angles) if angles else None,
            cosines={g: middle(a.cosines[g] for a in angles) for g in angles[0].cosines} if angles else {},
        )

    # --- validation and checkpoints

    def _validate(self, phase: Phase) -> None:
        metric = self.config.optimise.metric
        truth = self.validation.labels_or_raise()
        predicted = self._predict(max(phase.exits))
        score = self.score(truth, predicted)
        place = self.place
        record = EpochRecord(
            epoch=place.epoch + 1,
            step=place.update,
            score=score,
            metric=metric,
            loss=place.epoch_loss / max(1, place.batch),
            best=score >= max(score, place.top_score) - self._noise(max(score, place.top_score)),
        )
        place.epoch, place.batch, place.epoch_loss = place.epoch + 1, 0, 0.0
        place.waiting = 0 if score > place.top_score else place.waiting + 1
        place.top_score = max(score, place.top_score)
        if record.best:
            place.best_score, place.best_epoch = score, place.epoch
            self.best = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        self.journal.epoch(record)

    def _noise(self, score: float) -> float:
        """How far below the top score a later epoch may be: standard errors of a share of the validation texts."""
        share = min(1.0, max(0.0, score))
        return self.config.optimise.tolerance * math.sqrt(share * (1.0 - share) / len(self.validation))

    @torch.inference_mode()
    def _predict(self, depth: int) -> list[int]:
        self.model.train(False)
        answers = torch.zeros(len(self.validation), dtype=torch.int64)
        for rows in sorted_batches(self.validation.lengths, 64):
            with self.accelerator.autocast():
                batch = self.validation.batch(rows).to(self.accelerator.device)
                logits = self.model.outputs(batch, [depth])[depth].logits
            answers[torch.tensor(rows)] = logits.argmax(dim=1).cpu()
        found: list[int] = answers.tolist()
        return found

    def _checkpoint(self, update: Update, epoch_state: Tensor, began: float) -> None:
        if self.saved is None:
            return
        self.place.seconds = time.monotonic() - began
        tensors: dict[str, Tensor] = {f"model/{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"best/{name}": t for name, t in self.best.items()}
        for index, parameter in enumerate(update.parameters):
            for name, value in update.optimizer.state[parameter].items():
                tensors[f"optimizer/{index}/{name}"] = value
        tensors["random/shuffler"] = epoch_state
        tensors["random/torch"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random/cuda"] = torch.cuda.get_rng_state()
        self.saved.write(self.place.update, tensors, {"place": asdict(self.place)})

    def _restore(self, tensors: dict[str, Tensor], update: Update) -> Tensor:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}

        self.model.load_state_dict(part("model/"))
        self.best = part("best/")
        for index, parameter in enumerate(update.parameters):
            update.optimizer.state[parameter] = {
                name: t if name == "step" else t.to(parameter.device) for name, t in part(f"optimizer/{index}/").items()
            }
        torch.set_rng_state(tensors["random/torch"])
        if torch.cuda.is_available() and "random/cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random/cuda"])
        self.shuffler.set_state(tensors["random/shuffler"])
        return tensors["random/shuffler"]

    def _advice(self) -> str:
        return self.saved.advice() if self.saved else "Nothing was saved."


def _forget_precision(wanted: str) -> None:
    """Let a run have another precision than the one before it: accelerate holds one per process."""
    if AcceleratorState._shared_state.get("_mixed_precision", wanted) != wanted:
        AcceleratorState._reset_state()
