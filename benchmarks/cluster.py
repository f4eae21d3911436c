"""Texts through Ray, on this machine: what is lost when a worker is killed, and what the way costs.

A small random model answers generated texts: in one process, by one worker of Ray, and by two, of which one is killed
as soon as the first block is done. Answers are compared bit by bit with those of the one process. Start-up is the time
before the first block less what a block takes; blocks without texts tell what a block costs the process that hands
them out.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyarrow import dataset, parquet

from benchmarks.record import Ratio
from offramp import Classifier
from offramp.cluster.answerer import Answerer, Orders, Receipt
from offramp.cluster.predict import BLOCK, Job, predict, receipts
from offramp.cluster.session import Cluster
from offramp.cluster.texts import Span
from offramp.data.sources import read, stream
from offramp.demo import data_file
from offramp.study.drawn import draw_backbone

TEXTS = 100_000
EMPTY = 300
THRESHOLD = 0.2  # of ten labels: texts leave at every depth
FEW = {"data.cap": 100, "optimise.epochs": 1, "stage2.epochs": 1}


@dataclass
class Run:
    """When the blocks of a run came, in seconds since it began."""

    kill: bool = False
    began: float = field(default_factory=time.perf_counter)
    came: list[float] = field(default_factory=list)
    found: list[Receipt] = field(default_factory=list)

    def told(self, receipt: Receipt, *_: int) -> None:
        self.came.append(time.perf_counter() - self.began)
        self.found.append(receipt)
        if self.kill and len(self.found) == 1:
            os.kill(receipt.worker, signal.SIGKILL)

    @property
    def block(self) -> float:
        """Seconds of a block in a worker that has its model."""
        first = {receipt.worker: receipt.number for receipt in reversed(self.found)}
        return median(each.seconds for each in self.found if each.number not in first.values() and each.rows == BLOCK)

    @property
    def start(self) -> float:
        return self.came[0] - self.block

    @property
    def rate(self) -> float:
        """Texts per second once the first block is there."""
        return sum(each.rows for each in self.found[1:]) / (self.came[-1] - self.came[0])


class Idle(Answerer):
    """A worker that answers nothing."""

    def _answer(self, _: Span) -> int:
        return 0


def run(texts: int = TEXTS) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        model, file = _model(home), home / "texts.parquet"
        _write(file, texts)
        truth, seconds = _alone(model, file)
        runs = {
            "one worker": _on_ray(model, file, home / "one", 1),
            "two workers, one killed": _on_ray(model, file, home / "two", 2, kill=True),
        }
        counts = {way: _compared(truth, home / out) for way, out in zip(runs, ("one", "two"), strict=True)}
        each = _empty(home)
    one, two = runs.values()
    detail = {
        "texts": float(texts),
        "texts in a block": float(BLOCK),
        "one process, texts per second": texts / seconds,
        **{f"{way}, texts per second": made.rate for way, made in runs.items()},
        **{f"{way}, seconds to start": made.start for way, made in runs.items()},
        **{f"{way}, seconds in all": made.came[-1] for way, made in runs.items()},
        "two workers, one killed, processes that answered": float(len({each.worker for each in two.found})),
        "one worker, milliseconds of a text": 1000 * one.block / BLOCK,
        "two workers, one killed, milliseconds of a text": 1000 * two.block / BLOCK,
        "milliseconds of a block for who hands it out": 1000 * each,
    }
    kinds = ("lost", "repeated", "answered otherwise")
    return [
        *(
            Ratio(f"texts {kind} by {way}", [float(counts[way][place])], 0.0, False, detail)
            for way in runs
            for place, kind in enumerate(kinds)
        ),
        Ratio("throughput of one worker over one process, start-up left out", [one.rate * seconds / texts], 0.8, True),
        Ratio("throughput of two workers, one killed, over one, start-up left out", [two.rate / one.rate], 1.2, True),
    ]


def _model(home: Path) -> Path:
    messages = read(data_file("train"))
    draw_backbone(home / "backbone", (example.text for example in messages.examples))
    Classifier(backbone=str(home / "backbone"), settings=FEW).fit_table(messages, folder=home / "model")
    return home / "model"


def _write(file: Path, texts: int) -> None:
    words = sorted({word for example in read(data_file("train")).examples for word in example.text.split()})
    draw = random.Random(0)
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(texts)]
    parquet.write_table(pa.table({"text": lines}), file, row_group_size=20_000)


def _alone(model: Path, file: Path) -> tuple[list[dict[str, Any]], float]:
    classifier = Classifier.load(model, 1, threshold=THRESHOLD)
    began = time.perf_counter()
    found = [asdict(answer) for answer in classifier.stream(stream(file))]
    return found, time.perf_counter() - began


def _on_ray(model: Path, file: Path, out: Path, workers: int, kill: bool = False) -> Run:
    job = Job(model, str(file), out, parameters={"threshold": THRESHOLD})
    classifier = Classifier.load(model, 1, **job.parameters)
    run = Run(kill)
    predict(job, classifier, Cluster(workers=workers), run.told)
    return run


def _compared(truth: list[dict[str, Any]], out: Path) -> tuple[int, int, int]:
    """How many texts are lost, repeated, and answered otherwise than by one process."""
    rows = dataset.dataset(out, format="parquet").to_table().to_pylist()
    seen = Counter(row["row"] for row in rows)
    other = sum(any(row[key] != value for key, value in truth[row["row"] - 1].items()) for row in rows)
    return len(truth) - len(seen), len(rows) - len(seen), other


def _empty(home: Path) -> float:
    """Seconds that a block costs, however little there is to do."""
    (home / "empty").mkdir()
    orders = Orders("", "", {}, 1, str(home / "empty"), False)
    spans = [Span(number, "", "", ("text",), 0, 1) for number in range(EMPTY)]
    came = [time.perf_counter() for _ in receipts(Cluster(workers=2), orders, spans, Idle)]
    return (came[-1] - came[0]) / (len(came) - 1)
