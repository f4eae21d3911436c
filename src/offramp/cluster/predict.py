"""`offramp predict --ray`: texts through Ray Data, answers as Parquet.

Spans of rows are the items of a Ray data set; workers read, answer and write, and only receipts come back. A span whose
worker is lost is answered again by another one. Nothing is lost and nothing repeated: a span has one part of one name,
and the folder counts as finished when the rows of all parts have been counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from offramp.classifier import Classifier
from offramp.cluster import parts
from offramp.cluster.answerer import Answerer, Orders, Receipt
from offramp.cluster.session import Cluster, connected, gone
from offramp.cluster.texts import File, Span, files_of, spans_of
from offramp.errors import ClusterError, UserError
from offramp.lock import held

BLOCK = 4096
"""Texts of a span unless told otherwise: what is answered again when a worker is lost."""


@dataclass(frozen=True)
class Job:
    """Texts, a model that answers them, and where the answers go."""

    model: Path
    source: str  # whatever `offramp predict` reads
    out: Path
    text: tuple[str, ...] = ()  # columns; empty: those the model was trained with, or the usual ones
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of the policy, as `Classifier` takes them
    keep_text: bool = False
    block: int = BLOCK
    format: str | None = None  # of the source, where its name does not say so


@dataclass(frozen=True)
class Answered:
    """What a command did to a folder of answers."""

    rows: int
    parts: int
    there: int  # rows that an earlier command had answered


Told = Callable[[Receipt, int, int], None]
"""Hears of every span in its turn, of how many rows are answered by then, and of how many there are."""


def predict(job: Job, classifier: Classifier, cluster: Cluster, told: Told = lambda *_: None) -> Answered:
    """Answer what is missing; `classifier` is the job's model, loaded here."""
    classifier.make_policy()  # refuses what does not go together
    with held(job.out):
        files = files_of(job.source, job.text or classifier.config_.data.text, job.out, job.format)
        spans = spans_of(files, job.block)
        parts.begin(job.out, _facts(job, classifier, files))
        missing = [span for span in spans if not parts.whole(job.out, span)]
        rows = sum(map(len, spans))
        there = rows - sum(map(len, missing))
        answered = cuts = 0
        if missing:
            orders = Orders(
                str(job.model.resolve()),
                classifier.fingerprint(),
                job.parameters,
                cluster.threads,
                str(job.out.resolve()),
                job.keep_text,
            )
            for receipt in receipts(cluster, orders, missing):
                if receipt.misuse:
                    parts.clear(job.out)  # texts that are mended are other texts
                    raise UserError(receipt.error)
                if receipt.error:
                    raise ClusterError(receipt.error)
                answered, cuts = answered + receipt.rows, cuts + receipt.cuts
                told(receipt, there + answered, rows)
        parts.finish(job.out, spans)
    classifier.warn_of_cuts(cuts, answered)
    return Answered(rows, len(spans), there)


def _facts(job: Job, classifier: Classifier, files: Sequence[File]) -> dict[str, Any]:
    """What a folder of answers is: it holds those of one job only."""
    return {
        "model": classifier.fingerprint(),
        "policy": classifier.policy_in_force(),
        "texts": [{"name": file.name, "rows": file.rows, "version": file.version} for file in files],
        "columns": sorted({column for file in files for column in file.columns}),
        "block": job.block,
        "keep_text": job.keep_text,
    }


def receipts(
    cluster: Cluster, orders: Orders, spans: Sequence[Span], worker: type[Answerer] = Answerer
) -> Iterator[Receipt]:
    """The receipts in the order of the texts, so that the first bad row is the first in the files."""
    with connected(cluster) as session:
        from ray import data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [asdict(span) for span in spans]
        pool = data.ActorPoolStrategy(size=min(session.workers, len(items)), max_tasks_in_flight_per_actor=2)
        answered = data.from_items(items, override_num_blocks=len(items)).map(
            worker, fn_constructor_args=(orders,), compute=pool, num_cpus=session.threads
        )
        context = answered.context
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        try:
            for row in answered.iter_rows():
                yield Receipt(**row)
        except session.ray.exceptions.RayActorError as error:
            raise gone("some texts") from error
