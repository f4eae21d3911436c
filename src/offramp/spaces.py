"""What `offramp tune` searches: fields of a configuration, each with a range or a list of values.

A space is derived from a recipe (`auto`), is one of the presets below, or stands in a file:

    about = "Temperatures and weights around those of the paper."
    grid = false                # true: every combination of the lists, once

    [fields]
    "objective.temperature" = { low = 0.05, high = 1.0, log = true }
    "objective.heads" = [1, 2, 4]
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offramp.config import RANGES, Config, override
from offramp.errors import ConfigError, unknown_name

Value = float | int | str | bool


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both allowed; whole numbers where both bounds are."""

    low: float
    high: float
    log: bool = False  # drawn evenly by their logarithm


@dataclass(frozen=True)
class Space:
    """Fields by their dotted names, each with what it may be."""

    about: str
    fields: Mapping[str, Range | tuple[Value, ...]] = field(default_factory=dict)
    grid: bool = False  # every combination once, instead of a search

    def size(self) -> int | None:
        """How many combinations there are; None where a range makes them countless."""
        lists = [values for values in self.fields.values() if isinstance(values, tuple)]
        return math.prod(len(values) for values in lists) if len(lists) == len(self.fields) else None


def _steps(first: int, last: int, divisor: int) -> tuple[float, ...]:
    return tuple(n / divisor for n in range(first, last + 1))


SPACES: dict[str, Space] = {
    "lacon-grid": Space(
        "LaCon 4.4: temperatures from 0.05 to 0.5 by 0.05, weights of the label regulariser from 0.1 to 1.0 by 0.1.",
        {"objective.temperature": _steps(1, 10, 20), "objective.weight": _steps(1, 10, 10)},
        grid=True,
    ),
    "lacon-rates": Space(
        "LaCon 3.1: learning rates of 1e-5, 2e-5 and 3e-5, here of backbone and exit apart, with batches of 8 to 96.",
        {
            "optimise.lr_backbone": (1e-5, 2e-5, 3e-5),
            "optimise.lr_exit": (1e-5, 2e-5, 3e-5),
            "optimise.batch_size": (8, 16, 32, 64, 96),
        },
        grid=True,
    ),
    "acl-weights": Space(
        "ACL Table 3: the weights of the contrast.",
        {"objective.weight": (0.005, 0.01, 0.02, 0.1, 0.5, 1.0)},
        grid=True,
    ),
}
"""The presets."""

HEADS = (1, 2, 3, 4, 6, 8, 12)
"""Slices of a representation that may be tried; they divide the width of BERT-like backbones."""


def space_of(name: str, config: Config) -> Space:
    """The space of a preset's name, of a TOML file, or `auto`: derived from the configuration."""
    if name == "auto":
        found = derived(config)
    elif name in SPACES:
        found = SPACES[name]
    elif name.endswith(".toml"):
        found = read_space(Path(name))
    else:
        raise unknown_name("space", name, ["auto", *SPACES])
    for key, values in found.fields.items():
        for value in (values.low, values.high) if isinstance(values, Range) else values:
            override(config, [f"{key}={value}"])  # refuses what the field cannot be
    return found


def derived(config: Config) -> Space:
    """A space around a recipe: its rates and batch size, and what its objectives read."""
    fields: dict[str, Range | tuple[Value, ...]] = {
        "optimise.lr_backbone": _around("optimise.lr_backbone", config.optimise.lr_backbone),
        "optimise.lr_exit": _around("optimise.lr_exit", config.optimise.lr_exit),
        "optimise.batch_size": (16, 32, 64),
    }
    name = config.objective.name
    if name in ("scl", "acl", "acl-cl", "infonce", "distill"):
        fields |= {"objective.temperature": Range(0.05, 1.0, log=True), "objective.weight": Range(0.005, 0.9, log=True)}
    if name in ("icl", "lcl", "lacon"):
        fields["objective.temperature"] = Range(0.05, 0.5, log=True)
    if name == "lacon":
        fields["objective.weight"] = Range(0.1, 1.0)
    if name in ("icl", "lacon"):
        width = config.exits.size if config.exits.kind == "mha" else math.lcm(*HEADS)
        fields["objective.heads"] = tuple(heads for heads in HEADS if width % heads == 0)
    if config.optimise.strategy == "grow":
        fields = {}  # the backbone stands still
    if config.optimise.strategy in ("two-stage", "grow"):
        fields["stage2.lr"] = _around("stage2.lr", config.stage2.lr)
        if config.stage2.objective != "ce":
            fields |= {"stage2.temperature": Range(0.05, 1.0, log=True), "stage2.weight": Range(0.05, 0.95)}
    return Space(f"Around the recipe {config.recipe}.", fields)


def read_space(file: Path) -> Space:
    """The space that a TOML file tells."""
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"A space should be a TOML file that can be read. Found `{file}`: {error}.") from error
    unknown = sorted(set(tree) - {"about", "grid", "fields"})
    if unknown or not isinstance(tree.get("fields"), dict) or not tree["fields"]:
        raise ConfigError(
            f"A space should have a table `fields`, and `about` and `grid` if wanted. "
            f"Found {', '.join(tree) or 'none'} in `{file}`."
        )
    fields = {key: _dimension(key, value) for key, value in tree["fields"].items()}
    grid = bool(tree.get("grid", False))
    if grid and any(isinstance(values, Range) for values in fields.values()):
        raise ConfigError(f"A grid should have lists only. Found a range in `{file}`. List the values to be tried.")
    return Space(str(tree.get("about", "")), fields, grid)


def _dimension(key: str, value: Any) -> Range | tuple[Value, ...]:
    if isinstance(value, list) and value and all(isinstance(item, Value) for item in value):
        return tuple(value)
    numbers = isinstance(value, dict) and {"low", "high"} <= set(value) <= {"low", "high", "log"}
    if numbers and all(isinstance(value[side], int | float) for side in ("low", "high")):
        found = Range(value["low"], value["high"], bool(value.get("log", False)))
        if found.low < found.high and (found.low > 0 or not found.log):
            return found
    raise ConfigError(
        f"`{key}` should be a list of values, or {{ low = 0.1, high = 1.0, log = true }} with low below high, and "
        f"above 0 for log. Found {value!r}."
    )


def _around(key: str, value: float) -> Range:
    """From a fifth of a rate to five times it, as far as the field allows."""
    low, high = RANGES[key]
    return Range(max(value / 5, low, 1e-7), min(value * 5, high), log=True)
