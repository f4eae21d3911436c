"""MODEL -> FAST MODEL: an exported model on disk.

A folder holds one `exit-N.onnx` per exit that was exported, `labels.safetensors` with each exit's label embeddings, and
`onnx.json`, the manifest with every file's SHA-256. The manifest is written last: a folder without it is half-written
or foreign, a folder that disagrees with it is damaged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp import __version__
from offramp.disk import flush, replace_file
from offramp.errors import ModelError, need
from offramp.exits.folder import check_model

if TYPE_CHECKING:
    from offramp.types import Label

MANIFEST = "onnx.json"
LABELS = "labels.safetensors"
FORMAT = 1
PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class Manifest:
    """What an exported model is."""

    family: str
    depth: int  # layers, and so exits, of the model that was exported
    exits: tuple[int, ...]  # those that were exported, the last among them
    trained: tuple[int, ...]  # of these, the trained ones
    labels: tuple[Label, ...]
    hidden_size: int
    token_types: bool  # whether the first segment takes them
    precision: str = "float32"
    files: Mapping[str, str] = field(default_factory=dict)  # name to SHA-256


def is_exported(folder: Path) -> bool:
    """Whether an exported model lies in the folder."""
    return os.path.isfile(folder / MANIFEST)  # no name is too long for it


def check_any(folder: Path) -> None:
    """Refuse a folder in which no model lies, trained or exported, or one that cannot run here; nothing is loaded."""
    if is_exported(folder):
        need("onnxruntime", "onnx")
    else:
        check_model(folder)


def refuse(folder: Path) -> None:
    """Keep a trained model out of the folder of an exported one, which would still answer in its place."""
    if is_exported(folder):
        raise ModelError(f"`{folder}` holds an exported model. Choose another folder.")


def segment_name(exit: int) -> str:
    """The file with the layers up to this exit, from the exit before it."""
    return f"exit-{exit}.onnx"


def write(folder: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Write an exported model; what else lies in the folder stays."""
    fields = asdict(manifest) | {"files": {name: _sha256(content) for name, content in files.items()}}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
            flush(folder / name)
        facts = {"format": FORMAT, "offramp": __version__, **fields}
        replace_file(folder / MANIFEST, json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        raise ModelError(f"The exported model cannot be written to `{folder}`: {error.strerror or error}.") from error


def read(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the content of every file it names; a folder that is not whole is refused."""
    if not folder.is_dir():
        raise ModelError(f"An exported model should be a folder that `offramp export` wrote. There is no `{folder}`.")
    if not (folder / MANIFEST).is_file():
        raise ModelError(f"`{folder}` is half-written or not an exported model: it has no `{MANIFEST}`. Export again.")
    try:
        found = json.loads((folder / MANIFEST).read_text("utf-8"))
        written = int(found.pop("format"))
        by = found.pop("offramp")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(folder, f"`{MANIFEST}` cannot be read") from error
    if written != FORMAT:
        raise ModelError(
            f"The exported model `{folder}` was written by another offramp ({by}): `{MANIFEST}` has format {written}, "
            f"this one reads {FORMAT}. " + ("Upgrade offramp." if written > FORMAT else "Export again.")
        )
    manifest = _checked(folder, found)
    files = {}
    for name, wanted in manifest.files.items():
        # A name with a path in it, or a link, would read outside the folder.
        if Path(name).name != name or (folder / name).is_symlink() or not (folder / name).is_file():
            raise _damaged(folder, f"`{name}` is missing")
        # What is run is what was checked: the file is read once.
        files[name] = (folder / name).read_bytes()
        if _sha256(files[name]) != wanted:
            raise _damaged(folder, f"`{name}` is not what was written")
    return manifest, files


def _checked(folder: Path, found: dict[str, Any]) -> Manifest:
    try:
        lists = {name: tuple(found[name]) for name in ("exits", "trained", "labels")}
        manifest = Manifest(**{**found, **lists, "files": dict(found["files"])})
        exits, needed = manifest.exits, {LABELS, *map(segment_name, manifest.exits)}
        whole = (
            all(type(depth) is int for depth in (manifest.depth, manifest.hidden_size, *exits, *manifest.trained))
            and list(exits) == sorted(set(exits))
            and exits[0] >= 1
            and exits[-1] == manifest.depth
            and set(manifest.trained) <= set(exits)
            and all(isinstance(label, str | int) for label in manifest.labels)
            and manifest.precision in PRECISIONS
            and needed == set(manifest.files)
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise _damaged(folder, f"`{MANIFEST}` lacks something") from error
    if not whole:
        raise _damaged(folder, f"`{MANIFEST}` contradicts itself")
    return manifest


def _damaged(folder: Path, why: str) -> ModelError:
    return ModelError(f"The exported model `{folder}` is damaged: {why}. Export again.")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
