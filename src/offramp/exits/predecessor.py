"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the model that a run goes on from.

Where the backbone of a run is a folder that `offramp train` wrote, its backbone and tokenizer are taken, and every exit
that fits: the same labels, the same kind, the same settings of that kind. A trained exit that does not fit begins anew,
and a warning says why. The texts that the model was trained on are texts that the new one has seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from offramp.config import Config
from offramp.encoder.load import ALIASES
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.linear import LinearExit
from offramp.exits.model import MultiExitConfig, MultiExitModel

READS: dict[str, tuple[str, ...]] = {
    "linear": ("reads", "projection"),
    "match": ("reads", "projection"),
    "mha": ("size", "heads"),
    "residual": ("size", "heads"),
    "fusion": ("window",),
    "leam": ("window",),
    "lsan": ("size",),
}
"""Names of the exits to the settings that their parameters, or what these mean, depend on."""


class ExitsBeginAnew(UserWarning):
    """Trained exits of the model that a run goes on from do not fit."""


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
        if checkpoint.WEIGHTS not in checkpoint.verify(folder):
            raise ModelError(
                f"A run should go on from a model with `{checkpoint.WEIGHTS}`. `{folder}` has none, as one that was "
                "exported: use the model that it was made of."
            )
        model, tokenizer, _ = checkpoint.load(folder, config.encoder.attention)
        if model.config.layer_heads:
            raise ModelError(
                f"A run should go on from a model that has all its attention heads. `{folder}` has lost some: begin "
                "with its own backbone."
            )
        return cls(folder, model.to(torch.float32), tokenizer)  # type: ignore[arg-type]

    def hand_over(self, model: MultiExitModel) -> set[int]:
        """Give the exits that fit to a model with the same backbone, and say at which depths they had been trained."""
        trained, reasons = set(self.model.config.trained_exits), dict[str, None]()
        for depth in range(1, model.depth + 1):
            old, new = self.model.exits[depth - 1], model.exits[depth - 1]
            wrong = list(_misfits(self.model.config, model.config, last=depth == model.depth))
            if not wrong:
                new.load_state_dict(old.state_dict())
            elif isinstance(old, LinearExit) and isinstance(new, LinearExit):
                _hand_over_pooler(old, new)
            if wrong and depth in trained:
                trained.remove(depth)
                reasons |= dict.fromkeys(wrong)
        if reasons:
            said = f"Exits of `{self.folder}` begin anew: {'; '.join(reasons)}."
            warnings.warn(said, ExitsBeginAnew, stacklevel=3)
        return trained


def folder_of(config: Config) -> Path | None:
    """The folder of the model that a run goes on from; None where its backbone is none of ours."""
    name = config.encoder.backbone
    return Path(name) if name not in ALIASES and checkpoint.is_model(Path(name)) else None


def seen_with(config: Config, seen: Tensor) -> Tensor | None:
    """The hashes of a run's texts with those of the model it goes on from; None where that does not tell its own."""
    folder = folder_of(config)
    if folder is None:
        return seen
    before = checkpoint.load_seen(folder)
    return None if before is None else torch.unique(torch.cat([before, seen]))


def _misfits(old: MultiExitConfig, new: MultiExitConfig, last: bool) -> Iterator[str]:
    """Why an exit of one model, the last or another, is none of the other's."""
    if (old.sets, old.tags) != (new.sets, new.tags):
        yield "one label, sets of labels and tags do not go over into each other"
    elif old.labels != new.labels:
        yield f"its labels are {_few(old.labels)}, those of the texts {_few(new.labels)}"
    kind, wanted = (old.last_kind, new.last_kind) if last else (old.exit_kind, new.exit_kind)
    if kind != wanted:
        yield f"they are {kind}, and {wanted} is asked for"
        return
    for name in READS[kind]:
        found, asked = getattr(old, f"exit_{name}"), getattr(new, f"exit_{name}")
        if found != asked:
            yield f"their exits.{name} is {found}, and {asked} is asked for"


def _hand_over_pooler(old: LinearExit, new: LinearExit) -> None:
    """A pooler is the backbone's, whatever the labels are."""
    if isinstance(old.pool, nn.Linear) and isinstance(new.pool, nn.Linear):
        new.pool.load_state_dict(old.pool.state_dict())


def _few(names: list[Any]) -> str:
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
