"""`offramp predict`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from offramp.cluster.options import Address, OnRay, Workers, cluster_of
from offramp.errors import UserError
from offramp.verbs.models import check_there, load
from offramp.verbs.options import Depth, Json, ModelFolder, PolicyName, TextColumns, Threads, Threshold
from offramp.verbs.printing import print_json
from offramp.verbs.wording import in_words


class Format(StrEnum):
    """What lines hold: the names of `offramp.data.rows.FORMATS`, which are not imported for `--help`."""

    TEXT = "text"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


def predict(
    model: ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="One text per line, or CSV, TSV, JSONL, Parquet.")
    ] = "-",
    policy: PolicyName = None,
    threshold: Threshold = None,
    depth: Depth = None,
    threads: Threads = None,
    text: TextColumns = None,
    format: Annotated[
        Format | None,
        typer.Option(help="What FILE or standard input holds; as its suffix says, or text, unless given."),
    ] = None,
    on_ray: OnRay = False,
    address: Address = None,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for texts and answers: .csv, .tsv or .jsonl; with `--ray`, a folder of Parquet files."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="`--ray`: the texts beside their answers.")] = False,
    block: Annotated[int | None, typer.Option(help="`--ray`: texts that a worker answers and then writes.")] = None,
    as_json: Json = False,
) -> None:
    """Answer texts, in their order, as a stream; or on Ray, into a folder that a killed command goes on with."""
    from offramp.answers import check_file, write_answers
    from offramp.data.presence import check_texts

    only = {"--keep-text": keep_text, "--block": block}
    cluster = cluster_of(on_ray, address, workers, threads, only)
    if cluster is not None and out is None:
        raise UserError("`--ray` should come with `--out DIR`: a folder for the answers.")
    if overwrite and (cluster is not None or out is None):
        raise UserError("`--overwrite` should come with `--out FILE` and without `--ray`, which goes on with a folder.")
    if cluster is None and out is not None:
        check_file(out, overwrite)
    check_there(model)
    check_texts(file)
    classifier = load(model, policy, threshold, depth, threads)
    if cluster is not None and classifier.tags_:
        raise UserError("`--ray` should be asked of a model that gives labels to texts. Found one that tags words.")
    if cluster is not None and out is not None:
        from offramp.cluster.cli import answer
        from offramp.cluster.predict import BLOCK, Job

        chosen = {"policy": policy, "threshold": threshold, "depth": depth}
        size = BLOCK if block is None else block
        job = Job(model, file, out, tuple(text or ()), chosen, keep_text, size, format)
        answer(job, classifier, cluster, as_json)
        return
    from offramp.data.incoming import Incoming, as_they_come
    from offramp.data.sources import stream

    piped = Incoming(sys.stdin.buffer) if file == "-" else None
    source = Path(file) if piped is None else piped
    examples = stream(source, text=text or classifier.config_.data.text, tags=classifier.tags_, format=format)
    if out is not None:
        rows = write_answers(out, examples, classifier.stream)
        if as_json:
            print_json({"out": str(out), "rows": rows})
        else:
            typer.echo(f"{rows} texts answered\nanswers {out}")
        return
    for found in classifier.stream(examples if piped is None else as_they_come(examples, piped)):
        if as_json:
            print_json(asdict(found))
        else:
            typer.echo(f"{in_words(classifier, found)}\t{found.probability:.4f}\t{found.depth}")
