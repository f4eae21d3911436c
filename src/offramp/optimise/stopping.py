"""LOSS -> PARAMETERS: who asks a run to stop is heard between two updates, where a checkpoint can be written."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from offramp.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Notes the first SIGINT or SIGTERM while a run lasts; a second one ends it at once.

    Signals reach the main thread only: a run in another one is not asked. What is ignored stays so.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # None: somebody's own, set outside Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise Interrupted(number)
        self.signal = number

    def check(self) -> None:
        """Stop here, where that was asked."""
        if self.signal is not None:
            raise Interrupted(self.signal)
