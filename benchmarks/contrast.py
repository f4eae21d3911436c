"""Memory and time of ACL with contrast batches of 256 texts in micro-batches of 16, over plain batches of 16.

Every stretch of training is a process of its own, which loads the model and trains for one epoch; another process only
loads. Batches of 256 taken whole are there for comparison. Rounds alternate, so that a slow moment of the machine meets
all of them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.config import load_recipe, override
from offramp.data.tokens import Tokens
from offramp.encoder.load import load_backbone
from offramp.exits.model import build
from offramp.objectives import objective
from offramp.optimise.loop import Loop

TEXTS, ROUNDS = 1024, 3
KINDS = {"cached": (16, 256), "small": (16, 0), "large": (256, 0)}
"""Names to `optimise.batch_size` and `optimise.contrast_batch`."""
LOAD = "load"


def peak() -> float:
    """The most memory this process ever held, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux `ru_maxrss` of a new process begins with what the process that started it held.
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # in bytes on macOS


def stretch(kind: str, scope: str, texts: int) -> dict[str, float]:
    """One epoch in this process, or for `load` none: its seconds and the peak of its memory."""
    data, labels = tokens(texts)
    size, contrast = KINDS.get(kind, (16, 0))
    settings = [f"optimise.batch_size={size}", f"optimise.contrast_batch={contrast}", f"alignment.scope={scope}"]
    config = override(load_recipe("acl"), [*settings, "optimise.epochs=1"])
    given = config.objective
    loss = objective(given.name, temperature=given.temperature, weight=given.weight, reduction=given.reduction)
    torch.manual_seed(0)
    model = build(load_backbone("minilm-l6"), labels.names)
    held = Tokens(data.ids[: data.offsets[8]], data.offsets[:9], data.pad, None, data.labels[:8])
    loop = Loop(model, loss, config, data, held, lambda truth, found: 0.0)
    start = time.perf_counter()
    if kind != LOAD:
        loop.run()
    return {"seconds": time.perf_counter() - start, "peak": peak()}


def apart(kind: str, scope: str, texts: int) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.contrast", kind, scope, str(texts)]
    root = Path(__file__).resolve().parents[1]
    found = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return measured


def run(texts: int = TEXTS, rounds: int = ROUNDS) -> list[Ratio]:
    ratios = []
    for scope in ("exact", "none"):
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in (LOAD, *KINDS)}
        for number in range(rounds):
            for kind, measured in found.items():
                if kind in ("cached", "small") or not number:  # the others are no part of a ratio
                    measured.append(apart(kind, scope, texts))
        held = {kind: median(one["peak"] for one in measured) for kind, measured in found.items()}
        memory = {f"{kind}, peak in megabytes": value for kind, value in held.items()}
        memory |= {f"{kind}, megabytes above load": held[kind] - held[LOAD] for kind in KINDS}
        memory["large over small"] = held["large"] / held["small"]
        memory["cached over small, both above load"] = (held["cached"] - held[LOAD]) / (held["small"] - held[LOAD])
        spent = {f"{kind}, seconds": median(one["seconds"] for one in found[kind]) for kind in KINDS}
        for what, part, goal, detail in (("peak memory", "peak", 1.5, memory), ("time", "seconds", 2.2, spent)):
            pairs = zip(found["cached"], found["small"], strict=True)
            ratios.append(
                Ratio(
                    f"{what} of an ACL epoch with contrast batches of 256 over batches of 16, `{scope}` alignment",
                    [ours[part] / theirs[part] for ours, theirs in pairs],
                    goal,
                    at_least=False,
                    detail=detail,
                )
            )
    return ratios


if __name__ == "__main__":
    print(json.dumps(stretch(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
