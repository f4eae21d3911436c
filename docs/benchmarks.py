"""What the benchmarks measured, rendered from their results: a page, and the lines about speed for the README."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.__main__ import BENCHMARKS
from benchmarks.record import digits

RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks"
HEAD = """# Benchmarks

Ratios against peers, measured in one run on one machine: times of another machine differ, ratios less so. A number is
the median of its rounds, with the smallest and the largest. `python -m benchmarks NAME` measures one anew and writes
the JSON in `results/benchmarks/` from which this page is rendered; `make bench` measures all, in hours. Those on
TREC-6, SST-2 and BANKING77 read the data sets of the folder `OFFRAMP_DATA` ([Tasks](tasks.md)).

`early-exit`, `guarantee`, `serving`, `streaming` and `cluster` were measured with the `mha` exits that the default
recipe had before its [`residual`](exits/residual.md) ones; `stages` with those it has."""

Row = Mapping[str, Any]


@cache
def found() -> dict[str, dict[str, Any]]:
    """Every benchmark that has been measured, in the order of the command."""
    files = {name: RESULTS / f"{name}.json" for name in BENCHMARKS}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.is_file()}


@cache
def document() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, each in found().items():
        machine = each["machine"]
        told = f"torch {machine['torch']}, transformers {machine['transformers']}, Python {machine['python']}"
        doc = inspect.getdoc(inspect.getmodule(BENCHMARKS[name])) or ""
        parts += [f"## {name}", doc, _ratios(each["ratios"]), *_details(each["ratios"])]
        parts.append(f"{machine['processor']}, {machine['threads']} threads, {told}.")
    waiting = [name for name in BENCHMARKS if name not in found()]
    if waiting:
        parts.append(f"## Not measured yet\n\n{', '.join(f'`{name}`' for name in waiting)}.")
    return "\n\n".join(parts) + "\n"


def speed() -> str:
    """Early exit in a few lines: what is lost, and how much faster than what."""
    if "early-exit" not in found():
        return "Not measured yet."
    return _ratios(found()["early-exit"]["ratios"])


def _ratios(rows: list[Row]) -> str:
    lines = ["| measured | | goal | |", "| --- | --- | --- | --- |"]
    for row in rows:
        spread = f" ({min(row['rounds']):.3g} to {max(row['rounds']):.3g})" if len(row["rounds"]) > 1 else ""
        goal = f"at {'least' if row['at_least'] else 'most'} {row['goal']:.3g}"
        lines.append(
            f"| {row['what']} | {digits(row['value'])}{spread} | {goal} | {'met' if row['met'] else _missed(row)} |"
        )
    return "\n".join(lines)


def _missed(row: Row) -> str:
    """That a goal was missed, and what the layers that texts run would allow, where that is known."""
    ideal = [value for name, value in row["detail"].items() if name.endswith("ideal from layers by token")]
    return f"**missed**; {ideal[0]:.3g} if exits cost nothing" if ideal else "**missed**"


def _details(rows: list[Row]) -> list[str]:
    """What else was measured, a table for each: ways to do it and what each gave, or plain numbers."""
    told: list[str] = []
    for row in rows:
        if row["detail"] and row["detail"] not in [other["detail"] for other in rows[: rows.index(row)]]:
            table = _by_way(row["detail"]) if all(": " in name for name in row["detail"]) else _plain(row["detail"])
            told.append(f"Beside *{row['what']}*:\n\n{table}")
    return told


def _plain(detail: Mapping[str, float]) -> str:
    lines = [f"| {name} | {value:.4g} |" for name, value in detail.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _by_way(detail: Mapping[str, float]) -> str:
    split = {tuple(name.rsplit(": ", 1)): value for name, value in detail.items()}
    ways, columns = (list(dict.fromkeys(name[place] for name in split)) for place in (0, 1))
    lines = [f"| | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for way in ways:
        cells = [f"{split[way, column]:.4g}" if (way, column) in split else "" for column in columns]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)
