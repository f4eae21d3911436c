"""`offramp calibrate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from offramp.verbs.models import check_there, load, read_for
from offramp.verbs.options import Json, LabelColumn, ModelFolder, TextColumns, Threads
from offramp.verbs.printing import print_json


def calibrate(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Held-out texts, labelled unless it is a disagreement.")],
    max_drop: Annotated[float | None, typer.Option(help="Most accuracy that may be lost; 0.01 unless given.")] = None,
    max_disagreement: Annotated[
        float | None, typer.Option(help="Largest share of answers that may differ from the full model's.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the promise is.")] = 0.95,
    budget_layers: Annotated[float | None, typer.Option(help="Most layers to be run, on average.")] = None,
    policy: Annotated[str, typer.Option(help="Policy whose thresholds are chosen; `auto` tries all.")] = "auto",
    threads: Threads = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    as_json: Json = False,
) -> None:
    """Choose when texts may leave, with a guarantee, from texts the model was not trained on."""
    from offramp.lock import held

    check_there(model, data)
    classifier = load(model, threads=threads, certificate=False)
    table = read_for(classifier, data, text, label, labels_required=max_disagreement is None)
    with held(model):
        found = classifier.calibrate(table, max_drop, max_disagreement, confidence, budget_layers, policy)
        classifier.save_certificate(model)
    if as_json:
        print_json(json.loads(found.to_json()))
        return
    limits = ", ".join(f"{depth}: {threshold:.4g}" for depth, threshold in found.thresholds.items())
    typer.echo(f"policy  {found.policy}" + (f", thresholds {limits}" if limits else ""))
    typer.echo(found.promises())
