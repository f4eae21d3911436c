"""`offramp train`."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.config import DEFAULT_RECIPE
from offramp.errors import Interrupted
from offramp.verbs.options import Json, LabelColumn, Settings, TextColumns
from offramp.verbs.printing import console, print_json, say
from offramp.verbs.reporting import write_report

if TYPE_CHECKING:
    from offramp.optimise.loop import Result
    from offramp.report.tag_metrics import Evaluated


def train(
    data: Annotated[
        str, typer.Argument(metavar="TRAIN", help="CSV, TSV, JSONL or Parquet file, or a data set's name.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its report.")],
    validation: Annotated[str | None, typer.Option(help="Labelled texts that choose the best epoch.")] = None,
    recipe: Annotated[str, typer.Option(help="Named configuration; `offramp recipes` lists them.")] = DEFAULT_RECIPE,
    backbone: Annotated[
        str | None, typer.Option(help="minilm-l6, a Hugging Face name, a folder, or a model to go on from.")
    ] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    settings: Settings = None,
    track: Annotated[
        list[str] | None, typer.Option("--track", help="Tell tensorboard, wandb or trackio; more than once for more.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in --out.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace the model in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Fine-tune a classifier on labelled texts."""
    changed = [*(settings or []), *([f"optimise.track={json.dumps(track)}"] if track else [])]
    result, validated = train_model(
        data, out, validation, recipe, backbone, text, label, seed, changed, resume, overwrite
    )
    report = out / "report.html"
    if as_json:
        found: dict[str, Any] = {"out": str(out), "report": str(report), **asdict(result)}
        print_json(found | {"validation": validated.to_json()})
        return
    typer.echo(
        f"epoch {result.best_epoch} of {result.epochs} is kept: validation {result.metric} {result.score:.4f} "
        f"({validated.n} texts, {result.seconds:.0f} s)"
    )
    if len(result.by_exit) > 1:
        mean = sum(result.by_exit.values()) / len(result.by_exit)
        each = "  ".join(f"{depth}: {score:.4f}" for depth, score in result.by_exit.items())
        typer.echo(f"exits   {each}  mean {mean:.4f}")
    typer.echo(f"model   {out}\nreport  {report}")


def train_model(
    data: str,
    out: Path,
    validation: str | None,
    recipe: str,
    backbone: str | None,
    text: list[str] | None,
    label: str | None,
    seed: int | None,
    settings: list[str],
    resume: bool,
    overwrite: bool,
) -> tuple[Result, Evaluated]:
    """Train, save, validate, report."""
    from offramp.config import load_recipe, override
    from offramp.data.presence import check_data
    from offramp.exits.folder import vacant
    from offramp.runtime.onnx_folder import refuse

    extra = [f"data.text={json.dumps(text, ensure_ascii=False)}"] if text else []
    extra += [f"data.label={label}"] if label else []
    config = override(load_recipe(recipe), [*settings, *extra])
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first one writes
        vacant(out, resume, overwrite)
        refuse(out)
    check_data(data)
    check_data(validation)

    from offramp.classifier import Classifier
    from offramp.data.label_sets import warn_of_sets
    from offramp.data.sources import columns, read
    from offramp.data.tokens import TruncationWarning
    from offramp.optimise import processes
    from offramp.progress import ProgressBar

    first = processes.rank() == 0
    if not first:
        warnings.simplefilter("ignore")  # the first process warns
    how = columns(config.data)
    train_table = read(data, **how)
    if config.data.labels == "one":
        warn_of_sets(train_table.labels, config.data.label_separator)
    validation_table = read(validation, **how) if validation else None
    classifier = Classifier(recipe, backbone, [*settings, *extra], seed)
    try:
        with ProgressBar(console()) if first else nullcontext() as bar:
            result = classifier.fit_table(train_table, validation_table, out, resume, overwrite, bar)
    except Interrupted as error:
        if first:
            say("Stopped. The run goes on from here with --resume.")
        raise typer.Exit(128 + error.signal) from error
    finally:
        processes.end()
    if not first:
        raise typer.Exit
    if bar is not None and not bar.begun:
        say(f"The model in `{out}` was finished before: nothing was trained.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # training has counted these texts
        validated = classifier.evaluate(classifier.held_out_)
    write_report(out / "report.html", f"{out.name}: validation texts", classifier, validated, out, classifier.held_out_)
    return result, validated
