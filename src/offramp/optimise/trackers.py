"""LOSS -> PARAMETERS: whom a run tells its numbers besides its log: TensorBoard, Weights & Biases, trackio.

All of them through accelerate, by one code path.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate import tracking

from offramp.errors import ConfigError

PROJECT = "offramp"
TENSORBOARD = "tensorboard"
ELSEWHERE = {"wandb": "WandBTracker", "trackio": "TrackioTracker"}
"""Trackers that keep their numbers outside of the run's folder, by their package, and accelerate's classes."""


def trackers(names: Sequence[str], folder: Path | None) -> list[Any] | None:
    """What accelerate is to log with; TensorBoard writes into the run's folder, and not at all where there is none."""
    found: list[Any] = [TENSORBOARD] if TENSORBOARD in names and folder is not None else []
    for name in dict.fromkeys(names):
        if name in ELSEWHERE:
            check_installed(name)
            run = {} if folder is None else {"name": folder.resolve().parent.name}
            found.append(getattr(tracking, ELSEWHERE[name])(PROJECT, **run))
    return found or None  # accelerate warns of an empty list


def check_installed(name: str) -> None:
    """Refuse a tracker that is not there."""
    # No extra of ours: its versions are pinned by what else is installed, and the run does not need it.
    if name in ELSEWHERE and find_spec(name) is None:
        raise ConfigError(
            f"`optimise.track` should name trackers that are installed. Found `{name}`, which is not. "
            f"Run: pip install {name}"
        )
