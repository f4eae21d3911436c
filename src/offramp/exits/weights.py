"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: a file of weights is checked before any of them is read.

A file that lacks a weight would leave it as it was drawn, and a configuration with other sizes would take memory for
what is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from offramp.exits.model import MultiExitConfig, MultiExitModel

KINDS = ("F64", "F32", "F16", "BF16")
LAYERS = ("num_hidden_layers", "n_layers", "num_layers")


def check_weights(file: Path, made_of: MultiExitConfig) -> None:
    """Refuse, with a ValueError, weights that are not just those of a model that is made so."""
    found: dict[str, tuple[int, ...]] = {}
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118, it is no mapping
            part = opened.get_slice(name)
            if part.get_dtype() not in KINDS:
                raise ValueError(f"Weights should be floating-point numbers. `{name}` in `{file.name}` is not.")
            found[name] = tuple(part.get_shape())
    _check_sizes(made_of, len(found), sum(math.prod(shape) for shape in found.values()))
    with torch.device("meta"):  # shapes without memory
        model = MultiExitModel(made_of)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ValueError(
                f"`{file.name}` should hold `{name}` as {_shown(wanted.get(name))}. Found {_shown(found.get(name))}."
            )
    _check_fields(made_of, model.depth)


def _check_sizes(made_of: MultiExitConfig, tensors: int, numbers: int) -> None:
    """Refuse a configuration that speaks of more than the file holds: making that model would take forever."""
    for name, value in _whole_numbers({**made_of.backbone, "exit_size": made_of.exit_size}):
        most = tensors if name in LAYERS else numbers
        if value > most:
            raise ValueError(f"`{name}` in `config.json` should fit the weights. Found {value}.")
    for name, count in (("labels", len(made_of.labels)), ("layer_heads", len(made_of.layer_heads))):
        if count > numbers:
            raise ValueError(f"`{name}` in `config.json` should fit the weights. Found {count} of them.")


def _whole_numbers(tree: Any, name: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _whole_numbers(value, str(key))
    elif isinstance(tree, int):
        yield name, tree


def _check_fields(made_of: MultiExitConfig, depth: int) -> None:
    labels, exits = made_of.labels, made_of.trained_exits
    sound = (
        all(isinstance(label, str | int) for label in labels)
        and len(set(labels)) == len(labels) > 1
        and all(type(exit) is int and 1 <= exit <= depth for exit in exits)
        and type(made_of.max_tokens) is int
        and made_of.max_tokens > 0
    )
    if not sound:
        raise ValueError("`config.json` contradicts itself: its labels, trained exits or tokens cannot be.")


def _shown(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " by ".join(map(str, shape)) or "a number"
