"""What a command is as a process: how signals end it, what it keeps in memory, that it speaks UTF-8 in any locale."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from offramp.errors import Interrupted

KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""How many kernels torch's CPU library keeps, unless somebody has said otherwise.

It makes one for every shape of a matrix and keeps a thousand, a quarter of a megabyte each. Batches out of which texts
are taken have a new shape nearly every time: nothing is won by keeping them all, and memory grows for half a million
texts.
"""


class Verbs(TyperGroup):
    """Verbs in the order in which they were named, which a signal ends with 128 and its number, as a shell counts."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _show_flags_bare(self)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except Interrupted as error:
            raise typer.Exit(128 + error.signal) from error


@contextmanager
def as_process() -> Iterator[None]:
    """Be a process of its own: SIGTERM tidies up as Ctrl-C does, what is printed is UTF-8, and memory does not grow."""
    for name, value in KERNELS.items():
        os.environ.setdefault(name, value)  # read when torch first multiplies
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # a file's name may be any bytes
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _show_flags_bare(command: Any) -> None:
    """Let `--help` show a flag as it is typed: typer shows `--json <bool>`, as if it took a value."""
    params = command.get_params

    def bare(ctx: Any) -> list[Any]:
        found = list(params(ctx))
        for each in found:
            if getattr(each, "is_flag", False):
                each.display_type_rich = lambda ctx: None
        return found

    command.get_params = bare
    for inner in getattr(command, "commands", {}).values():
        _show_flags_bare(inner)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
