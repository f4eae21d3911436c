"""Memory of `offramp predict` while a million texts stream through it: late over early.

The texts are the built-in messages' words in random order, 1 to 12 of them; the model is a small training of the
default recipe, whose texts leave early. The command runs as a process of its own and is watched from outside.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.record import Ratio
from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file

TEXTS = 1_000_000


def run(texts: int = TEXTS) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        model, file = Path(name) / "model", Path(name) / "texts.txt"
        few = {"data.cap": 200, "optimise.epochs": 2, "stage2.epochs": 4}
        Classifier(settings=few).fit_table(read(data_file("train")), folder=model)
        _write(file, texts)
        command = [sys.executable, "-m", "offramp", "predict", str(model), str(file), "--threshold", "0.2"]
        held, answers = _watch(command)
    if answers != texts:
        raise SystemExit(f"There should be {texts} answers. Found {answers}.")
    # The first tenth loads the model and fills the allocator's pools.
    tenth = max(1, len(held) // 10)
    early, late = median(held[tenth : 3 * tenth]), median(held[-2 * tenth :])
    detail = {"texts": float(texts), "early, megabytes": early, "late, megabytes": late}
    return [Ratio("memory late over early while texts stream through `predict`", [late / early], 1.05, False, detail)]


def _write(file: Path, texts: int) -> None:
    words = sorted({word for example in read(data_file("train")).examples for word in example.text.split()})
    draw = random.Random(0)
    with file.open("w", encoding="utf-8") as handle:
        for _ in range(texts):
            handle.write(" ".join(draw.choices(words, k=draw.randint(1, 12))) + "\n")


def _watch(command: list[str]) -> tuple[list[float], int]:
    """The memory of a command, in megabytes, at every thousandth line it prints; and how many lines there were."""
    held, lines = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        status = Path(f"/proc/{process.pid}/status")
        for lines, _ in enumerate(process.stdout, 1):
            if lines % 1000 == 0 and status.exists():
                held += [int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if "VmRSS" in line]
    if process.returncode:
        raise SystemExit(f"The command ended with {process.returncode}.")
    return held, lines
