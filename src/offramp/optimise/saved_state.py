"""LOSS -> PARAMETERS: checkpoints of a run, complete or absent, never half.

A checkpoint is a folder with tensors (safetensors) and facts (JSON). It is written under another name,
flushed to the disk and renamed, so that a kill at any moment leaves the one before it. No pickles.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.errors import ModelError, TrainingError

_PREFIX = "checkpoint-"


class SavedState:
    """The checkpoints in one folder; only the newest is kept, and the best weights beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        """The newest complete checkpoint."""
        found = [p for p in self.folder.glob(f"{_PREFIX}*") if p.name.removeprefix(_PREFIX).isdigit()]
        return max(found, key=lambda p: int(p.name.removeprefix(_PREFIX)), default=None)

    def write(self, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write checkpoint `number` and then remove the older ones."""
        final = self.folder / f"{_PREFIX}{number}"
        part = self.folder / f".part-{number}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            save_file({name: t.contiguous() for name, t in tensors.items()}, part / "tensors.safetensors")
            (part / "facts.json").write_text(json.dumps(facts), "utf-8")
            for file in (part / "tensors.safetensors", part / "facts.json", part):
                _flush(file)
            _discard(final)
            part.rename(final)
            _flush(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise TrainingError(
                f"A checkpoint could not be written to `{self.folder}`: {error}. {self.advice()}"
            ) from error
        self._clear(but=final)

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint's tensors and facts, or None where there is none."""
        newest = self.newest()
        if newest is None:
            return None
        try:
            return load_file(newest / "tensors.safetensors"), json.loads((newest / "facts.json").read_text("utf-8"))
        except (OSError, SafetensorError, ValueError) as error:
            raise ModelError(f"The checkpoint `{newest}` is damaged: {error}. Remove it and train anew.") from error

    def advice(self) -> str:
        """What to do after a stop."""
        newest = self.newest()
        if newest is None:
            return "There is no checkpoint yet: mend the cause and start anew."
        return f"The last good checkpoint is `{newest}`: mend the cause and add --resume."

    def remove(self) -> None:
        """Remove all checkpoints: the run is done."""
        self._clear()

    def _clear(self, but: Path | None = None) -> None:
        for path in [*self.folder.glob(f"{_PREFIX}*"), *self.folder.glob(".part-*")]:
            if path != but:
                _discard(path)


def replace_text(file: Path, text: str) -> None:
    """Write a file so that a kill leaves the new one or the one before, never half of one."""
    part = file.with_name(f".{file.name}")
    part.write_text(text, "utf-8")
    os.replace(part, file)


def _discard(path: Path) -> None:
    """Remove a checkpoint; a kill does not leave half of it under its name."""
    part = path.with_name(f".part-{path.name}")
    shutil.rmtree(part, ignore_errors=True)
    with suppress(OSError):
        path.rename(part)
    for left in (path, part):
        shutil.rmtree(left, ignore_errors=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
