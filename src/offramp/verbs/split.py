"""`offramp split`: texts are put aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from offramp.verbs.options import Json, LabelColumn, TextColumns

PARTS = ("train", "held-out", "test")
"""The parts in the order in which they are told; the first has what the others did not take."""


def split(
    data: Annotated[str, typer.Argument(metavar="DATA", help="CSV, TSV, JSONL or Parquet file, or a data set's name.")],
    out: Annotated[Path, typer.Option(help="Folder for the parts.")],
    held_out: Annotated[float, typer.Option(help="Texts to calibrate on: a share, or from 1 on their number.")] = 0.2,
    test: Annotated[float, typer.Option(help="Texts to score on: a share, or their number.")] = 0.2,
    text: TextColumns = None,
    label: LabelColumn = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    settings: Annotated[list[str] | None, typer.Option("--set", help="How to read: data.labels=set.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace parts that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Divide labelled texts into those to train on, to calibrate on and to test on; no text stands in two parts."""
    from offramp.config import Config, override
    from offramp.data.presence import check_data
    from offramp.errors import UserError

    for name, size in (("--held-out", held_out), ("--test", test)):
        if size < 0 or (size > 1 and size != int(size)):
            raise UserError(f"`{name}` should be a share below 1 or a whole number of texts. Found {size:g}.")
    sizes = {name: size for name, size in (("test", test), ("held-out", held_out)) if size}
    how = override(Config(), settings or []).data
    check_data(data)
    there = sorted(file.name for name in (PARTS[0], *sizes) for file in out.glob(f"{name}.*"))
    if there and not overwrite:
        raise UserError(
            f"`{out}` should be free of parts. Found {', '.join(there)}. Choose another folder, or add --overwrite."
        )

    import torch

    from offramp.data.division import divide, write_parts
    from offramp.data.label_sets import warn_of_sets
    from offramp.data.seen import digests
    from offramp.data.sources import columns, read

    table = read(data, **columns(how, text, label))
    if how.labels == "one":
        warn_of_sets(table.labels, how.label_separator)
    found = divide(table, sizes, torch.Generator().manual_seed(seed), label or how.label)
    parts = {name: found[name] for name in PARTS if name in found}
    files = write_parts(data, table, parts, out)
    if as_json:
        typer.echo(json.dumps({name: {"file": str(files[name]), "texts": len(rows)} for name, rows in parts.items()}))
        return
    for name, rows in parts.items():
        typer.echo(f"{len(rows):>7} texts  {files[name]}")
    if "held-out" in parts:
        # As `calibrate` will count them: a text that stands there again is no further evidence.
        different = len(digests(table.examples[row] for row in parts["held-out"]))
        typer.echo(_promised(different, how.labels), err=True)


def _promised(texts: int, labels: str) -> str:
    """What `calibrate` can make of so many texts: before a model is trained, another division costs nothing."""
    from offramp.policies.calibrate import FINALISTS
    from offramp.policies.terms import Terms, least_risk, texts_needed

    point = Terms(epsilon=0.01)
    many, goal = texts_needed(point, FINALISTS), _harm(labels, 0.01)
    if texts >= many:
        return f"{texts} held-out texts can certify that early exits {goal} or less."
    least, one = (least_risk(texts, point, tried) for tried in (FINALISTS, 1))
    if least >= 1:
        return f"{texts} held-out texts can certify nothing; {many} could, that early exits {goal} or less."
    return (
        f"{texts} held-out texts can certify at best that early exits {_harm(labels, least)} or less "
        f"(`calibrate --max-drop {least:g}`), {100 * one:g} with one `--policy`. To get to 1 takes {many} texts: "
        "`--held-out` says how many. `--max-disagreement` takes texts without labels."
    )


def _harm(labels: str, share: float) -> str:
    """What leaving early may do, where a text has one label, a set of them, or words with tags."""
    found = f"{100 * share:g}"
    if labels == "one":
        return f"lose {found} point{'s' * (found != '1')} of accuracy"
    return f"make {'a decision about a label' if labels == 'set' else 'a tag'} wrong in {found} % of the texts"
