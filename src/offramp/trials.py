"""Trials of a search under way: one at a time here, or several on Ray's workers, each told of when it has ended.

A trial whose worker of Ray is lost is begun again on another one, which goes on from its checkpoint. Where the search
is written down is not their business: whoever begins a trial hears of its score.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from offramp.cluster.session import Cluster, connected
from offramp.cluster.tasks import Tasks
from offramp.errors import ConfigError, OfframpError, TrainingError, UserError
from offramp.optimise.journal import Watch

OURS = f"{__package__}."

Score = Callable[[Any, Mapping[str, Any], Path, Watch | None, bool], float]
"""Trains with a plan, settings, a folder, an onlooker, and whether warnings are told; gives the validation score."""


@dataclass(frozen=True)
class Scored:
    """What a trial gave."""

    score: float | None
    error: OfframpError | None = None  # why it has no score
    stops: bool = False  # the search too, because the settings are not to blame
    told: tuple[Warning, ...] = ()  # our own warnings


class Trials(Protocol):
    """Trials that are under way, by their numbers."""

    under_way: dict[int, Mapping[str, Any]]

    @property
    def room(self) -> bool:
        """Whether another one may begin."""
        ...

    def begin(self, number: int, settings: Mapping[str, Any], home: Path, first: bool) -> None:
        """Begin a trial in its folder; the first of a search tells its warnings."""
        ...

    def ended(self) -> tuple[int, Scored]:
        """Wait for the next one that ends."""
        ...


@contextmanager
def trials(score: Score, plan: Any, watch: Watch | None, cluster: Cluster | None) -> Iterator[Trials]:
    """Trials of a plan, here or on a cluster."""
    if cluster is None:
        yield _Here(score, plan, watch)
        return
    with connected(cluster) as session:
        yield _OnRay(Tasks(session, _there), score, plan)


class _Here:
    def __init__(self, score: Score, plan: Any, watch: Watch | None) -> None:
        self.score, self.plan, self.watch = score, plan, watch
        self.under_way: dict[int, Mapping[str, Any]] = {}
        self.given: tuple[Path, bool] = Path(), False

    @property
    def room(self) -> bool:
        return not self.under_way

    def begin(self, number: int, settings: Mapping[str, Any], home: Path, first: bool) -> None:
        self.under_way[number] = settings
        self.given = home, first

    def ended(self) -> tuple[int, Scored]:
        ((number, settings),) = self.under_way.items()
        home, first = self.given
        found = _tried(self.score, self.plan, settings, home, self.watch, first)
        del self.under_way[number]
        return number, found


class _OnRay:
    def __init__(self, tasks: Tasks[tuple[int, Scored]], score: Score, plan: Any) -> None:
        self.tasks, self.score, self.plan = tasks, score, tasks.shared(plan)
        self.under_way: dict[int, Mapping[str, Any]] = {}

    @property
    def room(self) -> bool:
        return self.tasks.room

    def begin(self, number: int, settings: Mapping[str, Any], home: Path, first: bool) -> None:
        self.under_way[number] = settings
        threads = self.tasks.session.threads
        self.tasks.begin(f"trial {number + 1}", self.score, self.plan, settings, home.resolve(), first, threads, number)

    def ended(self) -> tuple[int, Scored]:
        _, (number, found) = self.tasks.ended()
        del self.under_way[number]
        for message in found.told:
            warnings.warn(message, stacklevel=2)
        return number, found


def _there(
    score: Score, plan: Any, settings: Mapping[str, Any], home: Path, first: bool, threads: int, number: int
) -> tuple[int, Scored]:
    """What a worker of Ray does."""
    import torch

    torch.set_num_threads(threads)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = _tried(score, plan, settings, home, None, first)
        except OfframpError as error:
            found = Scored(None, error, stops=True)
    ours = tuple(e.message for e in heard if isinstance(e.message, Warning) and e.category.__module__.startswith(OURS))
    return number, replace(found, error=_plain(found.error), told=ours)


def _tried(
    score: Score, plan: Any, settings: Mapping[str, Any], home: Path, watch: Watch | None, first: bool
) -> Scored:
    try:
        return Scored(score(plan, settings, home, watch, first))
    except (TrainingError, ConfigError) as error:
        if isinstance(error.__cause__, OSError):
            raise  # a full disk is no fault of the settings; the trial can go on later
        return Scored(None, error)


def _plain(error: OfframpError | None) -> OfframpError | None:
    """An error that travels: some have more to their making than a message."""
    if error is None:
        return None
    kind = (
        ConfigError if isinstance(error, ConfigError) else UserError if isinstance(error, UserError) else TrainingError
    )
    return kind(str(error))
