"""`offramp evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from offramp.verbs.models import check_there, load, read_for
from offramp.verbs.options import Depth, Json, LabelColumn, ModelFolder, PolicyName, TextColumns, Threads, Threshold
from offramp.verbs.printing import print_curve, print_evaluation, print_json
from offramp.verbs.reporting import check_map, write_report


def evaluate(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Labelled texts.")],
    policy: PolicyName = None,
    threshold: Threshold = None,
    depth: Depth = None,
    threads: Threads = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    map_depth: Annotated[int | None, typer.Option("--map", help="Exit whose representations the page maps.")] = None,
    with_curve: Annotated[
        bool, typer.Option("--curve", help="Also run the policy at many thresholds: accuracy, layers, time per text.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score a model on labelled texts, under a policy and exit by exit."""
    check_there(model, data)

    from offramp.report.chance import accuracy_between

    classifier = load(model, policy, threshold, depth, threads)
    check_map(classifier, map_depth, report)
    table = read_for(classifier, data, text, label)
    curve = classifier.curve(table) if with_curve else None  # first, because it may be refused
    evaluation = classifier.evaluate(table)
    if report:
        title = f"{model.name} on {Path(data).name}"
        write_report(report, title, classifier, evaluation, model, table, map_depth, curve)
    certificate = classifier.certificate
    if as_json:
        found = {**evaluation.to_json(), "accuracy_between": accuracy_between(evaluation)}
        found |= {} if certificate is None else {"certificate": json.loads(certificate.to_json())}
        print_json(found | ({} if curve is None else {"curve": curve.to_json()}))
        return
    print_evaluation(evaluation)
    if certificate is not None:
        typer.echo(certificate.promises())
    if curve is not None:
        print_curve(curve)
