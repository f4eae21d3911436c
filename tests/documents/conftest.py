"""What a reader has before a page begins: texts of their own, a model, a classifier that somebody fine-tuned."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.conftest import small_bert
from transformers import BertForSequenceClassification, BertModel

from offramp import Classifier
from offramp.data.sources import Table, read
from offramp.demo import data_file
from offramp.encoder import load
from offramp.types import Example

STAND_IN = "minilm-l6"
"""The default backbone. On pages that are no first steps a small random one of this name is in its place."""
QUEUES = ("app_bug", "billing", "delivery", "security")
EACH = 6
"""Training texts of a label: enough that all recipes go, few enough that each takes seconds."""


def _write(file: Path, examples: list[Example]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("text", "label"), *((each.text, each.label) for each in examples)])


@pytest.fixture(scope="session")
def belongings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and models that pages take for granted, under the names that they have there."""
    folder = tmp_path_factory.mktemp("belongings")
    parts = [read(data_file(part)).examples for part in ("train", "validation", "calibration", "test")]
    messages = [each for part in parts for each in part if each.label in QUEUES]
    few = [each for queue in QUEUES for each in islice((each for each in messages if each.label == queue), EACH)]
    held_out = [each for each in messages if each not in few]
    for name in ("train", "data", "texts", "reviews"):
        _write(folder / f"{name}.csv", few)
    _write(folder / "held-out.csv", held_out)
    _write(folder / "test.csv", held_out[:40])
    (folder / "texts.txt").write_text("".join(f"{each.text}\n" for each in held_out[:20]), "utf-8")

    torch.manual_seed(0)
    words = load.load_tokenizer(STAND_IN)
    config = small_bert(vocab_size=len(words), hidden_size=48, max_position_embeddings=512).config
    config.id2label, config.label2id = dict(enumerate(QUEUES)), {queue: place for place, queue in enumerate(QUEUES)}
    for name, kind in ((STAND_IN, BertModel), ("my-finetuned-bert", BertForSequenceClassification)):
        kind(config).save_pretrained(folder / name)
        words.save_pretrained(folder / name)

    settings = {"exits.size": 16, "optimise.epochs": 1, "optimise.batch_size": 16}
    classifier = Classifier("jt", str(folder / STAND_IN), settings)
    classifier.fit_table(Table(few, "train.csv"), folder=folder / "model")
    return folder


@pytest.fixture
def home(belongings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool], Path]:
    """A folder in which a page can be followed: everything that it takes for granted, and nothing that it makes."""

    def furnish(page: str, cheaply: bool) -> Path:
        if cheaply:
            shutil.copytree(belongings / STAND_IN, tmp_path / STAND_IN)
            monkeypatch.delitem(load.ALIASES, STAND_IN)  # then it is the name of a folder
        for file in belongings.glob("*.*"):
            shutil.copy(file, tmp_path)
        shutil.copytree(belongings / "my-finetuned-bert", tmp_path / "my-finetuned-bert")
        for name in ("model", "my-model"):
            if not re.search(rf'--out {name}\b|save\("{name}"\)', page):
                shutil.copytree(belongings / "model", tmp_path / name)
        return tmp_path

    return furnish
