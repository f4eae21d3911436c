"""A reader who does what a page says: its blocks in their order, in one folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

import pytest
from docs.blocks import STAYS, WRITTEN, Block

from offramp import cli

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT / "src"),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "200",
}
PORT = "8000"
"""The port of the pages, which may be taken here: a free one stands in for it."""


class Session:
    """Runs blocks in a folder; commands that stay running end with it."""

    def __init__(self, folder: Path, given: Mapping[str, Any] | None = None) -> None:
        self.folder, self.names = folder, {"__name__": "__main__", **(given or {})}
        self.running: list[subprocess.Popen[str]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = [process.poll() for process in self.running]
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=60)
        if error is None:
            assert ended == [None] * len(ended), "what stays running ended by itself"

    def run(self, block: Block) -> str:
        """Run a block, or write the file that it is; what it printed."""
        code = re.sub(rf"\b{PORT}\b", self.port, block.code)
        if block.language == "python":
            return self._python(code, block)
        if block.language == "console":
            return self._console(code)
        if block.language == "sh":
            return self._stay(code) if block.title == STAYS else self._commands(code)
        if block.language in WRITTEN and block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, "utf-8")
        return ""

    def _python(self, code: str, block: Block) -> str:
        out = io.StringIO()
        # Line numbers in a traceback are those of the page.
        program = compile("\n" * block.line + code, "page", "exec")
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(program, self.names)
        return out.getvalue()

    def _console(self, code: str) -> str:
        """Commands behind `$`, each followed by what it prints; `...` stands for anything."""
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
            assert_printed(expected, self._commands(command + "\n"))
        return ""

    def _commands(self, code: str) -> str:
        return "".join(self._command(line) for line in code.replace("\\\n", "").splitlines() if line.strip())

    def _command(self, line: str) -> str:
        words = shlex.split(line, comments=True)
        if words[0] == "offramp" and not set(shlex.shlex(line, posix=True, punctuation_chars=True)) & {
            "|",
            "&",
            ">",
            "<",
        }:
            return self._offramp(words)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _offramp(self, words: list[str]) -> str:
        """In this process, because a process of its own imports torch for seconds."""
        out, code = io.StringIO(), None
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("default")
            with mock.patch.object(sys, "argv", words):
                try:
                    cli.main()
                except SystemExit as ended:
                    code = ended.code
        assert code == 0, f"{shlex.join(words)} ended with {code}"
        return out.getvalue()

    def _stay(self, code: str) -> str:
        """Start what a reader would leave running in another terminal; a server is waited for."""
        command = code.replace(" serve ", f" serve --port {self.port} ")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=ENVIRONMENT,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.running.append(process)
        if " serve " in code:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("Serving at"):
                    break
            else:
                pytest.fail("".join(said))
        return ""


def assert_printed(expected: str, printed: str) -> None:
    """Whether this was printed; `...` stands for anything, on one line or on many."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"expected\n{expected}\nprinted\n{printed}"
