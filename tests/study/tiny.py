"""Studies that run in a second or two: drawn tasks, a drawn backbone, a few updates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

QUICK: dict[str, Any] = {
    "data.cap": 24,
    "data.max_length": 24,
    "optimise.epochs": 2,
    "optimise.batch_size": 8,
    "optimise.checkpoint_steps": 1,
    "exits.size": 8,
    "exits.heads": 2,
    "stage2.epochs": 1,
    "stage2.batch_size": 8,
}
STUDY = {"about": "What is asked?", "paper": "ACL", "place": "Table 9", "view": "scores", "baseline": "ce"}
CE = {"recipe": "ce", "label": "CE", "order": 1}
SCL = {"recipe": "scl", "label": "CE + SCL", "order": 2}
Tree = Mapping[str, Any]


def write_study(
    home: Path, name: str = "tiny", study: Tree | None = None, smoke: Tree | None = None, **variants: Tree
) -> Path:
    """The folder of a study: what is changed of `study.toml` and of its scales, and its variants; None takes away."""
    folder = home / name
    folder.mkdir(parents=True, exist_ok=True)
    scale = {"tasks": ["sst2"], "seeds": 1, "backbone": "drawn", "data": "drawn", "set": QUICK, **(smoke or {})}
    tree = {**STUDY, "scales": dict.fromkeys(("smoke", "cpu", "paper"), scale), **(study or {})}
    (folder / "study.toml").write_text(_toml(tree), "utf-8")
    for variant, keys in (variants or {"ce": CE, "scl": SCL}).items():
        (folder / f"{variant}.toml").write_text(_toml(keys), "utf-8")
    return folder


def timeless(file: Path) -> dict[str, Any]:
    """A result without the times it took."""
    record = json.loads(file.read_text("utf-8"))
    return {key: value for key, value in record.items() if key != "seconds"}


def names(results: Path) -> list[str]:
    """The results that are there."""
    return sorted(file.relative_to(results).as_posix() for file in results.glob("[!.]*/*/*.json"))


def _toml(tree: Tree, prefix: str = "") -> str:
    """Nested mappings as TOML; keys that hold dots are quoted."""
    kept = {key: value for key, value in tree.items() if value is not None}
    lines = [f"{json.dumps(k)} = {_value(v)}" for k, v in kept.items() if not isinstance(v, Mapping)]
    for key, value in kept.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{json.dumps(key)}"
            lines += [f"[{name}]", _toml(value, f"{name}.")]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
