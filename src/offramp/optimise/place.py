"""LOSS -> PARAMETERS: where a run is, all that a checkpoint must know besides tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


def standard_error(metric: str, score: float, texts: int) -> float:
    """How far a score of so many texts lies from that of all texts, about: that of a share, or of a correlation.

    >>> standard_error("accuracy", 0.5, 100)
    0.05
    >>> standard_error("mcc", 0.0, 100)  # no better than chance, which is where a correlation is least certain
    0.1
    """
    if metric == "mcc":
        return math.sqrt(max(0.0, 1.0 - score * score) / texts)
    share = min(1.0, max(0.0, score))
    return math.sqrt(share * (1.0 - share) / texts)


@dataclass(slots=True)
class Keeper:
    """Watches one validation score, and says which epoch's weights are kept.

    The top score decides; with a tolerance, a later epoch that is worse by no more than noise is kept too.
    """

    top: float = -math.inf  # the best so far
    score: float = -math.inf  # that of the weights that are kept
    epoch: int = 0  # of the weights that are kept
    waiting: int = 0  # epochs since the top score
    by_exit: dict[str, float] = field(default_factory=dict)  # the scores of the exits at the kept epoch

    def keeps(self, score: float, epoch: int, noise: float, by_exit: dict[str, float]) -> bool:
        """Take note of an epoch's score; whether its weights are to be kept."""
        self.waiting = 0 if score > self.top else self.waiting + 1
        self.top = max(score, self.top)
        kept = score >= self.top - noise
        if kept:
            self.score, self.epoch, self.by_exit = score, epoch, by_exit
        return kept


@dataclass(slots=True)
class Place:
    """The phase, the epoch, the batch, and what validation has found."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    update: int = 0  # updates of the run
    begun: int = 0  # updates before this phase
    epoch_loss: float = 0.0  # sum over the epoch's batches
    seconds: float = 0.0
    keepers: dict[str, Keeper] = field(default_factory=dict)  # of this phase: `all`, or one per exit
    done: list[dict[str, Any]] = field(default_factory=list)  # of the phases before: how they ended
    states: list[str] = field(default_factory=list)  # where this phase's come from: a kind of `Frozen` each

    def next_phase(self, name: str, stopped_early: bool) -> None:
        """Close this phase and stand before the next."""
        keepers = {key: asdict(keeper) for key, keeper in self.keepers.items()}
        self.done.append({"phase": name, "epochs": self.epoch, "early": stopped_early, "keepers": keepers})
        self.phase, self.epoch, self.batch, self.begun = self.phase + 1, 0, 0, self.update
        self.epoch_loss, self.keepers, self.states = 0.0, {}, []

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Place:
        """The place a checkpoint wrote down."""
        keepers = {key: Keeper(**value) for key, value in facts["keepers"].items()}
        return cls(**{**facts, "keepers": keepers})
