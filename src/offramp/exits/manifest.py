"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the manifest of a model folder, which says what belongs to it.

`offramp.json` has every file's SHA-256 and a seal over itself. It is written last: a folder without it is half-written
or foreign, a folder that disagrees with it is damaged. Formats: 1 has no seal and is read as it is; 2 is written.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from offramp import __version__
from offramp.disk import replace_file, sha256
from offramp.errors import ModelError
from offramp.sealed import SEAL, sealed, unsealed

MANIFEST = "offramp.json"
FORMAT = 2
SEALED = 2  # the format since which there is a seal
MOST = 2**28  # bytes of a file that is not mapped but read


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Say which files, by their SHA-256, are the model's."""
    replace_file(folder / MANIFEST, sealed({"format": FORMAT, "offramp": __version__, "files": dict(files)}))


def read(folder: Path) -> dict[str, str]:
    """The files that a manifest names, with their SHA-256; one that is damaged, or of a newer offramp, is refused."""
    try:
        content = (folder / MANIFEST).read_bytes()
        manifest = json.loads(content)
        files, written = dict(manifest["files"].items()), int(manifest["format"])
        if written <= FORMAT and (written >= SEALED or SEAL in manifest):
            unsealed(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"The model folder `{folder}` is damaged: `{MANIFEST}` cannot be read.") from error
    if written > FORMAT:
        raise ModelError(
            f"The model folder `{folder}` was written by a newer offramp ({manifest.get('offramp')}): `{MANIFEST}` has "
            f"format {written}, this one reads {FORMAT}. Upgrade offramp."
        )
    return files


def verify(folder: Path) -> dict[str, str]:
    """The files that belong to the model, each of them as it was written; otherwise the folder is refused."""
    files = read(folder)
    for name, wanted in files.items():
        file = folder / name
        # A name with a path in it would read outside the folder.
        if Path(name).name != name or not file.is_file():
            raise ModelError(f"The model folder `{folder}` is damaged: `{name}` is missing.")
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ModelError(
                f"The model folder `{folder}` should hold its files. `{name}` leads out of it: copy it there."
            )
        if file.suffix != ".safetensors" and file.stat().st_size > MOST:
            raise ModelError(f"The model folder `{folder}` is damaged: `{name}` is larger than any such file.")
        if sha256(file) != wanted:
            raise ModelError(f"The model folder `{folder}` is damaged: `{name}` is not what was written.")
    return files


@contextmanager
def alone(folder: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """A folder with these files and no others, for libraries that read whatever lies beside them."""
    with tempfile.TemporaryDirectory(prefix="offramp-") as name:
        for file in files:
            os.symlink((folder / file).resolve(), Path(name) / file)
        yield Path(name)
