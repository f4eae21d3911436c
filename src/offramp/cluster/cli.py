"""What `offramp predict --ray` says: progress on standard error, then what was done on standard output."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from offramp.classifier import Classifier
from offramp.cluster.answerer import Receipt
from offramp.cluster.predict import Job, predict
from offramp.cluster.session import Cluster

STEPS = 20
"""Lines of progress, however many texts there are."""


def answer(job: Job, classifier: Classifier, cluster: Cluster, as_json: bool) -> None:
    """Answer the texts of a job."""
    shown = 0

    def told(_: Receipt, done: int, rows: int) -> None:
        nonlocal shown
        if done * STEPS // rows > shown:
            shown = done * STEPS // rows
            typer.echo(f"{done} of {rows} texts", err=True)

    found = predict(job, classifier, cluster, told)
    if as_json:
        typer.echo(json.dumps({"out": str(job.out), **asdict(found)}, ensure_ascii=False))
        return
    typer.echo(f"{found.rows} texts answered, {found.there} of them before\nanswers {job.out}")
