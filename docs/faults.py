"""What came of everything that was broken on purpose, rendered from `results/faults.json`."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

RESULT = Path(__file__).resolve().parents[1] / "results" / "faults.json"
HEAD = """# Faults

What `make faults` broke on purpose, and what came of it. Runs of every strategy, on a random backbone of four layers,
are killed with SIGKILL, at random times and before random changes to files, and resumed. Copies of model folders, of
runs that were killed half-way and of data files are damaged and read. A case that loads something else than what was
written, that crashes, hangs, or ends with an error that is not offramp's is bad, and fails the command. The page is
rendered from `results/faults.json`, which the command writes; `tests/faults` holds the harness, and a shorter version
runs with the tests."""

Counts = dict[str, dict[str, int]]
PARTS = {
    "kills": ("Kills", "Where the kills came, by strategy."),
    "resumed": (
        "Resumed runs",
        "Each run was killed once or several times and then left to end. Its weights, its log and all else it wrote "
        "are compared with the run that nobody disturbed.",
    ),
    "runs": ("Damaged runs", "A run of two stages was killed, a file of its folder damaged, and the run resumed."),
    "folders": (
        "Damaged model folders",
        "A calibrated model, as trained and as exported. *Forged* means that the manifest was made to agree with the "
        "damage: such a folder may load, but with no other weights. A model whose certificate was deleted answers at "
        "full depth and says that it has none.",
    ),
    "files": (
        "Damaged data files",
        "A byte that changed within a text gives another text, which no reader can know; such a file is read.",
    ),
}


@cache
def document() -> str:
    """The whole page."""
    if not RESULT.is_file():
        return f"{HEAD}\n\nNot measured yet.\n"
    found: dict[str, Counts] = json.loads(RESULT.read_text("utf-8"))
    parts = [HEAD]
    for name, (title, about) in PARTS.items():
        parts += [f"## {title}", about, _table(found[name])]
    return "\n\n".join(parts) + "\n"


def _table(counts: Counts) -> str:
    columns = sorted({outcome for row in counts.values() for outcome in row})
    total: Counter[str] = Counter()
    lines = [f"| | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for kind, row in counts.items():
        total.update(row)
        lines.append(f"| {kind} | {' | '.join(str(row.get(column, 0)) for column in columns)} |")
    lines.append(f"| all {sum(total.values())} | {' | '.join(str(total[column]) for column in columns)} |")
    return "\n".join(lines)
