"""LOSS -> PARAMETERS: what a run is, so that a resumed run is the same run."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from offramp.config import Config, to_mapping
from offramp.disk import replace_file
from offramp.errors import ConfigError, DataError, ModelError
from offramp.optimise import processes
from offramp.optimise.loop import Result
from offramp.optimise.saved_state import SavedState
from offramp.sealed import sealed, unsealed
from offramp.types import Example

_RUN = "run.json"
_RESULT = "result.json"
_SECOND = "stage2."
BAD_BATCH = "bad-batch.jsonl"
"""The texts whose loss, or whose gradient, was no number."""


class AnewWarning(UserWarning):
    """A second stage is trained again, with other settings."""


WITHOUT_EFFECT = (
    "optimise.track",
    "optimise.checkpoint_steps",
    "optimise.checkpoint_seconds",
    "stage2.keep_cache",
)
"""Settings that a resumed run may have otherwise: what is learnt does not depend on them."""


def fingerprint(*parts: Iterable[Example]) -> str:
    """A hash of texts and labels, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        for example in part:
            weight = [] if example.weight == 1.0 else [example.weight]
            label = example.label if example.labels is None else example.labels
            tags = [] if example.tags is None else [example.words, example.tags]
            digest.update(json.dumps([example.text, example.pair, label, *weight, *tags]).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def claim(folder: Path, config: Config, data: str, resume: bool) -> None:
    """Write down what this run is; or, to resume, refuse a run that is another one.

    A second stage begins anew where its settings have changed: the run then is the one that had them from the start,
    for they do not reach the first.
    """
    file = folder / _RUN
    if resume and file.exists():
        changed = _changed(folder, config, data)
        if not changed:
            return
        other = [name for name in changed if name not in WITHOUT_EFFECT]
        if other:
            _second_stage_anew(folder, other)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, {"config": to_mapping(config), "data": data})
    except OSError as error:
        raise ModelError(f"The folder for the model should be writable. Found `{folder.parent}`: {error}.") from error


def keeping(folder: Path, config: Config) -> Config:
    """The settings of a resumed run, which goes on keeping what it was begun to keep."""
    file = folder / _RUN
    begun = _read(file, ("config",))["config"] if file.exists() else {}
    if not begun.get("stage2", {}).get("keep_cache"):
        return config
    return replace(config, stage2=replace(config.stage2, keep_cache=True))


def begins_anew(folder: Path, config: Config, data: str) -> bool:
    """Whether to resume this run is to begin its second stage anew. What cannot be resumed is refused."""
    return any(name not in WITHOUT_EFFECT for name in _changed(folder, config, data))


def _changed(folder: Path, config: Config, data: str) -> list[str]:
    """The settings that a resumed run has otherwise; a run that would be another one is refused."""
    before = _read(folder / _RUN, ("config", "data"))
    # A setting that is newer than the run was at its default.
    changed = sorted(_changes(_over(to_mapping(Config()), before["config"]), to_mapping(config)))
    other = [name for name in changed if name not in WITHOUT_EFFECT]
    second = config.optimise.strategy == "two-stage" and all(name.startswith(_SECOND) for name in other)
    if other and not second:
        raise ConfigError(
            f"A resumed run should have the settings it began with. Changed: {', '.join(other)}. "
            "Use the same settings, or train anew into another folder."
        )
    if before["data"] != data:
        raise DataError(
            "A resumed run should have the texts it began with. The data changed: train anew into another folder."
        )
    if other and (folder / _RESULT).is_file() and SavedState(folder).base() is None:
        raise ConfigError(
            f"A finished run should have the settings it had. Changed: {', '.join(other)}. A second stage begins "
            "anew where `stage2.keep_cache` has kept what it began from: train anew, into another folder."
        )
    return changed


def _second_stage_anew(folder: Path, changed: Sequence[str]) -> None:
    """Go back to where the first stage ended. A kill before the new settings are written leaves the old run, there."""
    saved = SavedState(folder)
    if saved.base() is not None:
        saved.read_base().check_processes(processes.count())
        warnings.warn(
            f"The second stage begins anew with other settings ({', '.join(changed)}); the first is kept.",
            AnewWarning,
            stacklevel=2,
        )
    saved.back_to_base()
    (folder / _RESULT).unlink(missing_ok=True)


def finish(folder: Path, result: Result) -> None:
    """Write down how this run ended."""
    _write(folder / _RESULT, asdict(result))


def finished(folder: Path) -> Result | None:
    """How this run ended, or None while it has not."""
    file = folder / _RESULT
    return Result(**_read(file, [each.name for each in fields(Result)])) if file.is_file() else None


def write_texts(file: Path, examples: Iterable[Example]) -> None:
    """Write texts down for whoever wants to look at them, as JSONL that can be read again."""
    told = (asdict(e) | ({} if e.labels is None else {"label": e.labels, "labels": None}) for e in examples)
    told = (each | ({} if each["words"] is None else {"tokens": each["words"], "words": None}) for each in told)
    facts = ({key: value for key, value in each.items() if value is not None and key != "original"} for each in told)
    replace_file(file, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in facts))


def _read(file: Path, names: Iterable[str]) -> dict[str, Any]:
    """The facts of a run, which should have these names."""
    try:
        found = unsealed(file.read_bytes())
        return {name: found[name] for name in names}
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"The run's file `{file}` is damaged: {error}. Train anew with --overwrite.") from error


def _write(file: Path, facts: Mapping[str, Any]) -> None:
    replace_file(file, sealed(facts))


def _over(defaults: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What is told, and the defaults of what is not."""
    both = {key: _over(defaults[key], told[key]) for key in defaults if isinstance(told.get(key), Mapping)}
    return {**defaults, **told, **both}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key in {*before, *after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}"
