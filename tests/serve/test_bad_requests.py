"""Bodies that are malformed, huge, empty, not UTF-8 or slow get a clear answer, and the server goes on."""

from __future__ import annotations

import json
import socket
import time
from select import select
from typing import Any

import pytest
from starlette.testclient import TestClient

JSON = {"content-type": "application/json"}


def post(client: TestClient, body: bytes | str, **headers: str) -> tuple[int, str]:
    reply = client.post("/predict", content=body, headers={**JSON, **headers})
    assert reply.headers["content-type"] == "application/json"
    return reply.status_code, reply.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "The body should be JSON in UTF-8."),
        (b"{", 400, "EOF while parsing"),
        (b"\xff\xfe{}", 400, "The body should be JSON in UTF-8."),
        (b'{"texts": ["\xff"]}', 400, "The body should be JSON in UTF-8."),
        (rb'{"texts": ["\ud800"]}', 400, "The body should be JSON in UTF-8."),
        (b"[" * 100_000, 400, "recursion"),
        (b"null", 422, "object"),
        (b"[]", 422, "object"),
        (b"{}", 422, "`texts`: Field required."),
        (b'{"texts": "good"}', 422, "`texts`"),
        (b'{"texts": []}', 422, "There should be 1 to 64 texts. Found 0."),
        (b'{"texts": [""]}', 422, "`texts.0`: A text should not be blank."),
        (rb'{"texts": ["good", " \n\t"]}', 422, "`texts.1`: A text should not be blank."),
        (b'{"texts": [1]}', 422, "`texts.0`: Input should be a valid string."),
        (b'{"texts": ["good", ["a", "b"]]}', 422, "`texts.1`"),
        (b'{"texts": [["a"]]}', 422, "`texts.0`"),
        (b'{"texts": ["good"], "detail": "yes"}', 422, "`detail`: Input should be a valid boolean."),
        (b'{"texts": ["good"], "threshold": "0.9"}', 422, "`threshold`: Input should be a valid number."),
        (b'{"texts": ["good"], "threshold": NaN}', 422, "`threshold`: Input should be a finite number."),
        (b'{"texts": ["good"], "threshold": 1e999}', 422, "`threshold`"),
        (b'{"texts": ["good"], "threshold": 7}', 422, "`threshold` should be between 0 and 1. Found 7."),
        (b'{"texts": ["good"], "depth": 5}', 422, "`depth` should be between 1 and 4. Found 5."),
        (b'{"texts": ["good"], "depth": 99999999999999999999}', 422, "`depth`"),
        (b'{"texts": ["good"], "policy": "never", "depth": 0}', 422, "`depth` should stand with the policy `fixed`"),
        (b'{"texts": ["good"], "policy": "fixed", "threshold": 0.9}', 422, "`threshold` should stand with a policy"),
        (b'{"texts": ["good"], "depth": 2, "threshold": 0.9}', 422, "Either a threshold or a depth"),
        (b'{"texts": ["good"], "policy": "confidenc"}', 422, "Did you mean 'confidence'"),
        (b'{"texts": ["good"], "policy": "learned"}', 422, "should be fitted to held-out texts"),
        (b'{"texts": ["good"], "point": 0, "depth": 1}', 422, "`point` should come without"),
        (b'{"texts": ["good"], "temperature": 1}', 422, "`temperature`: Extra inputs are not permitted."),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_a_reason(
    client: TestClient, body: bytes, status: int, said: str
) -> None:
    found, message = post(client, body)
    assert found == status
    assert said in message


def test_too_many_texts_and_too_long_ones_are_refused(client: TestClient) -> None:
    assert post(client, json.dumps({"texts": ["a"] * 65})) == (422, "There should be 1 to 64 texts. Found 65.")
    status, message = post(client, json.dumps({"texts": ["a", "x" * 20_001]}))
    assert (status, message) == (422, "`texts.1`: A text should have at most 20000 characters. Found 20001.")


