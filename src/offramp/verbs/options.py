"""Arguments and flags that several verbs have, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TextColumns = Annotated[
    list[str] | None, typer.Option("--text", help="Column that holds the text; twice for a pair of texts.")
]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column that holds the label.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Change a field: optimise.epochs=3.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
PolicyName = Annotated[
    str | None, typer.Option("--policy", help="When a text leaves: never, fixed, confidence, ... (docs/policies).")
]
Threshold = Annotated[float | None, typer.Option(help="Score of the policy from which a text leaves.")]
Threads = Annotated[int | None, typer.Option(help="Threads to run with; one per core unless given.")]
Depth = Annotated[int | None, typer.Option(help="`fixed`: the depth at which every text leaves.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `offramp train` or `export` wrote.")]
TrainedFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `offramp train` wrote.")]
