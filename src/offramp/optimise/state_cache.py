"""LOSS -> PARAMETERS: the states of a backbone that stands still, computed once.

The exits below the last read the same states in every epoch. They lie on disk in half precision, one file per depth,
all tokens of all texts one after the other, and are mapped into memory; what the last exit says of each text lies
beside them. A cache is written under another name and renamed when it is whole; its key tells the tokens, the weights
and the precision it was made of, so that it is never taken for another. One that was damaged since is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.data.sampling import sorted_batches
from offramp.data.tokens import Tokens
from offramp.disk import sha256
from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.sealed import sealed, unsealed
from offramp.types import ExitOutput, States

_FACTS, _TEACHER = "facts.json", "teacher.safetensors"
_BATCH = 64  # texts that walk the backbone together

WALKED = "walked"
"""The kind of states that are computed whenever they are wanted; others are named by the numbers they are stored in."""


class CacheWarning(UserWarning):
    """The states do not fit and are computed again each epoch."""


@dataclass(frozen=True)
class Lesson:
    """What a batch of texts gives to exits that learn on a backbone that stands still."""

    states: dict[int, States]  # what the exits read, by depth
    teacher: ExitOutput  # of the last exit
    labels: Tensor  # (B,), of tags (W,)
    weights: Tensor | None = None  # (B,) of the texts in the cross entropy


class Frozen:
    """The states and the teacher's answers for any of the texts, walked anew each time."""

    def __init__(self, model: MultiExitModel, tokens: Tokens, depths: Sequence[int], autocast: Autocast) -> None:
        self.model, self.tokens, self.depths, self.autocast = model, tokens, tuple(depths), autocast
        self.bytes = 0  # on disk
        self.kind = WALKED

    @torch.no_grad()
    def lesson(self, rows: Sequence[int]) -> Lesson:
        """All that the exits need of these texts: one walk for all depths."""
        batch = self.tokens.batch(rows).to(self.model.device)
        states: dict[int, States] = {}
        with self.autocast():
            for depth, found in self.model.walk(batch):
                if depth in self.depths:
                    states[depth] = States(found.output, found.output, found.mask, words=found.words)
                last = found
            teacher = self.model.read(self.model.depth, last)
        return Lesson(states, _detached(teacher), *_truth(self.tokens, rows, self.model.device))


class Cached(Frozen):
    """The same from files."""

    def __init__(
        self, model: MultiExitModel, tokens: Tokens, depths: Sequence[int], autocast: Autocast, folder: Path
    ) -> None:
        super().__init__(model, tokens, depths, autocast)
        facts = json.loads((folder / _FACTS).read_text("utf-8"))
        kind = getattr(torch, facts["dtype"])
        total, width = int(tokens.offsets[-1]), model.encoder.hidden_size
        self.stored = {
            depth: torch.from_file(str(_file(folder, depth)), size=total * width, dtype=kind).view(total, width)
            for depth in self.depths
        }
        self.answers = load_file(folder / _TEACHER)
        self.bytes, self.kind = _bytes(self), facts["dtype"]

    @torch.no_grad()
    def lesson(self, rows: Sequence[int]) -> Lesson:
        """All that the exits need of these texts, read from the disk's cache."""
        places = np.asarray(rows, np.int64)  # (B,)
        lengths = self.tokens.lengths[places]  # (B,)
        columns = np.arange(lengths.max(initial=0))  # (T,)
        inside = columns < lengths[:, None]  # (B, T)
        # Padding reads the first token of its text, and nobody reads the padding.
        flat = torch.from_numpy(self.tokens.offsets[places][:, None] + np.where(inside, columns, 0))  # (B, T)
        mask = torch.from_numpy(inside.astype(np.int64)).to(self.model.device)
        words = None
        if self.tokens.words is not None:
            words = torch.from_numpy((self.tokens.words.marks[flat.numpy()] & inside).astype(np.int64))
            words = words.to(self.model.device)  # (B, T)
        shape = (*flat.shape, self.model.encoder.hidden_size)
        states: dict[int, States] = {}
        for depth, stored in self.stored.items():
            output = stored.index_select(0, flat.flatten()).view(shape).float().to(self.model.device)  # (B, T, H)
            states[depth] = States(output, output, mask, words=words)
        chosen = torch.from_numpy(self.tokens.answers_of(places))
        device = self.model.device
        embeddings = cast(Exit, self.model.exits[-1]).label_parameter.detach()
        teacher = ExitOutput(
            self.answers["representation"][chosen].to(device), self.answers["logits"][chosen].to(device), embeddings
        )
        return Lesson(states, teacher, *_truth(self.tokens, rows, device))


