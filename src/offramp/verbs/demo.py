"""`offramp demo`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from offramp.config import DEFAULT_RECIPE
from offramp.verbs.models import load, read_for
from offramp.verbs.options import Json, Settings
from offramp.verbs.printing import print_evaluation, print_json
from offramp.verbs.reporting import write_report
from offramp.verbs.train import train_model
from offramp.verbs.wording import in_words


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and its report.")] = Path("offramp-demo"),
    recipe: Annotated[str, typer.Option(help="Named configuration.")] = DEFAULT_RECIPE,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Train on the built-in support-desk messages, calibrate, leave early on unseen ones, and write the report."""
    from offramp.demo import MAX_DROP, QUESTIONS, data_file

    result, _ = train_model(
        str(data_file("train")), out, str(data_file("validation")), recipe, None, None, None, None, settings or [],
        resume=False, overwrite=True,
    )  # fmt: skip
    classifier = load(out)
    certificate = classifier.calibrate(read_for(classifier, str(data_file("calibration")), None, None), MAX_DROP)
    classifier.save_certificate(out)
    test = read_for(classifier, str(data_file("test")), None, None)
    evaluation = classifier.evaluate(test)
    report = out / "report.html"
    write_report(report, "Support-desk routing: test messages", classifier, evaluation, out, test)
    answers = classifier.decide(list(QUESTIONS))
    if as_json:
        found = [{"text": q, **asdict(a)} for q, a in zip(QUESTIONS, answers, strict=True)]
        record = {"test": evaluation.to_json(), "certificate": json.loads(certificate.to_json()), "answers": found}
        print_json({"out": str(out), "report": str(report), **record})
        return
    for question, answer in zip(QUESTIONS, answers, strict=True):
        told = in_words(classifier, answer)
        typer.echo(f"{told:<15} {answer.probability:.2f}  depth {answer.depth}  {question}")
    typer.echo("")
    print_evaluation(evaluation)
    typer.echo(f"policy {certificate.policy}: {certificate.promises()}")
    typer.echo(f"\ntrained in {result.seconds:.0f} s; model {out}, report {report}")
