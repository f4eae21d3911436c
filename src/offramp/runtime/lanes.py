"""MODEL -> FAST MODEL: batches side by side, each on a core of its own.

The matrices of a small model are too small to be shared: cores that take a batch each are done sooner than cores that
work on the same one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")
AHEAD = 2  # batches for each lane that are begun before the first is asked for


def side_by_side(work: Callable[[Given], Made], batches: Sequence[Given], lanes: int) -> Iterator[Made]:
    """What is made of each batch, in their order; as many at a time as there are lanes."""
    if min(lanes, len(batches)) < 2:
        yield from map(work, batches)
        return
    pool = _threads(os.getpid(), lanes)
    begun: deque[Future[Made]] = deque()
    try:
        for batch in batches:
            begun.append(pool.submit(work, batch))
            if len(begun) > AHEAD * lanes:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for each in begun:
            each.cancel()
        wait(begun)


@lru_cache(maxsize=8)
def _threads(_: int, lanes: int) -> ThreadPoolExecutor:
    """The threads of so many lanes, in this process: a fork has none of its parent's.

    They stay. The allocator keeps memory for each thread apart, and what one that ended has left is not given to the
    next: with new threads for every thousand texts a process grew by a quarter over a million.
    """
    return ThreadPoolExecutor(lanes, thread_name_prefix="lane")


class _Narrow:
    """Torch with one thread for an operator, for as long as anybody wants it so."""

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1

    def enter(self) -> int:
        """How many threads an operator had."""
        with self.lock:
            if not self.inside:
                self.before = torch.get_num_threads()
                torch.set_num_threads(1)  # threads that begin from now on take this over
            self.inside += 1
            return self.before

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                torch.set_num_threads(self.before)


_narrow = _Narrow()


@contextmanager
def one_thread_each() -> Iterator[int]:
    """New threads run torch's operators on one core; gives how many cores an operator had before."""
    before = _narrow.enter()
    try:
        yield before
    finally:
        _narrow.leave()
