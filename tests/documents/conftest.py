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
from offramp.encoder.load import load_tokenizer
from offramp.types import Example

EACH = 4
"""Training texts of a label: enough that all recipes go, few enough that each takes seconds."""


def _write(file: Path, examples: list[Example]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("text", "label"), *((each.text, each.label) for each in examples)])


@pytest.fixture(scope="session")
def belongings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and models that pages take for granted, under the names that they have there."""
    folder = tmp_path_factory.mktemp("belongings")
    table = read(data_file("train"))
    names = sorted({str(each.label) for each in table.examples})
    few = [each for name in names for each in islice((e for e in table.examples if e.label == name), EACH)]
    held_out = [each for part in ("calibration", "test") for each in read(data_file(part)).examples]
    for name in ("train", "data", "texts", "reviews"):
        _write(folder / f"{name}.csv", few)
    _write(folder / "held-out.csv", held_out)
    _write(folder / "test.csv", read(data_file("validation")).examples[:40])
    (folder / "texts.txt").write_text("".join(f"{each.text}\n" for each in held_out[:20]), "utf-8")

    torch.manual_seed(0)
    words = load_tokenizer("minilm-l6")
    config = small_bert(vocab_size=len(words), max_position_embeddings=512).config
    config.id2label, config.label2id = dict(enumerate(names)), {name: place for place, name in enumerate(names)}
    for name, kind in (("backbone", BertModel), ("my-finetuned-bert", BertForSequenceClassification)):
        kind(config).save_pretrained(folder / name)
        words.save_pretrained(folder / name)

    settings = {"exits.size": 16, "optimise.epochs": 1, "optimise.batch_size": 16}
    classifier = Classifier("jt", str(folder / "backbone"), settings)
    classifier.fit_table(Table(few, "train.csv"), folder=folder / "model")
    return folder


@pytest.fixture
def home(belongings: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A folder in which a page can be followed: everything that it takes for granted, and nothing that it makes."""

    def furnish(page: str) -> Path:
        for file in belongings.glob("*.*"):
            shutil.copy(file, tmp_path)
        shutil.copytree(belongings / "my-finetuned-bert", tmp_path / "my-finetuned-bert")
        for name in ("model", "my-model"):
            if not re.search(rf'--out {name}\b|save\("{name}"\)', page):
                shutil.copytree(belongings / "model", tmp_path / name)
        return tmp_path

    return furnish
