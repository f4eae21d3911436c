"""What the server answers is what `offramp predict` answers, whoever shares the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.conftest import WORDS

from offramp import Classifier
from offramp.serve.app import create_app
from offramp.serve.facts import load
from offramp.types import Example

TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join), min_size=1, max_size=6)
ASKS = st.sampled_from(
    [{}, {"policy": "never"}, {"threshold": 0.6}, {"threshold": 0.9}, {"point": 1}, {"detail": True}]
)


def predict(client: TestClient, texts: list[Any], **more: Any) -> list[dict[str, Any]]:
    reply = client.post("/predict", json={"texts": texts, **more})
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["answers"]
    return found


@cache
def asked(folder: Path, threshold: float | None, policy: str | None, point: int | None) -> Classifier:
    """The model as the command line would run it; or, which that cannot, at a point of the dial."""
    classifier = Classifier.load(folder, threshold=threshold, policy=policy)
    if point is not None:
        assert classifier.certified_ is not None
        moved = classifier.certified_.policy(point)
        classifier.make_policy = lambda: moved  # type: ignore[method-assign]
    return classifier


def truth(folder: Path, texts: list[str], ask: dict[str, Any]) -> list[tuple[Any, float, int]]:
    """Label, probability and depth of each text, answered by itself."""
    classifier = asked(folder, ask.get("threshold"), ask.get("policy"), ask.get("point"))
    found = [next(classifier.stream([Example(text)])) for text in texts]
    return [(each.label, each.probability, each.depth) for each in found]


@pytest.fixture(scope="module")
def free(open_client: Any) -> Iterator[TestClient]:
    """A server that allows every policy."""
    with open_client(allow_uncertified=True) as made:
        yield made


# What fails here may depend on who came first, and would be shrunk in vain.
@settings(max_examples=12, deadline=None, phases=[Phase.generate])
@given(requests=st.lists(st.tuples(TEXTS, ASKS), min_size=2, max_size=12))
def test_concurrent_clients_get_what_each_would_get_alone(
    free: TestClient, folder: Path, requests: list[tuple[list[str], dict[str, Any]]]
) -> None:
    with ThreadPoolExecutor(len(requests)) as clients:
        found = list(clients.map(lambda request: predict(free, request[0], **request[1]), requests))
    for answers, (texts, ask) in zip(found, requests, strict=True):
        alone = truth(folder, texts, ask)
        assert [(each["label"], each["depth"]) for each in answers] == [(label, depth) for label, _, depth in alone]
        assert [each["probability"] for each in answers] == pytest.approx([p for _, p, _ in alone], abs=1e-5)


def test_an_answer_says_whether_the_certificate_stands_behind_it(client: TestClient, free: TestClient) -> None:
    assert predict(client, ["good film"])[0]["certified"]
    assert predict(client, ["good film"], point=0)[0]["certified"]
    for all_layers in ({"policy": "never"}, {"depth": 4}):
        assert predict(client, ["good film"], **all_layers)[0]["certified"]
        assert predict(free, ["good film"], **all_layers)[0]["certified"]
    assert not predict(free, ["good film"], threshold=0.5)[0]["certified"]


def test_detail_tells_what_every_exit_says(client: TestClient, classifier: Classifier) -> None:
    texts = ["good film", "the plot was very dull and bad " * 3]
    reply = client.post("/predict", json={"texts": texts, "detail": True}).json()
    assert reply["labels"] == list(classifier.labels_.names)
    for text, answer in zip(texts, reply["answers"], strict=True):
        batch = classifier._tokenise([text]).batch([0])
        outputs = classifier.engine_.outputs(batch)
        assert [each["depth"] for each in answer["exits"]] == list(outputs) == [1, 2, 3, 4]
        for each in answer["exits"]:
            output = outputs[each["depth"]]
            assert each["probabilities"] == pytest.approx(output.logits.softmax(dim=1)[0].tolist(), abs=1e-5)
            vector, anchors = output.representation[0], output.label_embeddings.detach()
            cosines = [float(vector @ anchor / vector.norm() / anchor.norm()) for anchor in anchors]
            assert each["distances"] == pytest.approx([1 - cosine for cosine in cosines], abs=1e-5)
            assert each["label"] == reply["labels"][max(range(3), key=each["probabilities"].__getitem__)]
        left = next(each for each in answer["exits"] if each["depth"] == answer["depth"])
        assert (left["label"], max(left["probabilities"])) == (answer["label"], pytest.approx(answer["probability"]))
    plain = predict(client, texts)
    assert [(each["label"], each["depth"]) for each in plain] == [
        (each["label"], each["depth"]) for each in reply["answers"]
    ]


def test_a_text_that_is_too_long_for_the_model_is_cut_and_says_so(client: TestClient, classifier: Classifier) -> None:
    long = "good " * 200
    short, cut = predict(client, ["good film", long])
    assert (short["cut"], cut["cut"]) == (False, True)
    with pytest.warns(UserWarning, match="were cut"):
        assert cut["label"] == classifier.decide([long])[0].label


def test_where_nobody_said_what_was_learnt_pairs_share_no_batch_with_single_texts(folder: Path) -> None:
    pairs = [["good", "the film"], ["bad", "very dull"]]
    loaded, state = load(folder)
    loaded.pairs_ = None
    with TestClient(create_app(loaded, state)) as client, ThreadPoolExecutor(8) as clients:
        both = list(clients.map(lambda texts: predict(client, texts), [pairs, ["good film"]] * 8))
        assert client.get("/model").json()["text_pairs"] is None
    wanted = [each.label for each in loaded.decide([tuple(pair) for pair in pairs])]
    assert all([each["label"] for each in found] == wanted for found in both[::2])


# What a request may ask for.


def refused(client: TestClient, status: int = 422, **ask: Any) -> str:
    reply = client.post("/predict", json={"texts": ["good film"], **ask})
    assert reply.status_code == status, reply.text
    message: str = reply.json()["error"]
    return message


def test_a_request_may_be_stricter_than_the_certificate_and_not_bolder(
    client: TestClient, classifier: Classifier
) -> None:
    certificate = classifier.certificate
    assert certificate is not None
    read = [depth for depth in classifier.engine_.trained if depth < classifier.engine_.depth]
    strictest = max(certificate.rule.get(depth, float("inf")) for depth in read)
    assert "stricter than the certificate" in refused(client, 403, threshold=0.4)
    assert "stricter than the certificate" in refused(client, 403, policy="margin", threshold=0.9999)
    assert "stricter than the certificate" in refused(client, 403, depth=1)
    assert predict(client, ["good film"], policy="never")[0]["depth"] == 4
    assert predict(client, ["good film"], depth=4)[0]["depth"] == 4
    if strictest <= 1:
        assert predict(client, ["good film"], threshold=strictest)
        assert f"at least {strictest:.6g}" in refused(client, 403, threshold=strictest - 0.01)


def test_a_point_that_is_not_certified_needs_the_servers_leave(client: TestClient, free: TestClient) -> None:
    points = client.get("/model").json()["dial"]["points"]
    bold = next((place for place, point in enumerate(points) if not point["certified"]), None)
    assert bold is not None, "the toy model should have a point beyond its certificate"
    assert f"at most {bold - 1}" in refused(client, 403, point=bold)
    assert f"between 0 and {len(points) - 1}" in refused(client, point=len(points))
    assert not predict(free, ["good film"], point=bold)[0]["certified"]


def test_along_the_dial_depths_never_rise(client: TestClient) -> None:
    told = client.get("/model").json()["dial"]["points"]
    certified = [place for place, point in enumerate(told) if point["certified"]]
    texts = ["good film", "dull plot was bad", "who is fine", "slow"]
    depths = [[each["depth"] for each in predict(client, texts, point=place)] for place in certified]
    assert depths[0] == [4] * 4
    assert all(a >= b for before, after in pairwise(depths) for a, b in zip(before, after, strict=True))


def test_without_a_certificate_any_policy_may_be_asked_for(bare: Path, open_client: Any) -> None:
    with open_client(bare) as client:
        assert [predict(client, ["good film"], depth=depth)[0]["depth"] for depth in (1, 2, 3, 4)] == [1, 2, 3, 4]
        assert "a model with a dial" in refused(client, point=0)
        assert client.get("/model").json()["certificate_state"] == "none"


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
def test_an_exported_model_is_served_as_well(
    int8: bool, classifier: Classifier, open_client: Callable[..., Any], tmp_path: Path
) -> None:
    classifier.export(tmp_path / "onnx", int8=int8, exits=[1, 2, 4])
    alone = Classifier.load(tmp_path / "onnx", threshold=0.9)
    texts = ["good film", "dull plot was bad", "who is fine " * 9]
    with open_client(tmp_path / "onnx") as client:
        found = predict(client, texts, threshold=0.9)
        assert [(each["label"], each["depth"]) for each in found] == [
            (each.label, each.depth) for each in alone.decide(texts)
        ]
        detail = predict(client, texts, threshold=0.9, detail=True)
        assert [each["depth"] for each in detail[0]["exits"]] == [1, 2, 4]
        assert [each["depth"] for each in detail] == [each["depth"] for each in found]
        assert "an exit that can answer: 1, 2, 4" in refused(client, depth=3)