Autocast = Callable[[], AbstractContextManager[Any]]


Tell = Callable[[int, int], None]


@dataclass(frozen=True)
class Room:
    """How much of the disk the states of some texts may take."""

    budget: float  # bytes
    shares: int = 1  # processes that write as much to the same disk
    agreed: Callable[[bool], bool] = bool  # whether what this process says of its room, all say of theirs
    spare: int = 0  # bytes that the run will write beside the states

    def on_disk(self, folder: Path) -> float:
        """Bytes that may be written there, now."""
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free * 0.9 - self.spare
        return max(0.0, min(self.budget, free / self.shares))


def open_cache(
    folder: Path,
    model: MultiExitModel,
    tokens: Tokens,
    depths: Sequence[int],
    autocast: Autocast,
    room: Room,
    tell: Tell = lambda done, texts: None,
    whose: str = "the texts",
) -> Frozen:
    """The states of these texts at these depths: from disk where there is room for them, else walked anew.

    While they are written down, `tell` hears of how many of the texts. A warning says `whose` they are.
    """
    frozen = Frozen(model, tokens, depths, autocast)
    needed = _bytes(frozen)
    if not needed:
        return frozen
    home = folder / f"states-{_key(frozen)}"
    whole = needed <= room.budget and _whole(home)
    if not whole:
        for left in (home, *folder.glob(".states-*")):  # by a run that was killed, or that was allowed more
            shutil.rmtree(left, ignore_errors=True)
    if not room.budget:
        return frozen
    free = needed if whole else room.on_disk(folder)
    if not room.agreed(needed <= free):
        shutil.rmtree(home, ignore_errors=True)
        less = "raise stage2.cache_gb" if room.budget < needed else "make room on the disk"
        warnings.warn(
            f"The frozen states of {whose} would take {_size(needed)}, and {_size(free)} may be used: they are "
            f"computed again in each epoch, for all exits at once. To have them stored, {less}.",
            CacheWarning,
            stacklevel=2,
        )
        return frozen
    if not whole and not _write(home, frozen, torch.float16, tell):
        _write(home, frozen, torch.bfloat16, tell)  # coarser, and as far-reaching as float32
    return Cached(model, tokens, depths, autocast, home)


def _bytes(frozen: Frozen) -> int:
    """What a cache takes: the states in half precision, and what the last exit says of each text or word in float32."""
    model, tokens = frozen.model, frozen.tokens
    states = 2 * int(tokens.offsets[-1]) * model.encoder.hidden_size * len(frozen.depths)
    return states + 4 * tokens.answers * (model.width(model.depth) + len(model.config.labels))


def _size(count: float) -> str:
    """So many bytes in the unit in which the number is short."""
    unit, name = next((each for each in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= each[0]), (1.0, "bytes"))
    return f"{count / unit:.4g} {name}"


