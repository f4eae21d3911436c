"""LOSS -> PARAMETERS: the only training loop.

It runs a strategy's phases on accelerate, validates after every epoch, keeps the best weights, writes
checkpoints from which a killed run goes on to the same bits, and tells whoever watches what happens.
"""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

from offramp.config import Config, OptimiseConfig, changes_from
from offramp.data.sampling import POOL, balanced_size, class_balanced, length_buckets, sorted_batches
from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.errors import Interrupted, NotFinite, TrainingError
from offramp.exits.model import MultiExitModel
from offramp.optimise import processes
from offramp.optimise.aggregators import aggregator
from offramp.optimise.alignment import Rule
from offramp.optimise.exit_gradients import APART
from offramp.optimise.exits_together import read_below
from offramp.optimise.grad_cache import CACHED
from offramp.optimise.gradients import SCOPES, Measured, Scene
from offramp.optimise.journal import Journal, Watch
from offramp.optimise.place import Keeper, Place, standard_error
from offramp.optimise.saved_state import Checkpoint, SavedState
from offramp.optimise.state_cache import WALKED, CacheWarning, Frozen, Room, open_cache, remove_caches
from offramp.optimise.stopping import Stop
from offramp.optimise.strategies import Phase, plan
from offramp.optimise.trackers import trackers
from offramp.optimise.update import Update, rate
from offramp.reading import answers
from offramp.types import EpochRecord, Objective, StepRecord

_FAR = 1_000_003
"""Between the seeds of two processes."""

Score = Callable[[Sequence[Any], Sequence[Any]], float]
"""Truth and prediction to the validation score: class numbers of texts or words, or rows of 0 and 1 of label sets."""


class TurnWarning(UserWarning):
    """Some exits of a strategy in turns have none."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended: the first phase, and every exit that was trained."""

    score: float
    metric: str
    best_epoch: int
    epochs: int
    updates: int
    seconds: float
    stopped_early: bool
    by_exit: dict[str, float] = field(default_factory=dict)  # depth to validation score of the weights that were kept


