"""MODEL -> FAST MODEL: the folder of an exported model: ONNX segments, tokenizer and settings, whole or refused."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from offramp.config import Config
from offramp.data.tokens import Tokens
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.folder import check_empty
from offramp.exits.manifest import MANIFEST as MODEL
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.policies.never import Never
from offramp.reading import alike, answers
from offramp.runtime.engine import Engine, run
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_export import export as export_segments
from offramp.runtime.quantise import quantise


@dataclass(frozen=True)
class Comparison:
    """Labelled texts on which an exported model is held against the one it was made of."""

    engine: Engine
    tokens: Tokens
    truth: Sequence[int] | Sequence[Sequence[int]]
    batch_size: int
    most: float | None = None  # accuracy that may be lost; None: any
    sets: bool = False  # whether each text has a set of labels, all of which must be right

    def of(self, exported: Engine) -> dict[str, float | int]:
        """Both accuracies at full depth; a loss above the limit is an error."""
        before, after = self._accuracy(self.engine), self._accuracy(exported)
        if self.most is not None and before - after > self.most + 1e-9:  # a loss of just that much rounds either way
            raise ModelError(
                f"The exported model should lose at most {self.most:g} of accuracy. Found {before:.4f} before and "
                f"{after:.4f} after, on {len(self.truth)} texts. Nothing was written: export without --int8, or allow "
                "more with --max-drop."
            )
        return {"texts": len(self.truth), "accuracy_before": before, "accuracy_after": after}

    def _accuracy(self, engine: Engine) -> float:
        given = answers(run(engine, self.tokens, Never(), self.batch_size).logits, self.sets)
        return int(alike(given, torch.tensor(self.truth)).sum()) / len(self.truth)


def export(
    folder: Path,
    model: MultiExitModel,
    tokenizer: Any,
    config: Config,
    int8: bool = False,
    exits: Sequence[int] | None = None,
    comparison: Comparison | None = None,
    seen: Tensor | None = None,
) -> dict[str, float | int]:
    """Write a model as segments, with all that loading it takes, into a folder that holds nothing else."""
    if model.config.windows > 1:
        raise ModelError("An exported model should read texts in one window. Found a model that reads them in several.")
    try:
        check_empty(folder)
        with _beside(folder) as part:
            made = part / "model"
            if int8:
                export_segments(model, part / "whole", exits)
                quantise(part / "whole", made)
            else:
                export_segments(model, made, exits)
            compared = {} if comparison is None else comparison.of(OnnxEngine(made))
            checkpoint.save(made, model, tokenizer, config, weights=False, seen=seen)
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
    except OSError as error:
        raise ModelError(f"The exported model cannot be written to `{folder}`: {error.strerror or error}.") from error
    return compared


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder in which to make this one; where that fails, neither it nor a parent it needed is left."""
    absent = [parent for parent in folder.parents if not parent.exists()]  # the innermost first
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=folder.parent) as name:
            yield Path(name)
    except BaseException:
        with suppress(OSError):  # somebody else put something there
            for parent in absent:
                parent.rmdir()
        raise


def load_exported(folder: Path, threads: int | None = None) -> tuple[OnnxEngine, MultiExitConfig, Any, Config]:
    """The engine of an exported model, what the model is made of, its tokenizer and its configuration."""
    if not checkpoint.is_model(folder):
        raise ModelError(f"The exported model `{folder}` is damaged: `{MODEL}` is missing. Export again.")
    made_of, tokenizer, config = checkpoint.load_without_weights(folder)
    engine = OnnxEngine(folder, threads)
    if list(engine.labels) != made_of.labels:
        raise ModelError(f"The exported model `{folder}` is damaged: its parts have other labels. Export again.")
    return engine, made_of, tokenizer, config
