"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: what lies in a folder, told without loading it, or torch."""

from __future__ import annotations

import os
from pathlib import Path

from offramp.errors import ModelError, near_names
from offramp.exits.manifest import MANIFEST

SETTINGS = "offramp.toml"
RUN = Path("training") / "run.json"  # what `optimise` writes first


def is_model(folder: Path) -> bool:
    """Whether the folder holds a finished model."""
    return os.path.isfile(folder / MANIFEST)  # no name is too long for it


def is_run(folder: Path) -> bool:
    """Whether a training run, finished or not, lies in the folder."""
    return os.path.isfile(folder / RUN)


def check_model(folder: Path) -> None:
    """Refuse a folder that is absent, foreign or half-written; whether its files are whole is not looked at."""
    if not os.path.isdir(folder):
        raise ModelError(
            "A model should be a folder that `offramp train` or `offramp export` wrote. There is no folder "
            f"`{folder}`.{near_names(folder)}"
        )
    if not is_model(folder):
        half = is_run(folder) or (folder / SETTINGS).exists()
        raise ModelError(
            f"The model folder `{folder}` is half-written: it has no `{MANIFEST}`. Finish it with --resume."
            if half
            else f"`{folder}` is not an offramp model: it has no `{MANIFEST}`. Train one with `offramp train`."
        )


def vacant(folder: Path, resume: bool, overwrite: bool) -> None:
    """Refuse to train into a folder that holds something else."""
    if not _there(folder):
        return
    if not folder.is_dir():
        raise ModelError(f"`{folder}` should be a folder. Found a file.")
    if not is_model(folder) and not is_run(folder):
        # A run killed before it wrote down what it is leaves an empty `training`, or its first file's part.
        begun = folder / RUN.with_name(f".{RUN.name}")
        if any(path not in (begun.parent, begun) for path in folder.rglob("*")):
            raise ModelError(f"`{folder}` should be empty or not exist. It holds other files: choose another folder.")
        return
    if overwrite or resume:
        return
    if is_model(folder):
        raise ModelError(f"`{folder}` holds a model already. Choose another folder, or add --overwrite.")
    raise ModelError(f"`{folder}` holds an unfinished run. Add --resume to go on, or --overwrite to begin anew.")


def check_empty(folder: Path) -> None:
    """Refuse to export into a folder that holds something."""
    if _there(folder) and (not folder.is_dir() or any(folder.iterdir())):
        found = "It holds files" if folder.is_dir() else "Found a file"
        raise ModelError(f"`{folder}` should be empty or not exist. {found}: choose another folder.")


def _there(folder: Path) -> bool:
    """Whether there is something; a name that no disk takes is refused."""
    try:
        return folder.exists()
    except OSError as error:
        raise ModelError(f"A model cannot be written to `{folder}`: {error.strerror or error}.") from error
