"""A server under load and at its end: bounded, observable, and nobody who was accepted is dropped."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tests.conftest import fresh_texts

from offramp import Classifier
from offramp.cli import app
from offramp.preparation import as_table
from offramp.runtime.certified import VoidCertificate, write
from offramp.serve import log
from offramp.serve.answering import Answerer

PATIENCE = 30.0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lanes that begin a batch and wait until they may end it; open unless a test shuts it."""
    plain = Answerer.__call__

    class Gate:
        begun, open = threading.Semaphore(0), threading.Event()

    def held(self: Answerer, *given: Any) -> Any:
        Gate.begun.release()
        assert Gate.open.wait(PATIENCE)
        return plain(self, *given)

    Gate.open.set()
    monkeypatch.setattr(Answerer, "__call__", held)
    yield Gate
    Gate.open.set()


def shut(gate: Any) -> None:
    gate.open.clear()
    while gate.begun.acquire(blocking=False):  # what warming up has left
        pass


def ask(client: TestClient, *texts: str) -> Any:
    return client.post("/predict", json={"texts": list(texts)})


def test_a_full_queue_is_503_with_retry_after_and_recovers(open_client: Any, gate: Any) -> None:
    with open_client(queue=4, max_texts=4, max_batch=1) as client, ThreadPoolExecutor(4) as clients:
        shut(gate)
        first = clients.submit(ask, client, "good film")
        assert gate.begun.acquire(timeout=PATIENCE)
        waiting = clients.submit(ask, client, "good", "bad", "fine", "slow")
        while client.app.state.served.batcher.waiting < 4:
            pass
        reply = ask(client, "one too many")
        assert reply.status_code == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "queue is full" in reply.json()["error"]
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        gate.open.set()
        assert (first.result(PATIENCE).status_code, waiting.result(PATIENCE).status_code) == (200, 200)
        assert ask(client, "good film").status_code == 200
        assert client.get("/readyz").json() == {"status": "ready"}


def test_more_open_requests_than_the_queue_holds_are_not_even_read(open_client: Any, gate: Any) -> None:
    with open_client(queue=2, max_texts=1, max_batch=1) as client, ThreadPoolExecutor(2) as clients:
        shut(gate)
        sent = [clients.submit(ask, client, text) for text in ("good film", "bad film")]
        assert gate.begun.acquire(timeout=PATIENCE)  # one is at work: who waits now is the other
        while client.app.state.served.batcher.waiting < 1:
            pass
        reply = client.post("/predict", content=b"not even JSON")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "Too many requests are open" in reply.json()["error"]
        assert client.get("/healthz").status_code == 200
        gate.open.set()
        assert [each.result(PATIENCE).status_code for each in sent] == [200, 200]


def test_a_request_that_takes_too_long_is_given_up_and_leaves_the_queue(open_client: Any, gate: Any) -> None:
    with open_client(answer_seconds=0.1) as client:
        shut(gate)
        reply = ask(client, "good film")
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "no answer within 0.1 s" in reply.json()["error"]
        gate.open.set()


def test_shutting_down_finishes_what_was_accepted(open_client: Any, gate: Any) -> None:
    with ThreadPoolExecutor(2) as clients:
        with open_client(max_batch=1) as client:
            shut(gate)
            sent = [clients.submit(ask, client, text) for text in ("good film", "bad film")]
            assert gate.begun.acquire(timeout=PATIENCE)
            batcher = client.app.state.served.batcher
            while batcher.waiting < 1:
                pass
            closing = threading.Thread(target=batcher.close)
            closing.start()
            while ask(client, "too late").status_code != 503:
                pass
            gate.open.set()
            assert [each.result(PATIENCE).status_code for each in sent] == [200, 200]
            closing.join(PATIENCE)
        assert not closing.is_alive()


