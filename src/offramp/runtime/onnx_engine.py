"""MODEL -> FAST MODEL: batched early exit in onnxruntime.

Whoever shares a batch, a text gets the same answer. An exit that was not exported is passed by.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from offramp.errors import ConfigError, ModelError
from offramp.exits.base import of_words
from offramp.runtime.compaction import walk
from offramp.runtime.onnx_folder import LABELS, Manifest, read
from offramp.runtime.onnx_sessions import Files, cores, open_sessions
from offramp.types import Batch, Decision, ExitOutput, Label, Policy, places_of

Array = NDArray[Any]


class OnnxEngine:
    """An exported model, ready to answer on so many threads, by default one per core.

    One batch has them all for each of its operators. Many batches have one thread each, as many at a time: that takes
    sessions of their own, which are made when they are first wanted.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self._open(*read(folder), threads, lambda: _unchanged(self._manifest, *read(folder)))

    @classmethod
    def of(cls, manifest: Manifest, files: Files, threads: int | None = None) -> OnnxEngine:
        """The engine of a model that is not on disk."""
        engine = cls.__new__(cls)
        engine._open(manifest, files, threads, lambda: files)
        return engine

    def _open(self, manifest: Manifest, files: Files, threads: int | None, again: Callable[[], Files]) -> None:
        if threads is not None and threads < 1:
            raise ConfigError(f"`threads` should be at least 1. Found {threads}.")
        self._manifest = manifest
        self.threads = threads or cores()
        try:
            self._labels = {int(depth): vectors for depth, vectors in load(files[LABELS]).items()}
        except (SafetensorError, ValueError) as error:
            raise ModelError(f"The exported model's `{LABELS}` cannot be read: {error}") from error
        self._sessions = open_sessions(manifest, files, self.threads)
        self._again = again  # the files, once more
        self._lane: OnnxEngine | None = None
        self._making = threading.Lock()

    @property
    def depth(self) -> int:
        """How many layers the model has."""
        return self._manifest.depth

    @property
    def exits(self) -> tuple[int, ...]:
        """The depths of the exits that were exported, the last among them."""
        return self._manifest.exits

    @property
    def trained(self) -> tuple[int, ...]:
        """Of these, the ones that were trained."""
        return self._manifest.trained

    @property
    def name(self) -> str:
        """`onnx`, or `onnx int8`."""
        return "onnx" if self.precision == "float32" else f"onnx {self.precision}"

    def fingerprint(self) -> str:
        """A hash of everything the manifest vouches for."""
        return hashlib.sha256(json.dumps(asdict(self._manifest), sort_keys=True).encode()).hexdigest()

    @property
    def labels(self) -> tuple[Label, ...]:
        """What the columns of the logits stand for."""
        return self._manifest.labels

    @property
    def precision(self) -> str:
        """`float32`, or `int8`."""
        return self._manifest.precision

    @torch.inference_mode()
    def decide(self, batch: Batch, policy: Policy) -> Decision:
        """Run a batch under a policy; the last exit answers whoever did not leave before."""
        exits = set(self._manifest.trained if policy.trained_only else self.exits) or set(self.exits)
        self._refuse_exits_that_are_absent(policy)
        return walk(_Segments(self, batch), batch, policy, self.exits, exits, len(self.labels))

    @torch.inference_mode()
    def outputs(self, batch: Batch, depths: Collection[int] | None = None) -> dict[int, ExitOutput]:
        """What the exits at these depths, or all that were exported, say of every text."""
        wanted = set(self.exits if depths is None else depths)
        if not wanted or not wanted <= set(self.exits):
            known = ", ".join(map(str, self.exits))
            raise ConfigError(f"Depths should be among the exported exits ({known}). Found {sorted(wanted)}.")
        found, hidden = {}, None
        for depth in self.exits:
            if depth <= max(wanted):
                hidden, found[depth] = self.segment(depth, batch, hidden, batch.mask.numpy(), batch.words)
        return {depth: output for depth, output in found.items() if depth in wanted}

    @contextmanager
    def lanes(self) -> Iterator[tuple[OnnxEngine, int]]:
        """A batch for each thread."""
        if self.threads < 2:
            yield self, 1
            return
        with self._making:
            if self._lane is None:
                lane = copy.copy(self)
                lane._sessions = open_sessions(self._manifest, self._again(), 1)
                lane.threads, self._lane = 1, lane
        yield self._lane, self.threads

    def segment(
        self, depth: int, batch: Batch, hidden: Array | None, mask: Array, words: Tensor | None = None
    ) -> tuple[Array, ExitOutput]:
        """The segment that ends at this exit; the first one takes the batch, the others the states below them.

        An exit that tags words answers at every token, and the marked ones, (B, T), are taken from that.
        """
        if hidden is None:
            given = {"ids": batch.input_ids.numpy(), "mask": mask}
            if self._manifest.token_types:
                types = batch.token_types
                given["types"] = np.zeros_like(mask) if types is None else types.numpy()
        else:
            given = {"hidden_in": hidden, "mask": mask}
        states, representation, logits = self._sessions[depth].run(None, given)
        output = ExitOutput(_tensor(representation), _tensor(logits), self._labels[depth])
        return states, output if words is None else of_words(output, words)

    def _refuse_exits_that_are_absent(self, policy: Policy) -> None:
        """Who names a depth whatever was trained means it; other policies read what there is."""
        if policy.trained_only:
            return
        absent = [depth for depth in range(1, self.depth) if depth not in self.exits and policy.reads(depth)]
        if absent:
            known = ", ".join(map(str, self.exits))
            raise ConfigError(
                f"The policy's exits should be among those that were exported ({known}). Found {absent[0]}. "
                "Export it too, or choose one of these."
            )


class _Segments:
    """A batch on its way through the segments."""

    def __init__(self, engine: OnnxEngine, batch: Batch) -> None:
        self.engine, self.batch = engine, batch
        self.hidden: Array | None = None  # (B, T, H)
        self.mask: Array = batch.mask.numpy()  # (B, T)
        self.words = batch.words  # (B, T), the marks of the words that are still here

    def advance(self, depth: int, read: bool) -> ExitOutput | None:
        # A segment ends with its exit: that is computed whether it is read or not.
        self.hidden, output = self.engine.segment(depth, self.batch, self.hidden, self.mask, self.words)
        return output if read else None

    def keep(self, rows: Tensor) -> None:
        assert self.hidden is not None
        if self.words is not None:
            left = torch.zeros_like(self.words)  # (B, T)
            left.view(-1)[places_of(self.words)[rows]] = 1
            rows = left.any(dim=1).nonzero()[:, 0]
            self.words = left[rows, : int(self.mask[rows.numpy()].sum(axis=1).max())]
        mask = self.mask[rows.numpy()]
        width = int(mask.sum(axis=1).max())
        self.mask = np.ascontiguousarray(mask[:, :width])
        self.hidden = np.ascontiguousarray(self.hidden[rows.numpy(), :width])


def _unchanged(manifest: Manifest, found: Manifest, files: Files) -> Files:
    if found != manifest:
        raise ModelError("The exported model should stay as it was while it is in use. Found another one in its place.")
    return files


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(array)
