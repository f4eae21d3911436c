"""`offramp serve` as a process of its own: from the command line to its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

KEY = "open-sesame"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "offramp", "serve", *map(str, arguments)]
    # A shell that put the tests into the background has its children ignore an interrupt.
    listen = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=ENVIRONMENT, **listen, **pipes)


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start(*arguments, "--port", 0)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Serving at http://127.0.0.1:"), process.communicate()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def ask(url: str, texts: list[str] | None = None, key: str = KEY) -> bytes:
    body = None if texts is None else json.dumps({"texts": texts}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    with urlopen(Request(url, body, headers), timeout=30) as reply:
        found: bytes = reply.read()
    return found


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_ends_it_after_what_it_accepted(folder: Path, tmp_path: Path, how: signal.Signals, code: int) -> None:
    texts = [f"good film {'very ' * (number % 40)}" for number in range(64)]
    (tmp_path / "key").write_text(f"{KEY}\n")
    with serving(folder, "--max-batch", 1, "--api-key-file", tmp_path / "key") as (process, url):
        with pytest.raises(HTTPError, match="401") as refused:
            ask(f"{url}/model", key="open-sesam")
        refused.value.close()
        wanted = ask(f"{url}/predict", texts)
        found: list[bytes] = []

        def client() -> None:
            with suppress(URLError):  # one that came after the signal is not accepted
                found.append(ask(f"{url}/predict", texts))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        while b"offramp_queue_texts 0.0" in ask(f"{url}/metrics"):
            pass  # until they wait
        process.send_signal(how)
        for each in clients:
            each.join(30)
        assert process.wait(30) == code
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr]
    accepted = [line["status"] for line in lines if line.get("path") == "/predict"]
    assert accepted == [200] * (1 + len(found))
    assert found
    assert all(each == wanted for each in found)
    assert lines[0]["event"] == "start"


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        place.listen()
        yield place.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--queue", "3"), "`queue` should have room for a whole request, 64 texts (`max_texts`). Found 3."),
        (("--max-batch", "0"), "`max_batch` should be at least 1. Found 0."),
        (("--api-key-file", "absent"), "`--api-key-file` should be a file that can be read."),
        (("--api-key-file", "{empty}"), "should hold one key of ASCII characters"),
        (("--host", "256.0.0.1"), "The server should be able to listen at 256.0.0.1"),
        (("--port", "{taken}"), "Address already in use"),
        (("--queue", "64", "--max-texts", "65"), "`queue` should have room for a whole request"),
    ],
)
def test_what_cannot_be_served_is_misuse(
    folder: Path, tmp_path: Path, taken: int, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from offramp import cli

    (tmp_path / "empty").write_text("\n")
    given = [word.format(taken=taken, empty=tmp_path / "empty") for word in arguments]
    monkeypatch.setattr(sys, "argv", ["offramp", "serve", str(folder), *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
