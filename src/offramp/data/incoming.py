"""TEXT -> TOKENS, incoming: texts a portion at a time, and those of a pipe that falls quiet wait for no more.

A stream of texts may say `None` between two of them: nothing more is there at the moment.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

from offramp.errors import DataError
from offramp.types import Example

PAUSE = 0.05
"""Seconds without a new line after which those before it are answered."""
PIECE = 2**16
"""Bytes that are read at a time, where so many are there."""


class Incoming:
    """The lines of a binary handle, which knows whether the next would be waited for."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.name = getattr(handle, "name", None)
        self._lines: deque[bytes] = deque()

    def __iter__(self) -> Iterator[bytes]:
        """Each line with its end."""
        rest = bytearray()
        while piece := self.handle.read1(PIECE):  # type: ignore[attr-defined]
            rest += piece
            if b"\n" in piece:
                *whole, last = rest.split(b"\n")
                self._lines.extend(bytes(line) + b"\n" for line in whole)
                rest = last
            while self._lines:
                yield self._lines.popleft()
        if rest:
            yield bytes(rest)

    def quiet(self) -> bool:
        """Whether no line has come, and none comes for a moment."""
        if self._lines:
            return False
        try:
            return not select.select([self.handle], [], [], PAUSE)[0]
        except (OSError, ValueError):  # no handle of the system's, or a system that can only tell of sockets
            return False


def as_they_come(examples: Iterable[Example], source: Incoming) -> Iterator[Example | None]:
    """Texts that are read from a source, with a None wherever it is quiet."""
    for example in examples:
        yield example
        if source.quiet():
            yield None


@dataclass(frozen=True)
class Portion:
    """Texts that were taken together, whether any may follow, and why none does where the next cannot be read."""

    texts: list[Example]
    more: bool
    bad: DataError | None = None


def portion(rest: Iterator[Example | None], count: int) -> Portion:
    """The next texts, at most so many."""
    found: list[Example] = []
    try:
        for example in islice(rest, count):
            if example is None:
                return Portion(found, more=True)
            found.append(example)  # one by one, so that those before an error stay
    except DataError as error:
        return Portion(found, more=False, bad=error)
    return Portion(found, more=len(found) == count)