class Loop:
    """One run: a model, its objective, its texts; for a second stage, the objective of the exits below the last.

    Where processes train together, the first writes and tells; the others are given no folder and no watch.
    """

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
        second: Objective | None = None,
        phases: Sequence[Phase] = (),  # empty: those of the strategy
    ) -> None:
        self.model, self.objective, self.second, self.config = model, objective, second, config
        self.phases = phases
        self.train, self.validation, self.score = train, validation, score
        told: dict[str, Any] = {"log_with": trackers(config.optimise.track, folder)}
        told |= {"project_dir": str(folder)} if folder else {}
        _forget_precision(config.optimise.precision)
        self.accelerator = Accelerator(mixed_precision=config.optimise.precision, **told)
        self.journal = Journal(self.accelerator, folder, watch, changes_from(Config(), config))
        self.folder = folder
        self.saved = SavedState(folder) if folder else None
        self.shuffler = torch.Generator()
        self.place, self.stop = Place(), Stop()
        self.written = time.monotonic()  # the last checkpoint; before the first, since nothing was there to lose
        self.best: dict[str, Tensor] = {}
        # Of a phase on a backbone that stands still.
        self.lessons: Frozen | None = None
        self.exam: Frozen | None = None

    def run(self, resume: bool = False) -> Result:
        """Train until done; with `resume`, from the newest checkpoint."""
        # The shuffler and the global generator (dropout) are seeded apart, so that one does not shift the other.
        torch.manual_seed(self.config.optimise.seed)
        self.shuffler.manual_seed(self.config.optimise.seed + 1)
        self.model.to(self.accelerator.device)
        planned = self.phases or plan(self.config.optimise.strategy, self.model, self.config.optimise)
        phases = [self._within(phase) for phase in planned]
        restored = self.saved.read() if resume and self.saved else None
        if processes.count() > 1:
            processes.begin_alike(self.model.state_dict().values())
            # Each process's dropout draws its own numbers.
            torch.manual_seed(self.config.optimise.seed + processes.rank() * _FAR)
            restored = processes.of_first(restored)
        if restored:
            self.place = Place.of(restored.facts["place"])
        began = time.monotonic() - self.place.seconds
        try:
            self.journal.open(self.place.update)
            for number in range(self.place.phase, len(phases)):
                self._phase(phases[number], restored, began)
                restored = None
            standing = {self.model.depth} if any(phase.frozen for phase in phases) else set()
            self.model.config.trained_exits = sorted(standing.union(*(phase.exits for phase in phases)))
        except OSError as error:
            raise TrainingError(f"The run's folder could not be written: {error}. {self._advice()}") from error
        finally:
            self.journal.close()
        return self._result(time.monotonic() - began)

    def _result(self, seconds: float) -> Result:
        first = self.place.done[0]
        kept = [keeper for phase in self.place.done for keeper in phase["keepers"].values()]
        by_exit = {depth: score for keeper in kept for depth, score in keeper["by_exit"].items()}
        whole = first["keepers"].get("all") or self._standing()
        by_exit |= whole["by_exit"]
        return Result(
            score=whole["score"],
            metric=self.config.optimise.metric,
            best_epoch=whole["epoch"],
            epochs=first["epochs"],
            updates=self.place.update,
            seconds=seconds,
            stopped_early=first["early"],
            by_exit=dict(sorted(by_exit.items(), key=lambda item: int(item[0]))),
        )

    def _standing(self) -> dict[str, Any]:
        """How well a last exit answers that no phase has trained, as a keeper would tell it."""
        last = self.model.depth
        (given,) = self._predict(Phase("last", (last,), ())).values()
        score = self.score(self.validation.labels_or_raise(), given)
        return {"score": score, "epoch": 0, "by_exit": {str(last): score}}

    def _within(self, phase: Phase) -> Phase:
        """The phase with the exits that come to their turn; a warning tells of others."""
        settings = self._settings(phase)
        found = phase.within(settings.epochs, settings.epochs * self._update_count(settings))
        if left := len(phase.exits) - len(found.exits):
            warnings.warn(
                f"{left} of {len(phase.exits)} exits take no turn before the run ends, and will not be trained: raise "
                "optimise.epochs.",
                TurnWarning,
                stacklevel=2,
            )
        return found

    # --- one phase

    def _phase(self, phase: Phase, restored: Checkpoint | None, began: float) -> None:
        settings = self._settings(phase)
        learning = {id(p) for p in phase.trainable}
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in learning)
        update = Update(self.model, phase.trainable, settings, phase.apart)
        epoch_state = self.shuffler.get_state()
        if restored:
            epoch_state = self._restore(restored, update)
        elif self.place.phase:
            self._keep_base(epoch_state, began)
        if not self.place.keepers:
            names = [str(depth) for depth in phase.exits] if phase.frozen else ["all"]
            self.place.keepers = {name: Keeper() for name in names}
            # What does not learn is the best there is.
            self.best = {name: t.clone() for name, t in self.model.state_dict().items()} if phase.frozen else {}
        per_epoch = self._update_count(settings)
        updates = per_epoch * settings.epochs
        self.journal.start(updates, self.place.update - self.place.begun)
        try:
            with ExitStack() as stack:
                stack.enter_context(self.stop)
                if phase.frozen and self._goes_on(settings):
                    self._open_states(phase, stack)
                while self._goes_on(settings):
                    if self.place.batch == 0:
                        epoch_state = self.shuffler.get_state()
                    self.shuffler.set_state(epoch_state)
                    self._epoch(phase, update, updates, per_epoch, epoch_state, began)
                    try:
                        given = self._predict(phase)
                    except Interrupted:
                        if processes.count() == 1:  # several are heard between updates only
                            self._checkpoint(phase, update, epoch_state, began)
                        raise
                    self._validate(phase, given)
                    if self._due(settings):
                        self._checkpoint(phase, update, self.shuffler.get_state(), began)
                if phase.frozen and self.folder and not self.config.stage2.keep_cache:
                    remove_caches(self.folder)
        except (RuntimeError, MemoryError) as error:
            # torch's allocator for the processor raises a plain RuntimeError.
            ran_out = isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
            if not ran_out:
                raise
            less = "optimise.batch_size and raise optimise.accumulation"
            less = "optimise.contrast_batch or optimise.batch_size" if settings.contrast_batch else less
            less = "stage2.batch_size" if phase.frozen else less
            # While states are written down, no setting says how many texts walk the backbone together.
            if phase.frozen and self.lessons is None:
                raise TrainingError(f"Memory ran out: {error}. {self._advice()}") from error
            raise TrainingError(f"Memory ran out: {error}. {self._change(f'Lower {less}', phase)}") from error
        finally:
            self.lessons = self.exam = None
            update.close()
            for parameter in self.model.parameters():
                parameter.requires_grad_(True)
        self.model.load_state_dict(self.best)
        self.model.train(False)
        self.place.next_phase(phase.name, self.place.epoch < settings.epochs)

    def _settings(self, phase: Phase) -> OptimiseConfig:
        """The settings of a phase: those of the run, or of its second stage."""
        if not phase.frozen:
            return self.config.optimise
        second = self.config.stage2
        settings = replace(
            self.config.optimise,
            batch_size=second.batch_size,
            lr_exit=second.lr,
            accumulation=1,
            updates_per_epoch=second.updates_per_epoch,
            contrast_batch=0,
        )
        enough = math.ceil(second.least_updates / self._update_count(settings))
        return replace(settings, epochs=max(second.epochs, enough))

    def _scene(self, phase: Phase) -> Scene:
        objective = self.objective if not phase.frozen or self.second is None else self.second
        rule = Rule(self.config.alignment.threshold, aggregator(self.config.alignment.aggregator))
        views = Views(self.config.data.views, self.config.data.cutoff) if objective.views > 1 else None
        return Scene(self.model, objective, phase, rule, self.accelerator.autocast, views=views)

    def _open_states(self, phase: Phase, stack: ExitStack) -> None:
        """What the exits will read of a backbone that stands still."""
        self.model.train(False)
        home = self.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="offramp-")))
        # Every process has a cache of its own, and all of them have one, or none.
        many = processes.count()
        budget = self.config.stage2.cache_gb * 1e9 / many
        begun, opened = self.place.states, []
        told = (self.train, "the texts to learn from"), (self.validation, "the validation texts")
        for number, (tokens, whose) in enumerate(told):
            # States that were walked stay so, though there may be room by now: stored ones are rounded.
            allowed = 0.0 if begun and begun[number] == WALKED else budget
            room = Room(allowed, many, processes.all_say if many > 1 else bool, self._beside(phase))
            how = self.accelerator.autocast, room, self._stored, whose
            opened.append(open_cache(home, self.model, tokens, phase.exits, *how))
            budget -= opened[-1].bytes
        self.lessons, self.exam = opened
        self.place.states = [each.kind for each in opened]
        if begun and begun != self.place.states:
            warnings.warn(
                f"The stored states that this run began with cannot be had again: it goes on with others, "
                f"{' and '.join(self.place.states)} in the place of {' and '.join(begun)}, and its weights will not be "
                "those of the uninterrupted run to the bit.",
                CacheWarning,
                stacklevel=2,
            )

    def _stored(self, done: int, texts: int) -> None:
        """Tell of states that are written down, and stop there where that was asked."""
        self.journal.states(done, texts)
        if processes.count() == 1:
            self.stop.check()

    def _beside(self, phase: Phase) -> int:
        """Bytes that are written while the states lie there: the newest checkpoint and the one before it."""
        learnt = sum(parameter.nbytes for parameter in phase.trainable)
        whole = sum(t.nbytes for t in self.model.state_dict().values()) if self.config.stage2.keep_cache else 0
        return 2 * 4 * learnt + whole  # the weights, the best of them, two moments of each

    def _goes_on(self, settings: OptimiseConfig) -> bool:
        """Whether this phase has another epoch."""
        waiting = min(keeper.waiting for keeper in self.place.keepers.values())
        tired = bool(settings.patience) and waiting >= settings.patience
        return self.place.epoch < settings.epochs and not tired

    def _epoch(
        self, phase: Phase, update: Update, updates: int, per_epoch: int, epoch_state: Tensor, began: float
    ) -> None:
        settings, scene, place = self._settings(phase), self._scene(phase), self.place
        batches = self._batches(settings)
        # A backbone that stands still stays as it answers: without dropout.
        self.model.train(not phase.frozen)
        for depth in phase.exits:
            self.model.exits[depth - 1].train()
        accumulation = self._accumulation(settings)
        for first in range(place.batch, len(batches), accumulation):
            group = batches[first : first + accumulation]
            done = place.update - place.begun
            # The last update of an epoch may have fewer batches than the others.
            here = replace(scene, phase=phase.turn(place.epoch, done), share=1.0 / len(group))
            if phase.before is not None:
                phase.before(done / updates)
            measured = [self._gradients(here, rows, settings) for rows in group]
            if processes.count() > 1 and not all(m.shared for m in measured):
                update.share_out()
            share = rate(done, updates, settings.warmup)
            record = self._record(phase, measured, share, per_epoch, sum(map(len, group)))
            norm = update.apply(share) if math.isfinite(record.loss) else None
            if norm is None or not math.isfinite(norm):
                what = f"The loss became {record.loss}" if norm is None else f"The gradient's norm became {norm}"
                wrong = [rows for rows, m in zip(group, measured, strict=True) if not math.isfinite(m.loss)] or group
                rate_of, tau_of = ("stage2.lr", "stage2") if phase.frozen else ("optimise.lr_backbone", "objective")
                less = self._change(f"Lower {rate_of} or raise {tau_of}.temperature", phase)
                raise NotFinite(f"{what} at update {record.step}. {less}", chain.from_iterable(wrong))
            place.update += 1
            place.batch = first + len(group)
            place.epoch_loss += sum(m.loss for m in measured)
            self.journal.step(record)
            asked = self._asked_to_stop()
            due = settings.checkpoint_steps and place.update % settings.checkpoint_steps == 0
            if (due and place.batch < len(batches)) or asked is not None:
                self._checkpoint(phase, update, epoch_state, began)
            if asked is not None:
                raise Interrupted(asked)

    def _asked_to_stop(self) -> int | None:
        """The signal that any process has heard; one that comes while they agree is heard at the next update."""
        asked = self.stop.signal
        if processes.count() == 1:
            return asked
        return processes.largest(asked or 0, self.accelerator.device) or None

    def _gradients(self, scene: Scene, rows: list[int], settings: OptimiseConfig) -> Measured:
        """Leave the gradients of these texts; those that are more than a batch go through the gradient cache."""
        if processes.count() > 1:
            rows, counts = processes.divided(rows)
            scene = replace(scene, counts=counts)
        if self.lessons is not None:
            return APART[self.config.stage2.scope](scene, self.lessons.lesson(rows))
        size, scope = settings.batch_size, self.config.alignment.scope
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        batches = [self.train.batch(part).to(self.accelerator.device) for part in parts]
        return CACHED[scope](scene, batches) if len(batches) > 1 else SCOPES[scope](scene, batches[0])

    def _batch_count(self, settings: OptimiseConfig) -> int:
        """Batches of an epoch."""
        data, size = self.config.data, _together(settings)
        if data.sampler == "balanced":
            size = balanced_size(self.train.labels_or_raise(), data.per_class, size)
        return math.ceil(len(self.train) / size)

    def _update_count(self, settings: OptimiseConfig) -> int:
        """Updates of an epoch."""
        return math.ceil(self._batch_count(settings) / self._accumulation(settings))

    def _accumulation(self, settings: OptimiseConfig) -> int:
        """Batches whose gradients make one update."""
        if not settings.updates_per_epoch:
            return settings.accumulation
        return max(settings.accumulation, round(self._batch_count(settings) / settings.updates_per_epoch))

    def _batches(self, settings: OptimiseConfig) -> list[list[int]]:
        data, size = self.config.data, _together(settings)
        if data.sampler == "balanced":
            return class_balanced(self.train.labels_or_raise(), data.per_class, size, self.shuffler)
        # Among as many texts as without a contrast batch: from a larger pool the same texts would meet every epoch.
        pool = max(1, POOL * settings.batch_size // size)
        return length_buckets(self.train.lengths, size, self.shuffler, pool)

    def _record(self, phase: Phase, measured: list[Measured], share: float, per_epoch: int, texts: int) -> StepRecord:
        angles = [angle for m in measured for angle in m.angles]
        count = len(measured)
        step = self.place.update + 1
        cosines: dict[str, list[float]] = {}
        for angle in angles:
            for group, cosine in angle.cosines.items():
                cosines.setdefault(group, []).append(cosine)
        return StepRecord(
            step=step,
            epoch=(step - self.place.begun) / per_epoch,
            loss=sum(m.loss for m in measured) / count,
            parts={name: sum(m.parts[name] for m in measured) / count for name in measured[0].parts},
            lr=(self.config.stage2.lr if phase.frozen else self.config.optimise.lr_backbone) * share,
            angle=_middle(a.degrees for a in angles) if angles else None,
            kept=sum(a.kept for a in angles) / len(angles) if angles else None,
            main_norm=sum(a.main_norm for a in angles) / len(angles) if angles else None,
            auxiliary_norm=sum(a.auxiliary_norm for a in angles) / len(angles) if angles else None,
            cosines={group: _middle(found) for group, found in cosines.items()},
            phase=phase.name,
            texts=texts,
        )

    # --- validation and checkpoints

    def _validate(self, phase: Phase, answered: dict[int, list[Any]]) -> None:
        """Score what the exits answered, keep what is the best so far, and close the epoch."""
        truth = self.validation.labels_or_raise()
        place, epoch = self.place, self.place.epoch + 1
        found = {str(depth): self.score(truth, given) for depth, given in answered.items()}
        mean = sum(found.values()) / len(found)
        kept = []
        # Before each exit has had its turn, some are as they were drawn.
        watching = place.keepers if phase.in_play(epoch, place.update - place.begun) == phase.exits else {}
        for name, keeper in watching.items():
            score = mean if name == "all" else found[name]
            noise = math.inf if phase.newest else self._noise(max(score, keeper.top))
            kept.append(keeper.keeps(score, epoch, noise, found if name == "all" else {name: score}))
            if kept[-1]:
                prefix = "" if name == "all" else f"exits.{int(name) - 1}."
                state = self.model.state_dict().items()
                self.best |= {key: t.detach().clone() for key, t in state if key.startswith(prefix)}
        record = EpochRecord(
            epoch=epoch,
            step=place.update,
            score=mean,
            metric=self.config.optimise.metric,
            loss=place.epoch_loss / max(1, place.batch),
            best=any(kept),
            by_exit=found,
            phase=phase.name,
            epochs=self._settings(phase).epochs,
        )
        place.epoch, place.batch, place.epoch_loss = epoch, 0, 0.0
        self.journal.epoch(record)

    def _noise(self, score: float) -> float:
        """How far below the top score a later epoch may be: so many of its standard errors."""
        settings = self.config.optimise
        return settings.tolerance * standard_error(settings.metric, score, len(self.validation))

    @torch.inference_mode()
    def _predict(self, phase: Phase) -> dict[int, list[Any]]:
        """What the exits in play answer to the validation texts."""
        self.model.train(False)
        sets, wanted = self.model.config.sets, self.validation.answers
        shape = (wanted, len(self.model.config.labels)) if sets else (wanted,)
        given = {depth: torch.zeros(shape, dtype=torch.int64) for depth in phase.exits}
        for rows in list(sorted_batches(self.validation.lengths, 64))[processes.rank() :: processes.count()]:
            if processes.count() == 1:
                self.stop.check()
            with self.accelerator.autocast():
                if self.exam is None:
                    outputs = self.model.outputs(self.validation.batch(rows).to(self.accelerator.device), phase.exits)
                else:
                    states = self.exam.lesson(rows).states
                    outputs = read_below(self.model, states, phase.exits)
            for depth, output in outputs.items():
                given[depth][torch.from_numpy(self.validation.answers_of(rows))] = answers(output.logits, sets).cpu()
        if processes.count() > 1:
            processes.begin_alike(self.model.state_dict().values())
            # Each text is some process's, and has 0 from the others.
            given = {d: processes.total(a.to(self.accelerator.device)).cpu() for d, a in given.items()}
        return {depth: found.tolist() for depth, found in given.items()}

    def _keep_base(self, epoch_state: Tensor, began: float) -> None:
        """Write down what a phase starts from; its checkpoints hold only what it changes."""
        drawn = self._everybodys_drawn(epoch_state)
        if self.saved is not None:
            self.place.seconds = time.monotonic() - began
            tensors = {f"model/{name}": t for name, t in self.model.state_dict().items()} | drawn
            self.saved.write_base(self.place.update, tensors, {"place": asdict(self.place)})

    def _due(self, settings: OptimiseConfig) -> bool:
        """Whether the end of an epoch is worth a checkpoint. Several processes could not agree on the time."""
        return processes.count() > 1 or time.monotonic() - self.written >= settings.checkpoint_seconds

    def _checkpoint(self, phase: Phase, update: Update, epoch_state: Tensor, began: float) -> None:
        drawn = self._everybodys_drawn(epoch_state)
        if self.saved is None:
            return
        self.place.seconds = time.monotonic() - began
        changing = {id(parameter) for parameter in phase.trainable}
        names = {name for name, parameter in self.model.named_parameters() if id(parameter) in changing}
        state = self.model.state_dict()
        if not self.place.phase:
            names |= set(state)
        tensors: dict[str, Tensor] = {f"model/{name}": state[name] for name in names}
        tensors |= {f"best/{name}": t for name, t in self.best.items() if name in names}
        for index, parameter in enumerate(update.parameters):
            for name, value in update.optimizer.state[parameter].items():
                tensors[f"optimizer/{index}/{name}"] = value
        self.saved.write(self.place.update, tensors | drawn, {"place": asdict(self.place)})
        self.written = time.monotonic()

    def _everybodys_drawn(self, epoch_state: Tensor) -> dict[str, Tensor]:
        """Where the generators of all processes stand, and the shuffler at the beginning of the epoch."""
        random = processes.everybodys(_drawn()) if processes.count() > 1 else [_drawn()]
        tensors = {"random/shuffler": epoch_state}
        for number, states in enumerate(random):
            tensors |= {f"random/{kind}{f'-{number}' if number else ''}": state for kind, state in states.items()}
        return tensors

    def _restore(self, checkpoint: Checkpoint, update: Update) -> Tensor:
        base = self.saved.read_base().part("model/") if self.place.phase and self.saved else {}
        if processes.count() > 1:
            base = processes.of_first(base)
        self.model.load_state_dict({**base, **checkpoint.part("model/")})
        self.best = {**base, **checkpoint.part("best/")}
        for index, parameter in enumerate(update.parameters):
            update.optimizer.state[parameter] = {
                name: t.to(parameter.device)  # the count of steps too, since the optimizer is a fused one
                for name, t in checkpoint.part(f"optimizer/{index}/").items()
            }
        tensors = checkpoint.tensors
        checkpoint.check_processes(processes.count())
        mine = f"-{processes.rank()}" if processes.rank() else ""
        torch.set_rng_state(tensors[f"random/torch{mine}"])
        if torch.cuda.is_available() and f"random/cuda{mine}" in tensors:
            torch.cuda.set_rng_state(tensors[f"random/cuda{mine}"])
        self.shuffler.set_state(tensors["random/shuffler"])
        return tensors["random/shuffler"]

    def _advice(self) -> str:
        return self.saved.advice() if self.saved else "Nothing was saved."

    def _change(self, how: str, phase: Phase) -> str:
        """What to do after a stop that other settings would have spared."""
        newest = self.saved.newest() if self.saved else None
        if newest is None:
            return f"{how}, and start anew. {'There is no checkpoint yet' if self.saved else 'Nothing was saved'}."
        if phase.frozen and self.place.phase:
            again = "and add --resume: this stage begins anew with other settings, the first is kept"
            return f"{how}, {again}. The last good checkpoint is `{newest}`."
        goes_on = "from which --resume goes on with the settings as they were"
        return f"{how}, and start anew. The last good checkpoint is `{newest}`, {goes_on}."


def _together(settings: OptimiseConfig) -> int:
    """How many texts a loss is taken over."""
    return settings.contrast_batch or settings.batch_size


def _drawn() -> dict[str, Tensor]:
    """Where this process's generators stand."""
    cuda = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"torch": torch.get_rng_state(), **cuda}


def _middle(values: Iterable[float]) -> float:
    """The mean of those that are numbers: a zero gradient has no angle to another."""
    finite = [value for value in values if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _forget_precision(wanted: str) -> None:
    """Let a run have another precision than the one before it: accelerate holds one per process."""
    if AcceleratorState._shared_state.get("_mixed_precision", wanted) != wanted:
        AcceleratorState._reset_state()
