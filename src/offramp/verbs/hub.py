"""`offramp card` and `offramp push`: a model goes to a hub."""

from __future__ import annotations

from typing import Annotated

import typer

from offramp.verbs.options import LabelColumn, ModelFolder, TextColumns


def card(
    model: ModelFolder,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]", help="Labelled texts whose scores it tells.")] = None,
    with_curve: Annotated[bool, typer.Option("--curve", help="Also tell accuracy, layers and time on DATA.")] = False,
    text: TextColumns = None,
    label: LabelColumn = None,
) -> None:
    """Write the model card, README.md, into a model folder."""
    from offramp.data.presence import check_data
    from offramp.errors import UserError
    from offramp.runtime.onnx_folder import check_any

    if with_curve and data is None:
        raise UserError("`--curve` should come with DATA: labelled texts on which it is measured.")
    check_any(model)
    check_data(data)

    from offramp.classifier import Classifier
    from offramp.data.sources import columns, read
    from offramp.model_card import write_card

    classifier = Classifier.load(model)
    if data is None:
        typer.echo(f"card {write_card(model, classifier)}")
        return
    table = read(data, **columns(classifier.config_.data, text, label))
    curve = classifier.curve(table) if with_curve else None
    typer.echo(f"card {write_card(model, classifier, table.name, classifier.evaluate(table), curve)}")


def push(
    model: ModelFolder,
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="OWNER/NAME on the Hugging Face hub.")],
    private: Annotated[bool, typer.Option("--private", help="Let nobody else see a new repository.")] = False,
) -> None:
    """Upload a model folder with its card to the Hugging Face hub."""
    from offramp.exits.folder import check_model

    check_model(model)

    from offramp.hub import push as upload

    typer.echo(upload(model, repository, private))
