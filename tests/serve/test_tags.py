"""A served model that tags words answers what `offramp predict` answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.test_tags import JOINT, toy

from offramp import Classifier
from offramp.runtime.tag_predictions import TagPrediction

TEXTS = ["the film, was good story; 😀 not BAD", "dull", "very  fine story"]


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory, backbone_folder: Path) -> Path:
    """A folder with a model of tags."""
    folder = tmp_path_factory.mktemp("tags") / "model"
    settings = {**JOINT, "optimise.epochs": 3, "policy.name": "confidence", "policy.threshold": 0.7}
    Classifier("ce", str(backbone_folder), settings).fit(*toy(80)).save(folder)
    return folder


@pytest.mark.parametrize("detail", [False, True])
def test_the_server_answers_with_tags_and_spans(open_client: Callable[..., Any], tags: Path, detail: bool) -> None:
    classifier = Classifier.load(tags)
    texts = [*TEXTS, *(" ".join(words) for words in toy(12, seed=4)[0])]
    with open_client(tags, allow_uncertified=True) as client:
        reply = client.post("/predict", json={"texts": texts, "detail": detail}).json()
        assert client.get("/model").json()["word_tags"] is True
        assert client.get("/metrics").status_code == 200
    for text, found, wanted in zip(texts, reply["answers"], classifier.decide(texts), strict=True):
        assert isinstance(wanted, TagPrediction)
        assert (found["words"], found["tags"]) == (list(wanted.words), list(wanted.tags))
        assert (found["depths"], found["depth"]) == (list(wanted.depths), wanted.depth)
        assert found["probabilities"] == pytest.approx(list(wanted.probabilities), abs=1e-5)
        assert not {"label", "labels", "tagged", "text"} & set(found)
        assert [(s["label"], s["start"], s["end"]) for s in found["spans"]] == [
            (s.label, s.start, s.end) for s in wanted.spans
        ]
        assert all(text[s["start"] : s["end"]] == s["text"] for s in found["spans"])
        if detail:
            assert [exit["depth"] for exit in found["exits"]] == [1, 2, 3, 4]
            for exit in found["exits"]:
                classifier.set_params(policy="fixed", depth=exit["depth"])
                assert exit["tags"] == classifier.predict([text])[0]
                assert "distances" not in exit
            classifier.set_params(policy=None, depth=None)


def test_a_pair_and_a_policy_that_knows_no_words_are_refused(open_client: Callable[..., Any], tags: Path) -> None:
    with open_client(tags, allow_uncertified=True) as client:
        pair = client.post("/predict", json={"texts": [["a", "b"]]})
        prior = client.post("/predict", json={"texts": ["a"], "policy": "prior", "threshold": 0.5})
    assert pair.status_code == 422
    assert "single texts" in pair.json()["error"]
    assert prior.status_code == 422


def test_the_page_marks_spans(open_client: Callable[..., Any], tags: Path) -> None:
    with open_client(tags) as client:
        assert 'element("mark"' in client.get("/page.js").text
