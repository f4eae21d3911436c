"""Runs the benchmarks: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import sys

from benchmarks import (
    alignment,
    cluster,
    contrast,
    early_exit,
    exits,
    guarantee,
    objectives,
    prediction,
    serving,
    stages,
    streaming,
    training,
)
from benchmarks.record import Ratio, write

BENCHMARKS = {
    "training": training.run,
    "alignment": alignment.run,
    "contrast": contrast.run,
    "objectives": objectives.run,
    "prediction": prediction.run,
    "stages": stages.run,
    "exits": exits.run,
    "early-exit": early_exit.run,
    "guarantee": guarantee.run,
    "streaming": streaming.run,
    "serving": serving.run,
    "cluster": cluster.run,
}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    met = True
    for name in names:
        ratios: list[Ratio] = BENCHMARKS[name]()
        write(name, ratios)
        for ratio in ratios:
            print(ratio.line(), flush=True)
            met = met and ratio.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
