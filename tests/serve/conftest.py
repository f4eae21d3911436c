"""A small calibrated model, an application around it, and a server on a port of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from tests.conftest import fresh_texts, toy_texts

from offramp import Classifier
from offramp.preparation import as_table
from offramp.serve.app import create_app
from offramp.serve.facts import load
from offramp.serve.server import listen
from offramp.serve.settings import ServeSettings

TRAINED = {
    "exits.size": 16,
    "optimise.epochs": 5,
    "optimise.batch_size": 16,
    "optimise.lr_backbone": 2e-3,
    "optimise.lr_exit": 2e-3,
    "optimise.strategy": "two-stage",
    "stage2.objective": "acl-cl",
    "stage2.epochs": 2,
    "stage2.batch_size": 32,
    "stage2.least_updates": 0,
}

SETS: dict[str, Any] = {
    "data.labels": "set",
    "exits.size": 16,
    "optimise.metric": "micro_f1",
    "optimise.strategy": "joint",
    "optimise.epochs": 3,
    "optimise.lr_exit": 0.02,
    "optimise.track": [],
    "policy.name": "confidence",
    "policy.threshold": 0.7,
}


@pytest.fixture(scope="session")
def bare(backbone_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose exits are all trained, without a certificate; no test may write to it."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    Classifier("ce", str(backbone_folder), TRAINED).fit_table(as_table(*toy_texts(120), "train"), folder=folder)
    return folder


@pytest.fixture(scope="session")
def folder(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a certificate of `confidence`; no test may write to it."""
    home = tmp_path_factory.mktemp("certified") / "model"
    home.mkdir()
    classifier = Classifier.load(bare)
    classifier.calibrate(as_table(*fresh_texts(400, 5, trained=120), "held-out"), max_drop=0.1, policy="confidence")
    classifier.save(home)
    return home


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory, backbone_folder: Path) -> Path:
    """A model of sets of labels, without a certificate; no test may write to it."""
    folder = tmp_path_factory.mktemp("sets") / "model"
    texts, labels = toy_texts(60)
    more = [[label, "dull"] if "dull" in text.split() else [label] for text, label in zip(texts, labels, strict=True)]
    Classifier("ce", str(backbone_folder), SETS).fit(texts, more).save(folder)
    return folder


@pytest.fixture(scope="session")
def classifier(folder: Path) -> Classifier:
    """The model as `offramp predict` loads it; what it says is the truth here."""
    return Classifier.load(folder)


@pytest.fixture(scope="session")
def open_client(folder: Path) -> Callable[..., Any]:
    """Opens a client of an application in this process: `with open_client(queue=8) as client`."""

    @contextmanager
    def client(model: Path | None = None, **settings: Any) -> Iterator[TestClient]:
        loaded, state = load(model or folder)
        app = create_app(loaded, state, ServeSettings(**settings), model or folder)
        with TestClient(app, raise_server_exceptions=False) as made:
            yield made

    return client


@pytest.fixture(scope="session")
def client(open_client: Callable[..., Any]) -> Iterator[TestClient]:
    with open_client() as made:
        yield made


@contextmanager
def listening(folder: Path, **settings: Any) -> Iterator[tuple[str, int]]:
    """A real server in a thread of this process; gives its address."""
    loaded, state = load(folder)
    app = create_app(loaded, state, ServeSettings(**settings), folder)
    place = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    thread = threading.Thread(target=server.run, args=([place],))
    thread.start()
    try:
        limit = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < limit
            thread.join(0.01)
        yield place.getsockname()
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[tuple[str, int]]:
    """A server with small limits, so that they are reached quickly."""
    with listening(folder, max_bytes=4000, body_seconds=0.5, max_texts=16, max_characters=1000) as place:
        yield place