def test_the_body_should_be_said_to_be_json(client: TestClient) -> None:
    assert post(client, b'{"texts": ["good"]}', **{"content-type": "text/plain"})[0] == 415
    reply = client.post(
        "/predict", content=b'{"texts": ["good"]}', headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert reply.status_code == 200


def test_paths_and_methods_that_are_not_there_are_told(client: TestClient) -> None:
    assert (client.get("/nothing").status_code, client.get("/nothing").json()) == (404, {"error": "Not Found"})
    reply = client.get("/predict")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert "error" in reply.json()


# Over a socket, where a body can be slow or lie about its size.


def talk(address: tuple[str, int], *parts: bytes | float) -> tuple[int, str]:
    """Send parts, resting where there is a number unless the server speaks; the reply, up to the connection's end."""
    with socket.create_connection(address, timeout=20) as line:
        try:
            for part in parts:
                if isinstance(part, float):
                    select([line], [], [], part)
                else:
                    line.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has said no already
        said = b""
        try:
            while part := line.recv(65536):
                said += part
        except ConnectionResetError:
            pass
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def head(*more: str) -> bytes:
    lines = ["POST /predict HTTP/1.1", "Host: here", "Content-Type: application/json", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_body_that_says_it_is_huge_is_refused_before_it_is_sent(address: tuple[str, int]) -> None:
    assert talk(address, head("Content-Length: 5000")) == (413, "The body should have at most 4000 bytes. Found more.")


def test_a_body_that_does_not_say_how_large_it_is_is_counted(address: tuple[str, int]) -> None:
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    status, message = talk(address, head("Transfer-Encoding: chunked"), *[chunk] * 4)
    assert (status, message) == (413, "The body should have at most 4000 bytes. Found more.")


@pytest.mark.parametrize("sent", [b"", b'{"texts": ["go'])
def test_a_body_that_does_not_come_is_not_waited_for(address: tuple[str, int], sent: bytes) -> None:
    begun = time.monotonic()
    assert talk(address, head("Content-Length: 100"), sent) == (408, "The body should arrive within 0.5 s. It did not.")
    assert time.monotonic() - begun < 10


def test_a_body_that_drips_is_not_waited_for(address: tuple[str, int]) -> None:
    drops: list[Any] = [part for _ in range(10) for part in (b" ", 0.1)]
    assert talk(address, head("Content-Length: 100"), *drops)[0] == 408


def test_who_hangs_up_leaves_nothing_behind(address: tuple[str, int]) -> None:
    for _ in range(20):
        with socket.create_connection(address, timeout=20) as line:
            line.sendall(head("Content-Length: 100") + b'{"texts"')
    whole = b'{"texts": ["good film"]}'
    with socket.create_connection(address, timeout=20) as line:
        line.sendall(head(f"Content-Length: {len(whole)}", "Connection: close") + whole)
        said = b""
        while part := line.recv(65536):
            said += part
    assert said.startswith(b"HTTP/1.1 200")


# The key.


def test_with_a_key_only_who_has_it_is_answered(open_client: Any) -> None:
    with open_client(api_key=b"open-sesame") as client:
        body = {"texts": ["good film"]}
        for wrong in ({}, {"authorization": "Bearer open-sesam"}, {"authorization": "Basic open-sesame"}):
            reply = client.post("/predict", json=body, headers=wrong)
            assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get("/metrics", headers=wrong).status_code == 401
            assert client.get("/model", headers=wrong).status_code == 401
        right = {"authorization": "Bearer open-sesame"}
        assert client.post("/predict", json=body, headers=right).status_code == 200
        assert client.get("/metrics", headers=right).status_code == 200
        assert {client.get(path).status_code for path in ("/", "/healthz", "/readyz", "/openapi.json")} == {200}
        security = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["security"]
        assert security == [{"key": []}]


def test_without_the_key_a_body_is_not_even_read(open_client: Any) -> None:
    with open_client(api_key=b"open-sesame", max_bytes=10) as client:
        assert client.post("/predict", content=b" " * 1000, headers=JSON).status_code == 401
