"""LOSS -> PARAMETERS: the states of a backbone that stands still, computed once.

The exits below the last read the same states in every epoch. They lie on disk in half precision, one file per depth,
all tokens of all texts one after the other, and are mapped into memory; what the last exit says of each text lies
beside them. A cache is written under another name and renamed when it is whole; its key tells the tokens and the
weights it was made of, so that it is never taken for another.
"""

from __future__ import annotations

import hashlib
import json
import math
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
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.data.sampling import sorted_batches
from offramp.data.tokens import Tokens
from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.types import ExitOutput, States

_FACTS, _TEACHER = "facts.json", "teacher.safetensors"
_BATCH = 64  # texts that walk the backbone together


class CacheWarning(UserWarning):
    """The states do not fit and are computed again each epoch."""


@dataclass(frozen=True)
class Lesson:
    """What a batch of texts gives to exits that learn on a backbone that stands still."""

    states: dict[int, States]  # what the exits read, by depth
    teacher: ExitOutput  # of the last exit
    labels: Tensor  # (B,)


class Frozen:
    """The states and the teacher's answers for any of the texts, walked anew each time."""

    def __init__(self, model: MultiExitModel, tokens: Tokens, depths: Sequence[int], autocast: Autocast) -> None:
        self.model, self.tokens, self.depths, self.autocast = model, tokens, tuple(depths), autocast
        self.bytes = 0  # on disk

    @torch.no_grad()
    def lesson(self, rows: Sequence[int]) -> Lesson:
        """All that the exits need of these texts: one walk for all depths."""
        batch = self.tokens.batch(rows).to(self.model.device)
        states: dict[int, States] = {}
        with self.autocast():
            for depth, found in self.model.walk(batch):
                if depth in self.depths:
                    states[depth] = States(found.output, found.output, found.mask)
                last = found
            teacher = self.model.read(self.model.depth, last)
        return Lesson(states, _detached(teacher), _labels(self.tokens, rows, self.model.device))


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
        self.bytes = 2 * total * width * len(self.depths)

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
        shape = (*flat.shape, self.model.encoder.hidden_size)
        states: dict[int, States] = {}
        for depth, stored in self.stored.items():
            output = stored.index_select(0, flat.flatten()).view(shape).float().to(self.model.device)  # (B, T, H)
            states[depth] = States(output, output, mask)
        chosen = torch.from_numpy(places)
        device = self.model.device
        embeddings = cast(Exit, self.model.exits[-1]).label_parameter.detach()
        teacher = ExitOutput(
            self.answers["representation"][chosen].to(device), self.answers["logits"][chosen].to(device), embeddings
        )
        return Lesson(states, teacher, _labels(self.tokens, rows, device))


Autocast = Callable[[], AbstractContextManager[Any]]


def open_cache(
    folder: Path, model: MultiExitModel, tokens: Tokens, depths: Sequence[int], autocast: Autocast, budget: float
) -> Frozen:
    """The states of these texts at these depths: from disk where `budget` bytes allow it, else walked anew."""
    frozen = Frozen(model, tokens, depths, autocast)
    needed = int(tokens.offsets[-1]) * model.encoder.hidden_size * 2 * len(depths)
    if not budget:
        return frozen
    home = folder / f"states-{_key(model, tokens, depths)}"
    if not home.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        room = min(budget, shutil.disk_usage(folder).free * 0.9)
        if needed > room:
            warnings.warn(
                f"The frozen states would take {needed / 1e9:.1f} GB, and {room / 1e9:.1f} GB may be used: they are "
                "computed again in each epoch, for all exits at once. Raise stage2.cache_gb or make room.",
                CacheWarning,
                stacklevel=2,
            )
            return frozen
        try:
            _write(home, frozen, torch.float16)
        except OverflowError:  # coarser, and as far-reaching as float32
            _write(home, frozen, torch.bfloat16)
    return Cached(model, tokens, depths, autocast, home)


def remove_caches(folder: Path) -> None:
    """Remove what `open_cache` left in the folder, half-written or whole."""
    for path in [*folder.glob("states-*"), *folder.glob(".states-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _write(home: Path, frozen: Frozen, dtype: torch.dtype) -> None:
    part = home.with_name(f".{home.name}")
    for left in home.parent.glob(".states-*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    part.mkdir()
    tokens, width = frozen.tokens, frozen.model.encoder.hidden_size
    total = int(tokens.offsets[-1])
    stored = {
        depth: torch.from_file(str(_file(part, depth)), shared=True, size=total * width, dtype=dtype)
        .view(total, width)
        .zero_()
        for depth in frozen.depths
    }
    answers: dict[str, Tensor] = {}
    for rows, lesson in _lessons(frozen):
        flat = torch.from_numpy(np.concatenate([np.arange(*tokens.offsets[row : row + 2]) for row in rows]))
        for depth, states in lesson.states.items():
            # The first tokens of each row are the text's, the rest is padding.
            stored[depth][flat] = states.output[states.mask == 1].to("cpu", dtype)
        for name, value in (("representation", lesson.teacher.representation), ("logits", lesson.teacher.logits)):
            if name not in answers:
                answers[name] = torch.zeros(len(tokens), value.shape[1])
            answers[name][torch.tensor(rows)] = value.float().cpu()
    if not all(math.isfinite(float(s.abs().max())) for s in stored.values() if len(s)):
        raise OverflowError(f"a state is too large for {dtype}")
    del stored
    save_file(answers, part / _TEACHER)
    (part / _FACTS).write_text(
        json.dumps({"dtype": str(dtype).removeprefix("torch."), "depths": frozen.depths}), "utf-8"
    )
    for file in part.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    part.rename(home)


def _lessons(frozen: Frozen) -> Iterator[tuple[list[int], Lesson]]:
    for rows in sorted_batches(frozen.tokens.lengths, _BATCH):
        yield rows, frozen.lesson(rows)


def _key(model: MultiExitModel, tokens: Tokens, depths: Sequence[int]) -> str:
    """A hash of the tokens and of the weights that make states and answers of them."""
    digest = hashlib.sha256(json.dumps([list(depths), model.config.exit_kind]).encode())
    for array in (tokens.ids, tokens.offsets, tokens.types):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    for part in (model.encoder, model.exits[-1]):
        for name, tensor in part.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _file(folder: Path, depth: int) -> Path:
    return folder / f"depth-{depth}.bin"


def _labels(tokens: Tokens, rows: Sequence[int], device: torch.device) -> Tensor:
    if tokens.labels is None:
        raise ValueError("exits learn from labels")
    return torch.from_numpy(tokens.labels[np.asarray(rows, np.int64)]).to(device)


def _detached(output: ExitOutput) -> ExitOutput:
    return ExitOutput(output.representation.detach(), output.logits.detach(), output.label_embeddings.detach())
