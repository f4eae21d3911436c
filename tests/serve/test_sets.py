"""A served model of label sets answers what `offramp predict` answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import toy_texts

from offramp import Classifier
from offramp.runtime.predictions import SetPrediction


@pytest.mark.parametrize("detail", [False, True])
def test_the_server_answers_with_the_labels_of_each_text(
    open_client: Callable[..., Any], sets: Path, detail: bool
) -> None:
    texts = toy_texts(12, seed=4)[0]
    classifier = Classifier.load(sets)
    with open_client(sets, allow_uncertified=True) as client:
        reply = client.post("/predict", json={"texts": texts, "detail": detail}).json()
        assert client.get("/model").json()["label_sets"] is True
    for found, wanted in zip(reply["answers"], classifier.decide(texts), strict=True):
        assert isinstance(wanted, SetPrediction)
        assert found["labels"] == list(wanted.labels)
        assert found["depth"] == wanted.depth
        assert found["probability"] == pytest.approx(wanted.probability, abs=1e-5)
        assert found["probabilities"] == pytest.approx(list(wanted.probabilities), abs=1e-5)
        assert "label" not in found
        for exit in found.get("exits", ()):
            given = [name for name, p in zip(reply["labels"], exit["probabilities"], strict=True) if p >= 0.5]
            assert exit["labels"] == given


def test_a_policy_that_cannot_read_sets_is_refused(open_client: Callable[..., Any], sets: Path) -> None:
    with open_client(sets, allow_uncertified=True) as client:
        reply = client.post("/predict", json={"texts": ["the film"], "policy": "vote", "threshold": 1.0})
    assert reply.status_code == 422
    assert "one for sets of labels: never, fixed, confidence" in reply.json()["error"]
