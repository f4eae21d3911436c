"""MODEL -> PEOPLE: requests that share batches: a bounded queue, and lanes that empty it.

Items wait in one queue, whoever sent them. A lane that is free takes those that can share a batch, up to so many, and
begins at once when there are enough or when the first of them has waited long enough. While it runs, others wait for
the next free lane: nobody waits for a batch to be full.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from offramp.errors import ConfigError, OfframpError

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Made = TypeVar("Made")

Work = Callable[[int, Key, list[Item]], Sequence[Made]]
"""What a lane, told by its number, makes of the items of a batch, which all have this key."""

MEMORY = 0.2  # weight of the newest batch in the speed that is remembered


class QueueFull(OfframpError):
    """There is no room for so many items; `seconds` says when there may be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"The queue is full. Try again in {seconds} s.")
        self.seconds = seconds


class Closed(OfframpError):
    """The queue takes nothing more, because it is being closed."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


@dataclass(frozen=True, slots=True)
class Ran:
    """A batch that was run."""

    items: int
    seconds: float
    waited: float  # by the item that waited longest


@dataclass(eq=False, slots=True)
class _Ticket(Generic[Made]):
    """Items that came together, and what has been made of them so far."""

    future: Future[list[Made]]
    made: dict[int, Made] = field(default_factory=dict)  # by place
    wanted: int = 0


@dataclass(eq=False, slots=True)
class _Waiting(Generic[Key, Item, Made]):
    """An item in the queue."""

    key: Key
    item: Item
    place: int  # among those that came with it
    ticket: _Ticket[Made]
    since: float = field(default_factory=time.monotonic)


class Batcher(Generic[Key, Item, Made]):
    """A queue of at most `capacity` items before `lanes` threads, each of which runs at most `most` at a time."""

    def __init__(
        self,
        work: Work[Key, Item, Made],
        lanes: int = 1,
        most: int = 32,
        wait: float = 0.002,
        capacity: int = 1024,
        watch: Callable[[Ran], None] = lambda ran: None,
    ) -> None:
        for name, value in (("lanes", lanes), ("most", most), ("capacity", capacity)):
            if value < 1:
                raise ConfigError(f"`{name}` should be at least 1. Found {value}.")
        if not 0 <= wait < math.inf:
            raise ConfigError(f"`wait` should be 0 seconds or more. Found {wait:g}.")
        self.work, self.most, self.wait, self.capacity, self.watch = work, most, wait, capacity, watch
        self._queue: deque[_Waiting[Key, Item, Made]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._idle = lanes
        self._speed = 0.0  # items per second and lane; 0: not known yet
        self._lanes = [
            threading.Thread(target=self._lane, args=(number,), name=f"lane-{number}", daemon=True)
            for number in range(lanes)
        ]
        for lane in self._lanes:
            lane.start()

    def submit(self, key: Key, items: Sequence[Item]) -> Future[list[Made]]:
        """What is made of these items, in their order; only items of the same key share a batch.

        All of them are taken or none. To cancel the future is to leave the queue.
        """
        future: Future[list[Made]] = Future()
        ticket = _Ticket(future, wanted=len(items))
        with self._changed:
            if self._closed:
                raise Closed
            if len(self._queue) + len(items) > self.capacity:
                self._forget_gone()
            if len(self._queue) + len(items) > self.capacity:
                raise QueueFull(self._seconds())
            before = len(self._queue)
            self._queue.extend(_Waiting(key, item, place, ticket) for place, item in enumerate(items))
            if before < self.most <= len(self._queue):
                self._changed.notify_all()
            elif not before:
                self._changed.notify()  # one lane begins to wait; to wake it for each item would cost more
        if not items:
            future.set_result([])
        return future

    @property
    def waiting(self) -> int:
        """Items in the queue."""
        return len(self._queue)

    def close(self) -> None:
        """Take nothing more, finish what was taken, and end the lanes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for lane in self._lanes:
            lane.join()

    # --- lanes

    def _lane(self, number: int) -> None:
        while taken := self._take():
            begun = time.monotonic()
            self._run(number, taken)
            ran = Ran(len(taken), time.monotonic() - begun, begun - min(each.since for each in taken))
            with self._changed:
                self._idle += 1
                now = ran.items / max(ran.seconds, 1e-6)
                self._speed = now if not self._speed else (1 - MEMORY) * self._speed + MEMORY * now
            self.watch(ran)

    def _run(self, number: int, taken: Sequence[_Waiting[Key, Item, Made]]) -> None:
        try:
            made = self.work(number, taken[0].key, [each.item for each in taken])
        except Exception as error:
            tickets = {id(each.ticket): each.ticket for each in taken}
            if len(tickets) == 1:
                self._end(taken[0].ticket, error)
                return
            for own in tickets:  # nobody fails for what another sent
                self._run(number, [each for each in taken if id(each.ticket) == own])
        else:
            self._deliver(taken, made)

    def _take(self) -> list[_Waiting[Key, Item, Made]]:
        """The next batch; empty where the queue is closed and nobody waits."""
        with self._changed:
            while True:
                self._forget_gone()
                if not self._queue:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                rest = self._queue[0].since + self.wait - time.monotonic()
                if rest <= 0 or self._closed or len(self._queue) >= self.most:
                    break
                self._changed.wait(rest)  # others may join
            taken = self._next()
            self._idle -= 1
            if self._queue:
                self._changed.notify()
            return taken

    def _next(self) -> list[_Waiting[Key, Item, Made]]:
        """Those who can share a batch with the first in the queue; idle lanes get as many each."""
        key = self._queue[0].key
        alike = [each for each in self._queue if each.key == key]
        taken = alike[: min(self.most, math.ceil(len(alike) / self._idle))]
        chosen = set(map(id, taken))
        self._queue = deque(each for each in self._queue if id(each) not in chosen)
        return taken

    def _forget_gone(self) -> None:
        """Drop those nobody waits for any more."""
        if any(each.ticket.future.done() for each in self._queue):
            self._queue = deque(each for each in self._queue if not each.ticket.future.done())

    def _deliver(self, taken: Sequence[_Waiting[Key, Item, Made]], made: Sequence[Made]) -> None:
        complete: list[_Ticket[Made]] = []
        with self._changed:
            for each, result in zip(taken, made, strict=True):
                each.ticket.made[each.place] = result
                if len(each.ticket.made) == each.ticket.wanted:
                    complete.append(each.ticket)
        for ticket in complete:
            self._end(ticket, None)

    def _end(self, ticket: _Ticket[Made], error: Exception | None) -> None:
        """Answer whoever waits for a ticket; a second end, or one after a cancellation, changes nothing."""
        try:
            if error is None:
                ticket.future.set_result([ticket.made[place] for place in range(ticket.wanted)])
            else:
                ticket.future.set_exception(error)
        except InvalidStateError:
            pass

    def _seconds(self) -> int:
        """When there may be room: as long as the queue takes to run, as fast as it ran lately."""
        return max(1, math.ceil(len(self._queue) / (self._speed * len(self._lanes)))) if self._speed else 1
