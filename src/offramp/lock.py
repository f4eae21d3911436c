"""A folder that one process at a time works in.

The lock is the system's, on the folder itself: it ends with the process that holds it, however that ends, and leaves
nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offramp.errors import UserError


class Busy(UserError):
    """Another process works in the folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"One process at a time should work in `{folder}`. Another one does: wait for it, or end it.")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made; one that is still empty when this fails is not left behind."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]  # the innermost first
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = _lock(folder)
        except OSError as error:
            raise UserError(f"The folder `{folder}` should be writable. Found: {error}.") from error
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)
    except BaseException:
        with suppress(OSError):  # something was written
            for path in absent:
                path.rmdir()
        raise


def _lock(folder: Path) -> int | None:
    """A handle that holds the folder; None where the file system knows no locks."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return None
    while True:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed the folder, and somebody have made it again.
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise Busy(folder) from None
        except OSError:
            os.close(handle)
            return None
        os.close(handle)
        folder.mkdir(parents=True, exist_ok=True)
