"""The training of a run: in a folder of its own, on a backbone that may have to be made first."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from offramp.classifier import Classifier
from offramp.config import Config, changes, to_mapping
from offramp.data.sources import Table
from offramp.data.tokens import TruncationWarning
from offramp.disk import replace_file
from offramp.exits.folder import is_model
from offramp.exits.predecessor import ExitsBeginAnew
from offramp.optimise.loop import Result
from offramp.study.data import Texts, texts_of
from offramp.study.drawn import draw_backbone
from offramp.study.kinds import DRAWN
from offramp.study.lock import locked
from offramp.study.plan import Prior

MODEL = "model"
"""In a run's folder: the model's."""

WORTH = 60.0
"""Seconds of training that are worth a checkpoint: runs are many and short, and writing one takes a second or two."""


def trained(texts: Texts, before: Prior | None, work: Path) -> tuple[Classifier, Result]:
    """The classifier that is made of the texts; a run that was killed goes on from its checkpoint."""
    ready = _with_backbone(texts.config, before, texts, work)
    _claim(work, ready)
    spared = replace(ready.optimise, checkpoint_seconds=WORTH)
    classifier = Classifier(ready.recipe, settings=settings_of(replace(ready, optimise=spared)))
    with quiet():
        result = classifier.fit_table(texts.train, texts.validation, work / MODEL, resume=True)
    return classifier, result


def settings_of(config: Config) -> list[str]:
    """What a classifier is given beside the recipe's name to have this configuration."""
    return [f"{key}={_written(value)}" for key, value in changes(config).items()]


@contextmanager
def quiet() -> Iterator[None]:
    """Texts that are cut, and exits that begin anew on another task, are a part of a study's set-up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        warnings.simplefilter("ignore", ExitsBeginAnew)
        yield


def _claim(work: Path, config: Config) -> None:
    """Begin anew where another version of this run, with other defaults or in another place, left something."""
    file, mine = work / "run.json", json.dumps(to_mapping(config), indent=1)
    if not file.is_file() or file.read_text("utf-8") != mine:
        shutil.rmtree(work / MODEL, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        replace_file(file, mine)


def _with_backbone(config: Config, before: Prior | None, texts: Texts, work: Path) -> Config:
    """The configuration with the folder of a backbone that has to be made first."""
    if before is not None:
        return _on(config, _fine_tuned(before, work.parent / f"before-{before.key}"))
    if config.encoder.backbone != DRAWN:
        return config
    folder = work / "backbone"
    if not (folder / "drawn").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        draw_backbone(folder, _words(texts.train))
        (folder / "drawn").touch()  # a kill before this leaves a folder that is made again
    return _on(config, folder)


def _fine_tuned(prior: Prior, home: Path) -> Path:
    """The folder of a model that was fine-tuned on another task; runs that want the same one share it."""
    with locked(home):
        if not is_model(home / MODEL):
            trained(texts_of(prior.task, prior.data, prior.config), None, home)
    return home / MODEL


def _on(config: Config, folder: Path) -> Config:
    return replace(config, encoder=replace(config.encoder, backbone=str(folder.resolve()), revision=""))


def _words(table: Table) -> Iterator[str]:
    for example in table.examples:
        yield example.text
        if example.pair is not None:
            yield example.pair


def _written(value: Any) -> str:
    """A setting's value as it would stand on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else str(value)