def test_what_breaks_is_500_with_a_number_and_the_server_goes_on(
    open_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Answerer.__call__

    def broken(self: Answerer, lane: int, key: Any, texts: Any) -> Any:
        if any("boom" in each.text for each in texts):
            raise RuntimeError("boom: a text would stand here")
        return plain(self, lane, key, texts)

    monkeypatch.setattr(Answerer, "__call__", broken)
    with logged() as lines, open_client() as client:
        reply = ask(client, "boom")
        assert reply.status_code == 500
        number = reply.headers["x-request-id"]
        assert number in reply.json()["error"]
        assert ask(client, "good film").status_code == 200
    told = [json.loads(line) for line in lines()]
    failure = next(line for line in told if line["event"] == "broken")
    assert (failure["request"], failure["error"]) == (number, "RuntimeError")
    assert any("broken" in place for place in failure["at"])
    assert "a text would stand here" not in "".join(lines())


# What is counted and written down.


@contextmanager
def logged() -> Iterator[Any]:
    """The log, as lines."""
    stream = io.StringIO()
    before = [(logging.getLogger(name), logging.getLogger(name).handlers) for name in ("offramp.serve", "uvicorn")]
    log.begin(stream)
    try:
        yield lambda: stream.getvalue().splitlines()
    finally:
        for logger, handlers in before:
            logger.handlers = handlers


def test_the_log_tells_of_every_request_and_never_its_texts(open_client: Any) -> None:
    with logged() as lines, open_client() as client:
        reply = client.post("/predict?secret=query", json={"texts": ["good secret film", "bad secret"]})
        client.post("/predict", json={"texts": ["secret"], "policy": "secret"})
        client.post("/predict", content=b'{"texts": ["secret"')
        client.get("/secret")
    told = [json.loads(line) for line in lines()]
    requests = [line for line in told if line["event"] == "request"]
    assert [(line["path"], line["status"]) for line in requests] == [
        ("/predict", 200), ("/predict", 422), ("/predict", 415), ("other", 404),
    ]  # fmt: skip
    assert requests[0]["request"] == reply.headers["x-request-id"]
    assert (requests[0]["texts"], requests[0]["method"]) == (2, "POST")
    assert requests[0]["ms"] > 0
    assert "secret" not in "".join(lines())


def samples(client: TestClient) -> dict[str, float]:
    text = client.get("/metrics").text
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_count_requests_depths_batches_and_the_certificate(open_client: Any) -> None:
    with open_client() as client:
        answers = ask(client, "good film", "who is very slow", "bad").json()["answers"]
        ask(client)
        found = samples(client)
    assert found["offramp_requests_total[('path', '/predict'), ('status', '200')]"] == 1
    assert found["offramp_requests_total[('path', '/predict'), ('status', '422')]"] == 1
    assert found["offramp_request_seconds_count[('path', '/predict')]"] == 2
    assert found["offramp_exit_depth_count[]"] == 3
    assert found["offramp_exit_depth_sum[]"] == sum(each["depth"] for each in answers)
    for depth in range(1, 5):
        left = sum(each["depth"] <= depth for each in answers)
        assert found[f"offramp_exit_depth_bucket[('le', '{depth}.0')]"] == left
    assert found["offramp_batch_texts_sum[]"] == 3
    assert found["offramp_queue_texts[]"] == 0
    states = {
        name: found[f"offramp_certificate[('state', '{name}')]"] for name in ("certified", "measured", "void", "none")
    }
    assert states == {"certified": 1, "measured": 0, "void": 0, "none": 0}


# What is told of the model.


def test_the_model_tells_labels_depths_and_what_is_promised(client: TestClient, classifier: Any) -> None:
    told = client.get("/model").json()
    assert (told["labels"], told["layers"], told["trained"]) == (["bad", "fine", "good"], 4, [1, 2, 3, 4])
    certificate = classifier.certificate
    assert told["promise"] == certificate.promises()
    assert told["certificate"] == json.loads(certificate.to_json())
    points, chosen = told["dial"]["points"], told["dial"]["chosen"]
    assert points[chosen]["promise"] == certificate.promises()
    assert points[chosen]["mean_depth"] == certificate.mean_depth
    assert points[0]["promise"] == "Every text runs all layers: nothing is lost against the full model."
    certified = [point["certified"] for point in points]
    assert certified == sorted(certified, reverse=True)
    assert told["scores"]["by_exit"].keys() == {"1", "2", "3", "4"}
    assert told["scores"]["by_exit"]["4"] == pytest.approx(certificate.accuracy_full)


def test_without_a_calibration_the_scores_are_those_of_the_training(open_client: Any, bare: Any) -> None:
    with open_client(bare) as client:
        told = client.get("/model").json()
    result = json.loads((bare / "training" / "result.json").read_text())
    assert told["scores"]["by_exit"] == result["by_exit"]
    assert (told["dial"], told["promise"], told["certificate_state"]) == (None, None, "none")


def test_a_model_is_served_whatever_its_training_left(open_client: Any, bare: Path, tmp_path: Path) -> None:
    """An older offramp did not seal how a run ended."""
    model = Path(shutil.copytree(bare, tmp_path / "model"))
    (model / "training" / "result.json").write_text('{"score": 1.0}')
    with open_client(model) as client:
        assert client.get("/model").json()["scores"] is None
        assert client.post("/predict", json={"texts": ["good film"]}).status_code == 200


def test_a_budget_is_told_of_the_chosen_point_alone(open_client: Any, bare: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "model"))
    classifier = Classifier.load(folder)
    data = as_table(*fresh_texts(300, 9, trained=120), "held-out")
    certificate = classifier.calibrate(data, max_drop=0.2, budget_layers=1.06, policy="confidence")
    assert (certificate.certified, certificate.within_budget) == (True, False)
    classifier.save_certificate(folder)
    with open_client(folder) as client:
        dial = client.get("/model").json()["dial"]
    promises = [point["promise"] for point in dial["points"] if point["certified"]]
    assert [place for place, told in enumerate(promises) if "budget" in told] == [dial["chosen"]]
    assert promises[dial["chosen"]] == certificate.promises()


