"""A folder that one process at a time works in; a killed process leaves no lock behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until nobody else works in the folder, which is made, and hold it."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the system opens it when the process ends, however it ends
        yield
