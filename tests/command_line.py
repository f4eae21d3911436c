"""The command line, run in the process of the tests."""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from offramp import cli


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said where."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which is one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output, one JSON document per line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def offramp(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command in this process, because a process of its own imports torch for seconds."""
    before = torch.get_num_threads()

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["offramp", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # as in a process of its own, but that none is left out
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out, err)

    yield run
    torch.set_num_threads(before)
