"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: a model on disk.

A model folder is Hugging Face's (`config.json`, `model.safetensors`, the tokenizer's files) with `offramp.toml`, the
resolved configuration, `seen.safetensors`, the hashes of the training texts, and `offramp.json`, the manifest. Only the
files that the manifest names are read, and what they hold is checked before it is used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.config import Config, from_mapping, to_toml
from offramp.disk import as_umask_says, flush, sha256
from offramp.encoder.load import quiet_loading
from offramp.errors import ModelError, TrainingError
from offramp.exits import manifest
from offramp.exits.folder import RUN, SETTINGS, check_model
from offramp.exits.folder import is_model as is_model
from offramp.exits.folder import is_run as is_run
from offramp.exits.folder import vacant as vacant
from offramp.exits.manifest import MANIFEST
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.exits.weights import check_weights

SEEN = "seen.safetensors"
WEIGHTS = "model.safetensors"


def save(
    folder: Path,
    model: MultiExitModel,
    tokenizer: Any,
    config: Config,
    weights: bool = True,
    seen: Tensor | None = None,
) -> None:
    """Write a model folder; what else lies in it stays. Without weights, it is for an engine that has its own.

    `seen` are the hashes of the texts it was trained on.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".saving-*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as name:
            part = Path(name)
            with quiet_loading():
                (model if weights else model.config).save_pretrained(part)
                tokenizer.save_pretrained(part)
            (part / SETTINGS).write_text(to_toml(config), "utf-8")
            if seen is not None:
                save_file({"digests": seen}, part / SEEN)
            as_umask_says(part)
            names = sorted(p.name for p in part.iterdir())
            files = {file: sha256(part / file) for file in names}
            (folder / MANIFEST).unlink(missing_ok=True)
            for file in names:
                flush(part / file)
                os.replace(part / file, folder / file)
        manifest.write(folder, files)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"The model could not be written to `{folder}`: {error}.") from error


def load(folder: Path, attention: str = "") -> tuple[MultiExitModel, Any, Config]:
    """The model, its tokenizer and the configuration it was made with; a folder that is not whole is refused.

    `attention` is the implementation of the backbone's attention, that of the configuration unless given.
    """
    with _readable(folder), quiet_loading(), manifest.alone(folder, verify(folder)) as files:
        made_of, tokenizer, config = _without_weights(files, folder)
        check_weights(files / WEIGHTS, made_of)
        model = MultiExitModel.from_pretrained(
            files, use_safetensors=True, attn_implementation=attention or config.encoder.attention
        )
        model.config.name_or_path = model.name_or_path = str(folder)
    return model.train(False), tokenizer, config


def load_without_weights(folder: Path) -> tuple[MultiExitConfig, Any, Config]:
    """What the model is made of, its tokenizer and the configuration it was made with."""
    with _readable(folder), quiet_loading(), manifest.alone(folder, verify(folder)) as files:
        return _without_weights(files, folder)


def _without_weights(files: Path, folder: Path) -> tuple[MultiExitConfig, Any, Config]:
    from transformers import AutoTokenizer

    config = from_mapping(tomllib.loads((files / SETTINGS).read_text("utf-8")))
    made_of = MultiExitConfig.from_pretrained(files)
    tokenizer = AutoTokenizer.from_pretrained(files, trust_remote_code=False)
    # They were read from where the files stand alone; the folder is where they are.
    made_of.name_or_path = tokenizer.name_or_path = str(folder)
    return made_of, tokenizer, config


def load_seen(folder: Path) -> Tensor | None:
    """The hashes of the texts that the model of a verified folder was trained on; None where they are not told."""
    if SEEN not in manifest.read(folder):
        return None
    with _readable(folder):
        return load_file(folder / SEEN)["digests"]


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """A damaged file can make transformers raise anything: it becomes a sentence."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"The model folder `{folder}` cannot be read: {first}") from error


def verify(folder: Path) -> dict[str, str]:
    """The model's files and their hashes; a folder that is absent, foreign, half-written or damaged is refused."""
    check_model(folder)
    return manifest.verify(folder)


def clear(folder: Path) -> None:
    """Remove a model and its training from a folder; other files stay.

    What says that the folder is ours stays too, so that a kill leaves nothing that is then refused: a new run writes
    over `training/run.json`, and then `forget` removes the manifest.
    """
    if is_model(folder):
        try:
            names = list(manifest.read(folder))
        except ModelError:
            names = []  # damaged: the new files are written over the old ones
        for name in names:
            if Path(name).name == name:
                (folder / name).unlink(missing_ok=True)
    if is_run(folder):
        for path in (folder / RUN.parent).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != RUN.name:
                path.unlink()


def forget(folder: Path) -> None:
    """Say that there is no model in the folder any more."""
    (folder / MANIFEST).unlink(missing_ok=True)
