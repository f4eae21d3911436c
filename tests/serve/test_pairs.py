"""A server whose model learnt pairs of texts answers pairs, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import toy_texts
from tests.serve.conftest import TRAINED

from offramp import Classifier

PAIRS = [["good", "the film"], ["bad", "very dull"]]


@pytest.fixture(scope="module")
def paired(backbone_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pairs; no test may write to it."""
    folder = tmp_path_factory.mktemp("pairs") / "model"
    texts, labels = toy_texts(60)
    Classifier("ce", str(backbone_folder), {**TRAINED, "optimise.epochs": 1}).fit(
        list(zip(texts, reversed(texts), strict=True)), labels
    ).save(folder)
    return folder


def test_it_answers_pairs_and_refuses_single_texts(open_client: Callable[..., Any], paired: Path) -> None:
    with open_client(paired, allow_uncertified=True) as client:
        told = client.get("/model").json()
        answered = client.post("/predict", json={"texts": PAIRS})
        refused = client.post("/predict", json={"texts": ["good film"]})
        schema = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]
        for example in schema["content"]["application/json"]["schema"]["examples"][:2]:
            assert client.post("/predict", json=example).status_code == 200, example
    assert told["text_pairs"] is True
    wanted = [each.label for each in Classifier.load(paired).decide([tuple(pair) for pair in PAIRS])]
    assert [each["label"] for each in answered.json()["answers"]] == wanted
    assert refused.status_code == 422
    assert "learnt pairs of texts" in refused.json()["error"]


def test_a_model_of_single_texts_refuses_pairs(open_client: Callable[..., Any]) -> None:
    with open_client() as client:
        told, refused = client.get("/model").json(), client.post("/predict", json={"texts": PAIRS})
    assert told["text_pairs"] is False
    assert refused.status_code == 422
    assert "learnt single texts" in refused.json()["error"]