def remove_caches(folder: Path) -> None:
    """Remove what `open_cache` left in the folder, half-written or whole."""
    for path in [*folder.glob("states-*"), *folder.glob(".states-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _write(home: Path, frozen: Frozen, dtype: torch.dtype, tell: Tell) -> bool:
    """Write a cache, whole or not at all; False where a state is too large for float16."""
    part = home.with_name(f".{home.name}")
    part.mkdir()
    try:
        if not _fill(part, frozen, dtype, tell):
            return False
        files = {file.name: sha256(file) for file in part.iterdir()}
        facts = {"dtype": str(dtype).removeprefix("torch."), "depths": frozen.depths, "files": files}
        (part / _FACTS).write_text(sealed(facts), "utf-8")
        for file in part.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        part.rename(home)
        return True
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, frozen: Frozen, dtype: torch.dtype, tell: Tell) -> bool:
    tokens, width = frozen.tokens, frozen.model.encoder.hidden_size
    total = int(tokens.offsets[-1])
    stored = {depth: _mapped(_file(part, depth), total * width, dtype).view(total, width) for depth in frozen.depths}
    answers: dict[str, Tensor] = {}
    done = 0
    for rows, lesson in _lessons(frozen):
        flat = torch.from_numpy(np.concatenate([np.arange(*tokens.offsets[row : row + 2]) for row in rows]))
        for depth, states in lesson.states.items():
            # The first tokens of each row are the text's, the rest is padding.
            found = states.output[states.mask == 1].cpu()  # (tokens of the batch, H)
            if dtype == torch.float16 and bool((found.abs() > torch.finfo(dtype).max).any()):
                return False
            stored[depth][flat] = found.to(dtype)
        for name, value in (("representation", lesson.teacher.representation), ("logits", lesson.teacher.logits)):
            if name not in answers:
                answers[name] = torch.zeros(tokens.answers, value.shape[1])
            answers[name][torch.from_numpy(tokens.answers_of(rows))] = value.float().cpu()
        done += len(rows)
        tell(done, len(tokens))
    save_file(answers, part / _TEACHER)
    return True


def _mapped(file: Path, size: int, dtype: torch.dtype) -> Tensor:
    """A new file of so many numbers, to be written through memory."""
    with file.open("wb") as handle:
        # A disk that runs full is an error here; later, in a file with holes, it would be a signal that kills.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle.fileno(), 0, size * dtype.itemsize)
    return torch.from_file(str(file), shared=True, size=size, dtype=dtype)


def _whole(home: Path) -> bool:
    """Whether all is there as it was written: a run can also be killed while it removes a cache."""
    try:
        files = unsealed((home / _FACTS).read_bytes())["files"]
        return all(sha256(home / name) == wanted for name, wanted in files.items())
    except (OSError, ValueError):
        return False


def _lessons(frozen: Frozen) -> Iterator[tuple[list[int], Lesson]]:
    for rows in sorted_batches(frozen.tokens.lengths, _BATCH):
        yield rows, frozen.lesson(rows)


def _key(frozen: Frozen) -> str:
    """A hash of the tokens, and of the weights, the settings and the precision that make states and answers of them."""
    model, tokens = frozen.model, frozen.tokens
    device = model.device.type
    with frozen.autocast():
        narrow = str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else ""
    own = ("exit_kind", "last_kind", "exit_heads", "exit_temperature", "exit_window", "exit_reads", "exit_projection")
    exit = {name: getattr(model.config, name) for name in (*own, "max_tokens", "windows")}
    settings = [frozen.depths, narrow, exit, model.encoder.backbone.config.to_dict(), tokens.pad]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for array in (tokens.ids, tokens.offsets, tokens.types):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    if tokens.words is not None:
        digest.update(tokens.words.marks.tobytes())
    for part in (model.encoder, model.exits[-1]):
        for name, tensor in part.state_dict().items():
            digest.update(f"{name} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _file(folder: Path, depth: int) -> Path:
    return folder / f"depth-{depth}.bin"


def _truth(tokens: Tokens, rows: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """The labels of these texts, and their weights where they have some."""
    if tokens.labels is None:
        raise ValueError("exits learn from labels")
    places = np.asarray(rows, np.int64)
    weights = None if tokens.weights is None else torch.from_numpy(tokens.weights[places]).to(device)
    return torch.from_numpy(tokens.labels[tokens.answers_of(places)]).to(device), weights


def _detached(output: ExitOutput) -> ExitOutput:
    return ExitOutput(output.representation.detach(), output.logits.detach(), output.label_embeddings.detach())
