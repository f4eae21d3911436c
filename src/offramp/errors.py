"""The exception tree. Each message says what should be, what was found, what to do.

OfframpError
├── UserError            the caller can mend it; the command line exits with 2
│   ├── DataError        a file, a row, a label, a text
│   ├── ConfigError      a recipe, a field, a name, a value
│   ├── ModelError       a model folder or a backbone that cannot be loaded
│   └── MissingExtra     an optional dependency that is not installed
├── TrainingError        the run cannot go on; the command line exits with 1
│   └── NotFinite        a loss or a gradient is not a number
└── ClusterError         workers of Ray were lost for good; the command line exits with 1

KeyboardInterrupt
└── Interrupted          the run was asked to stop, and its checkpoint is written; exits with 130 or 143
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path


class OfframpError(Exception):
    """Everything offramp raises on purpose."""


class UserError(OfframpError):
    """Something the caller gave is not what it should be."""


class DataError(UserError):
    """A file, row, label or text is not what it should be."""


class ConfigError(UserError):
    """A recipe, field, name or value is not what it should be."""


class ModelError(UserError):
    """A model folder or backbone cannot be loaded."""


class MissingExtra(UserError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"This needs `{package}`, which is not installed. Run: pip install 'offramp[{extra}]'")


class TrainingError(OfframpError):
    """Training had to stop; the message names the last good checkpoint."""


class NotFinite(TrainingError):
    """The loss, or the gradient's norm, of a batch is not a number or has no end; `rows` are the batch's texts."""

    def __init__(self, message: str, rows: Iterable[int]) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class ClusterError(OfframpError):
    """Work on Ray's workers cannot go on."""


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop by a signal."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


def need(package: str, extra: str) -> None:
    """Refuse to begin without an optional dependency, which is looked for and not loaded."""
    if find_spec(package) is None:
        raise MissingExtra(package, extra)


def near_names(path: Path) -> str:
    """A hint with the paths in the same folder whose names are near to a path's."""
    try:
        here = [] if path.exists() else [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, here, n=3, cutoff=0.6)
    return f" Near it: {', '.join(f'`{path.with_name(name)}`' for name in near)}." if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is not in a table, with the names near to it."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else f"Known: {', '.join(names)}."
    return ConfigError(f"`{name}` is not a known {kind}. {hint}")