def test_thresholds_for_a_budget_are_told_as_measured_and_bind_nobody(
    open_client: Any, bare: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "model"))
    classifier = Classifier.load(folder)
    classifier.calibrate(as_table(*fresh_texts(60, 9, trained=120), "held-out"), budget_layers=3, policy="confidence")
    classifier.save_certificate(folder)
    with open_client(folder) as client:
        told = client.get("/model").json()
        assert told["certificate_state"] == "measured"
        assert told["promise"].startswith("No risk is promised")
        bold = len(told["dial"]["points"]) - 1
        assert told["dial"]["points"][bold]["promise"].startswith("Nothing is promised here; measured:")
        answer = client.post("/predict", json={"texts": ["good film"], "point": bold}).json()["answers"][0]
        assert not answer["certified"]
        assert samples(client)["offramp_certificate[('state', 'measured')]"] == 1


def test_a_certificate_of_another_model_is_void_and_said_to_be(open_client: Any, folder: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(folder, tmp_path / "model"))
    found = Classifier.load(home).certified_
    assert found is not None
    write(home, replace(found, certificate=replace(found.certificate, fingerprint="0" * 64)))
    with ExitStack() as stack:
        with pytest.warns(VoidCertificate):
            client = stack.enter_context(open_client(home))
        told = client.get("/model").json()
        assert (told["certificate_state"], told["certificate"], told["dial"]) == ("void", None, None)
        answer = client.post("/predict", json={"texts": ["good film"]}).json()["answers"][0]
        assert (answer["depth"], answer["certified"]) == (4, False)


# What the documents say.

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text("utf-8")


def test_every_option_that_the_page_on_serving_names_exists() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--json"} <= known


def test_every_metric_that_the_page_on_serving_names_exists_and_none_is_left_out(client: TestClient) -> None:
    named = set(re.findall(r"`(offramp_\w+?)(?:_total)?`", PAGE))
    families = text_string_to_metric_families(client.get("/metrics").text)
    assert named == {family.name.removesuffix("_created") for family in families}


def test_the_page_on_serving_tells_every_refusal(client: TestClient) -> None:
    told = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["responses"]
    assert set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)) == set(told) - {"200", "500"}
