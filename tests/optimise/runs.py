"""Runs in processes of their own, which can be killed, and whose disk can be full."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int  # negative: the signal
    output: str
    moments: list[str]  # the changes it made to files


class Runs:
    """Trains in forked processes, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def fit(self, out: Path, data: Path, resume: bool = False, **options: Any) -> Ended:
        """`Classifier.fit_table` into a folder; the options are `Classifier`'s, or those of `_run`."""
        mine = {key: options.pop(key) for key in ("kill_at", "kill_when", "kill_after", "room") if key in options}
        return self._run({"arguments": [], "fit": {"data": str(data), "resume": resume, **options}}, out, **mine)

    def command(self, out: Path, *arguments: str, room: int = 0) -> Ended:
        """The command line."""
        return self._run({"arguments": arguments}, out, room=room)

    def close(self) -> None:
        with self.server:  # closes the pipes and waits
            pass

    def _run(
        self,
        request: dict[str, Any],
        out: Path,
        kill_at: int | str = 0,  # before this moment, by number or by pattern
        kill_when: Callable[[], bool] | None = None,  # as soon as this holds
        kill_after: float | None = None,  # seconds
        room: int = 0,
    ) -> Ended:
        output, moments = self.folder / "output.txt", self.folder / "moments.json"
        moments.unlink(missing_ok=True)
        request |= {"out": str(out), "kill_at": kill_at, "room": room, "output": str(output), "moments": str(moments)}
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        process = int(self._line())
        while (kill_when or kill_after) and not self._ended(kill_after or 0.002):
            if kill_when is None or kill_when():
                os.kill(process, signal.SIGKILL)
                break
        code = int(self._line())
        return Ended(code, output.read_text(), json.loads(moments.read_text()) if moments.exists() else [])

    def _line(self) -> str:
        assert self.server.stdout is not None
        return self.server.stdout.readline()

    def _ended(self, seconds: float) -> bool:
        return bool(select.select([self.server.stdout], [], [], seconds)[0])
