"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the model that a run goes on from.

Where the backbone of a run is a folder that `offramp train` wrote, its backbone and tokenizer are taken, and its
trained exits where they fit: the same labels, the same kind and size. Else the exits begin anew, and a warning says
why. The texts that it was trained on are texts that the new model has seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from offramp.config import Config
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.model import MultiExitModel

SHAPE = ("exit_kind", "last_kind", "exit_size", "exit_heads", "exit_window", "exit_reads", "exit_projection")
"""What the parameters of an exit, and their meaning, depend on beside the labels and the backbone."""


class ExitsBeginAnew(UserWarning):
    """The exits of the model that a run goes on from do not fit."""


@dataclass(frozen=True)
class Predecessor:
    """A trained model that another begins with."""

    folder: Path
    model: MultiExitModel
    tokenizer: Any

    @classmethod
    def of(cls, config: Config) -> Predecessor | None:
        """The model that the configuration names as its backbone; None where that is a backbone and nothing else."""
        folder = folder_of(config)
        if folder is None:
            return None
        model, tokenizer, _ = checkpoint.load(folder, config.encoder.attention)
        if model.config.layer_heads:
            raise ModelError(
                f"A run should go on from a model that has all its attention heads. `{folder}` has lost some: begin "
                "with its own backbone."
            )
        return cls(folder, model, tokenizer)

    def hand_over(self, model: MultiExitModel) -> bool:
        """Give the trained exits to a model that has the same backbone, where they fit, and say whether they do."""
        reasons = list(self._misfits(model))
        if reasons:
            said = f"The exits of `{self.folder}` begin anew: {'; '.join(reasons)}."
            warnings.warn(said, ExitsBeginAnew, stacklevel=3)
            return False
        for depth in self.model.config.trained_exits:
            model.exits[depth - 1].load_state_dict(self.model.exits[depth - 1].state_dict())
        return True

    def _misfits(self, model: MultiExitModel) -> Iterator[str]:
        old, new = self.model.config, model.config
        if (old.sets, old.tags) != (new.sets, new.tags):
            yield "labels of one kind, sets and tags do not go over into each other"
        elif old.labels != new.labels:
            yield f"its labels are {_few(old.labels)}, those of the texts {_few(new.labels)}"
        for name in SHAPE:
            if getattr(old, name) != getattr(new, name):
                yield f"its {name} is {getattr(old, name)}, that of the settings {getattr(new, name)}"


def folder_of(config: Config) -> Path | None:
    """The folder of the model that a run goes on from; None where its backbone is none of ours."""
    folder = Path(config.encoder.backbone)
    return folder if checkpoint.is_model(folder) else None


def seen_with(config: Config, seen: Tensor) -> Tensor | None:
    """The hashes of a run's texts with those of the model it goes on from; None where that does not tell its own."""
    folder = folder_of(config)
    if folder is None:
        return seen
    before = checkpoint.load_seen(folder)
    return None if before is None else torch.unique(torch.cat([before, seen]))


def _few(names: list[Any]) -> str:
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
