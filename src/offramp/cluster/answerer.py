"""A worker that answers texts: it loads the model once, then reads, answers and writes one span after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from offramp.classifier import Classifier
from offramp.cluster.parts import attempt, part_of, write
from offramp.cluster.session import RETRIES, gone
from offramp.cluster.texts import Span
from offramp.errors import ModelError, OfframpError, UserError
from offramp.runtime.predictions import Answered, Prediction, SetPrediction
from offramp.types import Example


@dataclass(frozen=True)
class Orders:
    """What every worker has to know."""

    model: str
    fingerprint: str  # of the model that is meant
    parameters: Mapping[str, Any]  # of the policy
    threads: int
    out: str
    keep_text: bool


@dataclass(frozen=True)
class Receipt:
    """What became of a span."""

    number: int
    rows: int = 0
    cuts: int = 0  # texts that were longer than the model takes
    seconds: float = 0.0
    worker: int = 0  # its process
    error: str = ""
    misuse: bool = False  # the caller can mend it


class Answerer:
    """What Ray keeps alive as an actor."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.classifier: Classifier | None = None

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a span; a fault of the texts or of the model is told and does not end the worker."""
        span = Span(**{**row, "columns": tuple(row["columns"])})
        began = time.monotonic()
        try:
            with attempt(part_of(Path(self.orders.out), span)) as before:
                if before > RETRIES:  # Ray would begin it again without end
                    raise gone(f"the texts of {span.name}, rows {span.first + 1} to {span.stop},")
                cuts = self._answer(span)
        except OfframpError as error:
            found = Receipt(span.number, error=str(error), misuse=isinstance(error, UserError))
        else:
            found = Receipt(span.number, len(span), cuts, time.monotonic() - began, os.getpid())
        return asdict(found)

    def _answer(self, span: Span) -> int:
        if self.classifier is None:
            self.classifier = self._load()
        examples = list(span.examples())
        predictions: list[Answered] = []
        cuts = 0
        for found, cut in self.classifier.chunks(examples):
            predictions += found
            cuts += cut
        table = answers(span, examples, predictions, self.classifier.labels_.names, self.orders.keep_text)
        write(table, part_of(Path(self.orders.out), span))
        return cuts

    def _load(self) -> Classifier:
        classifier = Classifier.load(self.orders.model, self.orders.threads, **self.orders.parameters)
        if classifier.fingerprint() != self.orders.fingerprint:
            raise ModelError(
                f"The model in `{self.orders.model}` should be the same for every worker. One found another: is the "
                "folder on a disk that all of them share?"
            )
        return classifier


def answers(
    span: Span,
    examples: Sequence[Example],
    predictions: Sequence[Answered],
    labels: Sequence[str | int],
    keep_text: bool,
) -> Any:
    """A span's answers as an Arrow table, which has the same columns and types whatever the answers are."""
    import pyarrow as pa

    numbers = all(isinstance(label, int) for label in labels)
    plain, kind = (int, pa.int64()) if numbers else (str, pa.string())
    columns: dict[str, Any] = {
        "file": pa.array([span.name] * len(span), pa.string()),
        "row": pa.array(range(span.first + 1, span.stop + 1), pa.int64()),
    }
    if keep_text:
        columns["text"] = pa.array([example.text for example in examples], pa.large_string())
        columns["pair"] = pa.array([example.pair for example in examples], pa.large_string())
    sets = [[plain(label) for label in each.labels] for each in predictions if isinstance(each, SetPrediction)]
    single = [plain(each.label) for each in predictions if isinstance(each, Prediction)]
    if single:
        columns["label"] = pa.array(single, kind)
    else:
        columns["labels"] = pa.array(sets, pa.list_(kind))
    columns["probability"] = pa.array([prediction.probability for prediction in predictions], pa.float32())
    columns["depth"] = pa.array([prediction.depth for prediction in predictions], pa.int32())
    columns["certified"] = pa.array([prediction.certified for prediction in predictions], pa.bool_())
    return pa.table(columns)
