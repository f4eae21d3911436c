"""A model that reads long texts in windows reads all of them when it is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import toy_texts
from tests.serve.conftest import TRAINED

from offramp import Classifier
from offramp.data.tokens import TruncationWarning

WINDOWS = {**TRAINED, "optimise.epochs": 1, "data.max_length": 16, "data.windows": 3, "data.overlap": 2}


@pytest.fixture(scope="module")
def windowed(backbone_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows") / "model"
    texts, labels = toy_texts(60)
    Classifier("ce", str(backbone_folder), WINDOWS).fit(texts, labels).save(folder)
    return folder


@pytest.mark.parametrize("detail", [False, True])
def test_answers_are_those_of_the_model(windowed: Path, open_client: Any, detail: bool) -> None:
    texts = ["good", "film plot was is " * 4 + "good", "the very bright story " * 7 + "bad", "film plot was is " * 15]
    with pytest.warns(TruncationWarning, match="1 of 4 texts are longer than 48 tokens"):
        wanted = Classifier.load(windowed).decide(texts)
    with open_client(windowed) as client:
        found = client.post("/predict", json={"texts": texts, "detail": detail}).json()["answers"]
    assert [each["label"] for each in found] == [each.label for each in wanted]
    assert [each["probability"] for each in found] == pytest.approx([each.probability for each in wanted], abs=1e-5)
    assert [each["cut"] for each in found] == [False, False, False, True]
