"""Pieces of work on Ray's workers: as many at a time as there is room for, each told of when it has ended.

A piece whose worker ends without a word, killed or out of memory, is begun again by Ray, on another worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from offramp.cluster.session import RETRIES, Session, gone

Made = TypeVar("Made")


class Tasks(Generic[Made]):
    """Calls of one function, each known by its name; what is not small is put into the store once with `shared`."""

    def __init__(self, session: Session, work: Callable[..., Made]) -> None:
        self.session = session
        self.work = session.ray.remote(num_cpus=session.threads, max_retries=RETRIES)(work)
        self.under_way: dict[Any, str] = {}

    def shared(self, value: object) -> Any:
        """A value that every call may have, handed over once."""
        return self.session.ray.put(value)

    @property
    def room(self) -> bool:
        """Whether another call may begin."""
        return len(self.under_way) < self.session.workers

    def begin(self, name: str, *arguments: object) -> None:
        """Begin a call."""
        self.under_way[self.work.remote(*arguments)] = name

    def ended(self) -> tuple[str, Made]:
        """Wait for the next call that ends: its name, and what it made."""
        ray = self.session.ray
        (reference, *_), _ = ray.wait(list(self.under_way), num_returns=1)
        name = self.under_way.pop(reference)
        try:
            return name, ray.get(reference)
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise gone(f"`{name}`") from error
