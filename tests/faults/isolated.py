"""Cases that are tried in processes of their own: one that crashes or hangs is an outcome, not the end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

SECONDS = 60
CRASHED, HUNG = "crashed", "hung"


def outcomes(count: int, attempt: Callable[[int], tuple[str, str]], many: int = 100) -> Iterator[tuple[int, str, str]]:
    """Number, kind and outcome of each case; `many` share a process."""
    first = 0
    while first < count:
        last = min(first + many, count)
        done = 0
        for number, kind, outcome in _in_process(range(first, last), attempt):
            yield number, kind, outcome
            done += 1
        first += done


def _in_process(numbers: range, attempt: Callable[[int], tuple[str, str]]) -> Iterator[tuple[int, str, str]]:
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        with os.fdopen(writer, "w") as told:
            for number in numbers:
                signal.alarm(SECONDS)  # ends the process
                told.write(json.dumps([number, *attempt(number)]) + "\n")
                told.flush()
        os._exit(0)
    os.close(writer)
    seen = numbers.start - 1
    with os.fdopen(reader) as heard:
        for line in heard:
            found: list[Any] = json.loads(line)
            seen = found[0]
            yield found[0], found[1], found[2]
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        yield seen + 1, "unknown", HUNG if code == -signal.SIGALRM else f"{CRASHED} ({code})"
