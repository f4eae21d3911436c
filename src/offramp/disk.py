"""Files that are whole or absent, never half: written under another name, flushed to the disk, then renamed; hashes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def replace_file(file: Path, content: bytes | str) -> None:
    """Write a file so that a kill or a power cut leaves the new one or the one before."""
    part = file.with_name(f".{file.name}")
    with part.open("wb") as handle:
        handle.write(content.encode() if isinstance(content, str) else content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(part, file)
    flush(file.parent)


@contextmanager
def growing_file(file: Path) -> Iterator[IO[str]]:
    """A file to write piece by piece, which has its name once all is written; where that fails, nothing is left."""
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    flush(file.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_umask_says(folder: Path) -> None:
    """Give the files of a new folder the mode of any new file; safetensors makes its own for their owner alone."""
    # The kernel applies the umask to a file; a process can only ask for it by changing it, for all its threads.
    probe = folder / ".mode"
    handle = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
        probe.unlink()
    for file in folder.iterdir():
        file.chmod(mode)


def sha256(file: Path) -> str:
    """The hash of a file's content, which is never in memory as a whole."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
