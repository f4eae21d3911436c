"""One Ray for all tests here, on this machine, with two cores; a model whose texts leave at every depth; its texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import torch
from tests.conftest import LABELS, small_bert, toy_texts
from transformers import PreTrainedTokenizerFast

from offramp import Classifier
from offramp.cluster import predict as module
from offramp.cluster.answerer import Answerer, Orders, Receipt
from offramp.cluster.session import Cluster, connected
from offramp.cluster.texts import Span
from offramp.exits.model import build

TEXTS = 5000
THRESHOLD = 0.9


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers, with which this process stays connected."""
    pytest.importorskip("ray", reason="ray is absent; the extra `ray` brings it")
    torch.set_num_threads(1)
    here = Cluster(workers=2)
    with connected(here):
        yield here


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A random model of four layers, of which every exit may answer."""
    folder = tmp_path_factory.mktemp("model") / "model"
    drawn = build(small_bert(4), LABELS, exit_size=16, exit_heads=2, max_tokens=64)
    drawn.config.trained_exits = [1, 2, 3, 4]
    with torch.no_grad():
        for parameter in drawn.exits.parameters():
            parameter.mul_(6.0)  # sure of some texts and not of others
    Classifier.of(drawn, tokenizer).save(folder)
    return folder


@pytest.fixture(scope="session")
def classifier(model: Path) -> Classifier:
    """The model in this process, whose answers are the truth."""
    return Classifier.load(model, 1, threshold=THRESHOLD)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of generated texts, in row groups that no span ends with."""
    file = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pd.DataFrame({"text": toy_texts(TEXTS)[0]}).to_parquet(file, row_group_size=700)
    return file


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker in this process instead of Ray's, which take seconds to start."""

    def receipts(_: Cluster, orders: Orders, spans: Sequence[Span]) -> Iterator[Receipt]:
        answerer = Answerer(orders)
        for span in spans:
            yield Receipt(**answerer(asdict(span)))

    monkeypatch.setattr(module, "receipts", receipts)
