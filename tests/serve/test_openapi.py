"""The server's own OpenAPI, and requests of all kinds that are made from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from starlette.testclient import TestClient
from tests.serve.conftest import listening

from offramp.serve.app import create_app
from offramp.serve.facts import load
from offramp.serve.requests import EXAMPLES
from offramp.serve.settings import ServeSettings

OPERATIONS = ["POST /predict", "GET /model", "GET /healthz", "GET /readyz", "GET /metrics"]


@pytest.fixture(scope="module")
def operations(folder: Path) -> Iterator[dict[str, Any]]:
    with listening(folder) as (host, port):
        schema = schemathesis.openapi.from_url(f"http://{host}:{port}/openapi.json")
        yield {each.label: each for each in (found.ok() for found in schema.get_all_operations())}


def test_no_operation_is_left_out(operations: dict[str, Any]) -> None:
    assert sorted(operations) == sorted(OPERATIONS)


# What takes no parameters has no requests that are forbidden.
@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        *((name, GenerationMode.POSITIVE) for name in OPERATIONS),
        pytest.param(OPERATIONS[0], GenerationMode.NEGATIVE, marks=pytest.mark.slow),
    ],
)
def test_no_request_that_the_schema_allows_or_forbids_finds_a_fault(
    operations: dict[str, Any], operation: str, mode: GenerationMode
) -> None:
    @settings(
        max_examples=40 if "predict" in operation else 5,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operations[operation].as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        case.call_and_validate()

    holds()


def test_the_examples_are_answered(client: TestClient) -> None:
    told = client.get("/openapi.json").json()
    body = told["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["examples"] == EXAMPLES
    for example in body["examples"]:
        assert client.post("/predict", json=example).status_code == 200, example


@pytest.mark.parametrize("learnt", [None, False, True])
def test_the_schema_knows_the_limits_of_the_server_and_what_its_model_learnt(folder: Path, learnt: bool | None) -> None:
    loaded, state = load(folder)
    loaded.pairs_ = learnt
    with TestClient(create_app(loaded, state, ServeSettings(max_texts=3, max_characters=7))) as client:
        told = client.get("/openapi.json").json()
    body = told["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    kinds = body["properties"]["texts"]["anyOf"]
    assert [(kind["minItems"], kind["maxItems"]) for kind in kinds] == [(1, 3)] * (2 if learnt is None else 1)
    if learnt is not True:
        assert kinds[0]["items"]["maxLength"] == 7
    if learnt is not False:
        assert [text["maxLength"] for text in kinds[-1]["items"]["prefixItems"]] == [7, 7]
    for example in body["examples"]:
        assert {isinstance(text, list) for text in example["texts"]} == {learnt is True}


def test_every_answer_that_predict_can_give_is_told(client: TestClient) -> None:
    told = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["responses"]
    assert set(told) == {"200", "400", "401", "403", "408", "413", "415", "422", "500", "503"}
