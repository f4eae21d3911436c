"""Breaks things until it has broken enough of them, and writes what came of it: `python -m tests.faults`.

Kills, damaged model folders, damaged runs and damaged data files; counts by kind and outcome go to
`results/faults.json`. Ends with 1 where anything was lost, loaded wrong, crashed or hung.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from tests.faults import files, folders
from tests.faults.kills import REFUSED, SAME, Kills
from tests.faults.small import Small
from tests.optimise.runs import Runs

RESULT = Path(__file__).resolve().parents[2] / "results" / "faults.json"
STRATEGIES = ("two-stage", "single", "two-stage", "alternating", "two-stage", "joint")  # the first has most to lose


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    for name, count in (("kills", 30), ("folders", 2000), ("runs", 40), ("files", 2000)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="offramp-faults-") as name:
        home = Path(name)
        small = Small(home / "small")
        found = {
            "files": _counted("damaged data files", files.damaged_files(asked.files, home / "files"), files.GOOD, bad),
            "folders": _counted(
                "damaged model folders", folders.damaged_folders(asked.folders, small, home), folders.GOOD, bad
            ),
            **_killed(asked.kills, asked.runs, small, home, bad),
        }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for line in bad:
        print(f"BAD  {line}")
    print(f"{len(bad)} bad; written to {asked.out}")
    return 1 if bad else 0


def _counted(
    what: str, outcomes: Iterable[tuple[int, str, str]], good: set[str], bad: list[str]
) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for number, (case, kind, outcome) in enumerate(outcomes, 1):
        counts.setdefault(kind, Counter())[outcome if outcome in good else "bad"] += 1
        if outcome not in good:
            bad.append(f"{what}, case {case}, {kind}: {outcome}")
        if number % 250 == 0:
            print(f"{number} {what}", flush=True)
    return {kind: dict(sorted(counts[kind].items())) for kind in sorted(counts)}


def _killed(kills: int, damaged: int, small: Small, home: Path, bad: list[str]) -> dict[str, dict[str, dict[str, int]]]:
    runs = Runs(home)
    places: dict[str, Counter[str]] = {}
    ends: dict[str, Counter[str]] = {}
    hurt: dict[str, Counter[str]] = {}
    try:
        harness, done = Kills(small, runs, home), 0
        for strategy, where, end in harness.chains(kills, STRATEGIES):
            places.setdefault(strategy, Counter()).update(where)
            ends.setdefault(strategy, Counter())[end if end == SAME else "bad"] += 1
            done += len(where)
            print(f"{done} kills; {strategy}: {', '.join(where)}; {end}", flush=True)
            bad += [] if end == SAME else [f"{strategy}, killed {where}: {end}"]
        for kind, end in harness.damaged(damaged, "two-stage"):
            hurt.setdefault(kind, Counter())[end if end in (SAME, REFUSED) else "bad"] += 1
            bad += [] if end in (SAME, REFUSED) else [f"damaged run, {kind}: {end}"]
    finally:
        runs.close()
    return {
        name: {kind: dict(sorted(counts.items())) for kind, counts in sorted(found.items())}
        for name, found in (("kills", places), ("resumed", ends), ("runs", hurt))
    }


if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    sys.exit(main())
