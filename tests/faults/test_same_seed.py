"""The same seed on the same machine gives the same weights twice, whatever the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.faults.small import Small
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from offramp import Classifier
from offramp.config import recipes
from offramp.data.sources import Table, read

FEW = [
    "optimise.epochs=1",
    "optimise.batch_size=12",
    "optimise.contrast_batch=0",
    "optimise.updates_per_epoch=0",
    "stage2.epochs=1",
    "stage2.least_updates=0",
    "compress.epochs=1",
    "compress.layers=2",
]
TWINS = [pytest.param(name, marks=pytest.mark.long) if name.endswith("-paper") else name for name in recipes()]
"""The twins with the papers' values take the same ways, and other numbers."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def table(small: Small) -> Table:
    return read(small.data).keep(range(30))


@pytest.fixture(scope="module")
def grown_from(small: Small, table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier for the recipe that begins with one."""
    folder, names = tmp_path_factory.mktemp("classifier"), sorted({str(label) for label in table.labels})
    model = AutoModelForSequenceClassification.from_pretrained(
        small.backbone, id2label=dict(enumerate(names)), label2id={name: place for place, name in enumerate(names)}
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(small.backbone).save_pretrained(folder)
    return folder


def tagged(table: Table) -> Table:
    """The texts of a table with a tag for each word: whether it stands late in the alphabet."""
    rows = [
        {"tokens": words, "tags": ["B-late" if word > "m" else "O" for word in words]}
        for words in (example.text.split() for example in table.examples)
    ]
    return read(rows, tags=True)


@pytest.mark.parametrize("recipe", TWINS)
def test_the_same_seed_gives_the_same_weights(small: Small, table: Table, grown_from: Path, recipe: str) -> None:
    states = []
    for noise in (1, 2):
        torch.manual_seed(noise)  # of somebody else's making
        torch.rand(noise)
        backbone = grown_from if recipe == "grow" else small.backbone
        turns = ["optimise.epochs=2"] * (recipe == "alt")
        classifier = Classifier(recipe, str(backbone), [*FEW, *turns], seed=3)
        classifier.fit_table(tagged(table) if recipe == "acl-tags" else table)
        states.append(classifier.model_.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_another_seed_gives_other_weights(small: Small, table: Table) -> None:
    found = [Classifier("ce", str(small.backbone), FEW, seed=seed) for seed in (3, 4)]
    for classifier in found:
        classifier.fit_table(table)
    mine, theirs = (classifier.model_.state_dict() for classifier in found)
    assert not all(torch.equal(mine[name], theirs[name]) for name in mine)
