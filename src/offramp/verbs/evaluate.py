"""`offramp evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.verbs.models import check_there, load, read_for
from offramp.verbs.options import Depth, Json, LabelColumn, ModelFolder, PolicyName, TextColumns, Threads, Threshold
from offramp.verbs.printing import print_curve, print_evaluation, print_json, say
from offramp.verbs.reporting import check_map, write_report

if TYPE_CHECKING:
    from offramp.classifier import Classifier
    from offramp.data.sources import Table

FEW = 0.1
"""The share of texts seen in training that nothing is said of: data sets repeat some of their texts."""


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
    protocol: Annotated[
        bool, typer.Option("--protocol", help="Score the texts that the protocol of its training leaves for that.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score a model on labelled texts, under a policy and exit by exit."""
    check_there(model, data)

    from offramp.report.chance import accuracy_between

    classifier = load(model, policy, threshold, depth, threads)
    check_map(classifier, map_depth, report)
    table = read_for(classifier, data, text, label)
    if protocol:
        table = classifier.left_to_score(table)
    _warn_of_seen(classifier, table)
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


def _warn_of_seen(classifier: Classifier, table: Table) -> None:
    """Say how many of the texts the model was trained on, where that flatters it by more than a little."""
    from offramp.data.seen import unseen

    if classifier.seen_ is None:
        return
    _, known = unseen(classifier.seen_, table.examples)
    if known > FEW * len(table.examples):
        of_all = f"{known} of {len(table.examples)} texts"
        half = " --protocol leaves them out." if classifier.config_.protocol.split == "scl" else ""
        say(f"warning: {of_all} were seen in training, to learn from or to choose the epoch: they flatter.{half}")
