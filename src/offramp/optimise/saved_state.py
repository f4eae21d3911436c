"""LOSS -> PARAMETERS: checkpoints of a run, complete or absent, never half.

A checkpoint is a folder with tensors (safetensors) and facts (JSON, sealed, with the tensors' SHA-256). It is written
under another name, flushed to the disk and renamed, so that a kill at any moment leaves the one before it. No pickles.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.disk import as_umask_says, flush, sha256
from offramp.errors import ModelError, TrainingError
from offramp.sealed import sealed, unsealed

_PREFIX, _BASE = "checkpoint-", "base-"
_TENSORS, _FACTS = "tensors.safetensors", "facts.json"


class Checkpoint(NamedTuple):
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, without that beginning."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}

    def check_processes(self, found: int) -> None:
        """Refuse to go on with another number of processes: each has drawn its own numbers."""
        began = sum(name.startswith("random/torch") for name in self.tensors)
        if began != found:
            raise TrainingError(
                f"A resumed run should have as many processes as it began with. It began with {began}, found {found}."
            )


class SavedState:
    """The checkpoints in one folder; only the newest is kept, and the one that a later phase of the run started from,
    its base.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> Path | None:
        """The newest complete checkpoint."""
        return next(iter(self._all()), None)

    def base(self) -> Path | None:
        """What the newest phase started from; None in the first."""
        return next((path for path in self._all() if path.name.startswith(_BASE)), None)

    def _all(self) -> list[Path]:
        """The complete checkpoints, the newest first: a base is newer than what the phase before it left last."""
        found = [
            (int(path.name.removeprefix(prefix)), prefix == _BASE, path)
            for prefix in (_PREFIX, _BASE)
            for path in self.folder.glob(f"{prefix}*")
            if path.name.removeprefix(prefix).isdecimal()
        ]
        return [path for *_, path in sorted(found, reverse=True)]

    def write(self, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write checkpoint `number` and then remove the older ones."""
        final = self.folder / f"{_PREFIX}{number}"
        self._put(final, self.folder / f".part-{number}", tensors, facts)
        self._clear(but=final)

    def write_base(self, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write what a phase starts from, after `number` updates: the checkpoints that follow hold only what it
        changes, and until there is one, the run goes on from here.
        """
        final = self.folder / f"{_BASE}{number}"
        self._put(final, self.folder / f".part-next-{_BASE}{number}", tensors, facts)
        for older in self.folder.glob(f"{_BASE}*"):
            if older != final:
                _discard(older)

    def back_to_base(self) -> None:
        """Forget what came after the base, so that its phase begins anew; in a first phase, nothing."""
        base = self.base()
        for path in self._all():
            if path == base:
                break
            if base is not None:
                _discard(path)

    def _put(self, final: Path, part: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            save_file({name: t.contiguous() for name, t in tensors.items()}, part / _TENSORS)
            manifest = {"facts": facts, "sha256": sha256(part / _TENSORS)}
            (part / _FACTS).write_text(sealed(manifest), "utf-8")
            as_umask_says(part)
            for file in (part / _TENSORS, part / _FACTS, part):
                flush(file)
            _discard(final)
            part.rename(final)
            flush(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise TrainingError(
                f"A checkpoint could not be written to `{self.folder}`: {error}. {self.advice()}"
            ) from error

    def read(self) -> Checkpoint | None:
        """The newest checkpoint that is not damaged, or None where there is none at all."""
        damaged: ModelError | None = None
        for folder in self._all():
            try:
                return _load(folder)
            except ModelError as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return None

    def read_base(self) -> Checkpoint:
        """What the phase of the newest checkpoint started from."""
        base = self.base()
        if base is None:
            raise ModelError(f"`{self.folder}` should hold what its phase started from. Remove it and train anew.")
        return _load(base)

    def advice(self) -> str:
        """What to do after a stop."""
        newest = self.newest()
        if newest is None:
            return "There is no checkpoint yet: mend the cause and start anew."
        return f"The last good checkpoint is `{newest}`: mend the cause and add --resume."

    def remove(self, but_base: bool = False) -> None:
        """Remove all checkpoints: the run is done."""
        base = self.base() if but_base else None
        self._clear(but=base)
        for path in self.folder.glob(f"{_BASE}*"):
            if path != base:
                _discard(path)

    def _clear(self, but: Path | None = None) -> None:
        for path in [*self.folder.glob(f"{_PREFIX}*"), *self.folder.glob(".part-*")]:
            if path != but:
                _discard(path)


def _load(folder: Path) -> Checkpoint:
    try:
        manifest = unsealed((folder / _FACTS).read_bytes())
        if sha256(folder / _TENSORS) != manifest["sha256"]:
            raise ValueError(f"`{_TENSORS}` is not what was written")
        return Checkpoint(load_file(folder / _TENSORS), manifest["facts"])
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"The checkpoint `{folder}` is damaged: {error}. Remove it and train anew.") from error


def _discard(path: Path) -> None:
    """Remove a checkpoint; a kill does not leave half of it under its name."""
    part = path.with_name(f".part-{path.name}")
    shutil.rmtree(part, ignore_errors=True)
    with suppress(OSError):
        path.rename(part)
    for left in (path, part):
        shutil.rmtree(left, ignore_errors=True)
