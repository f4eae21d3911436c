"""`offramp export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.errors import UserError, need
from offramp.verbs.models import check_there, load, read_for
from offramp.verbs.options import Json, LabelColumn, TextColumns, TrainedFolder
from offramp.verbs.printing import print_json

if TYPE_CHECKING:
    from offramp.classifier import Classifier


def export(
    model: TrainedFolder,
    out: Annotated[Path, typer.Option(help="Folder for the exported model.")],
    int8: Annotated[bool, typer.Option("--int8", help="Weights and activations of the layers in 8 bits.")] = False,
    data: Annotated[str | None, typer.Option(help="Labelled texts to compare accuracies on; needed by --int8.")] = None,
    max_drop: Annotated[float, typer.Option(help="Refuse int8 that loses more accuracy than this.")] = 0.01,
    exits: Annotated[
        str | None, typer.Option(help="Depths to export, as 2,4,6; those that the certificate reads unless given.")
    ] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX segments, for onnxruntime."""
    if int8 and data is None:
        raise UserError("`--int8` should come with `--data FILE`: labelled texts on which the loss is measured.")
    from offramp.exits.folder import check_empty

    check_there(model, data)
    check_empty(out)
    for package in ("onnxruntime", "onnx", "onnxscript"):
        need(package, "onnx")
    classifier = load(model)
    table = None if data is None else read_for(classifier, data, text, label)
    depths = _exits(classifier, exits)
    found = classifier.export(out, int8, depths, table, max_drop)
    if as_json:
        print_json({"out": str(out), **found})
        return
    for name, value in found.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        typer.echo(f"{name.replace('_', ' '):<16} {shown}")
    if exits is None and depths is not None:
        kept = ", ".join(map(str, sorted({*depths, classifier.engine_.depth})))
        typer.echo(f"Exits exported: {kept}, which are those that the certificate reads; `--exits` names others.")
    if classifier.certified_ is not None:
        typer.echo(f"The certificate is about the model in torch: run `offramp calibrate {out} DATA` again.")
    typer.echo(f"model {out}")


def _exits(classifier: Classifier, given: str | None) -> list[int] | None:
    """The depths that were named, or those that a certified policy reads, or all that were trained."""
    if given is not None:
        try:
            return [int(depth) for depth in given.split(",")]
        except ValueError as error:
            raise UserError(f"`--exits` should be depths such as 2,4,6. Found {given}.") from error
    certified = classifier.certified_
    return list(certified.certificate.exits) if certified and certified.certificate.thresholds else None
