"""`offramp serve` against a plain FastAPI handler around Hugging Face's pipeline, over HTTP on one machine.

The default recipe's model of TREC, the same weights in all servers, each a process of its own; texts are those of the
test, one per request. Rounds alternate between the servers. Ours answers under its certificate, in torch and exported.

    load         32 clients, each of which sends its next text when the last is answered
    overload     requests of 32 texts, ten times as many as 8 such clients are answered; a queue of 256 texts
    memory       of the server, while 20,000 requests are answered
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.early_exit import DROP, TASKS, model_of, texts_of
from benchmarks.loopback import Seen, closed_loop, one, open_loop
from benchmarks.record import Ratio
from offramp import Classifier

CLIENTS, REQUESTS, ROUNDS = 32, 2000, 3
QUEUE, EACH, TIMES, SECONDS = 256, 32, 10, 8.0
MANY = 20_000
BATCH = 32
Served = tuple[int, subprocess.Popen[str]]
"""The port of a server, and its process."""
PLAIN, TORCH, ONNX = "plain FastAPI, pipeline", "offramp serve, torch", "offramp serve, onnx"


def run() -> list[Ratio]:
    _, calibration, test = texts_of(TASKS[0])
    texts, home = [example.text for example in test.examples], model_of(TASKS[0])
    with tempfile.TemporaryDirectory() as name:
        folders = {TORCH: Path(name) / "torch", ONNX: Path(name) / "onnx"}
        Classifier.load(home).save(folders[TORCH])
        Classifier.load(home).export(folders[ONNX])
        for folder in folders.values():
            classifier = Classifier.load(folder, certificate=False)
            classifier.calibrate(calibration, max_drop=DROP)
            classifier.save_certificate(folder)
        found = _load(home, folders, texts)
        best = max(folders, key=lambda way: median(seen.throughput for seen in found[way]))
        ratios = [*_compared(found), *_overload(folders[best], texts), _memory(folders[best], texts)]
    for ratio in ratios:
        print(ratio.line(), flush=True)
    return ratios


def _load(home: Path, folders: dict[str, Path], texts: list[str]) -> dict[str, list[Seen]]:
    """What clients saw of every server, by round. All servers are up, and the others idle."""
    found: dict[str, list[Seen]] = {PLAIN: [], TORCH: [], ONNX: []}
    with _plain(home) as plain, _ours(folders[TORCH]) as torch, _ours(folders[ONNX]) as onnx:
        ports = {PLAIN: plain[0], TORCH: torch[0], ONNX: onnx[0]}
        for port in ports.values():
            closed_loop(port, texts, CLIENTS, REQUESTS // 10)  # to warm up
        for _ in range(ROUNDS):
            for way, port in ports.items():
                # The plain one is slow: fewer requests give as long a round.
                found[way].append(closed_loop(port, texts, CLIENTS, REQUESTS // (4 if way == PLAIN else 1)))
    return found


def _compared(found: dict[str, list[Seen]]) -> list[Ratio]:
    detail = {}
    for way, rounds in found.items():
        detail[f"{way}: texts per second"] = median(seen.throughput for seen in rounds)
        detail[f"{way}: p95, ms"] = 1000 * median(seen.p95 for seen in rounds)
        detail[f"{way}: failed"] = float(sum(seen.failed for seen in rounds))
    ratios = []
    for way in (TORCH, ONNX):
        pairs = list(zip(found[way], found[PLAIN], strict=True))
        faster = [ours.throughput / plain.throughput for ours, plain in pairs]
        sooner = [ours.p95 / plain.p95 for ours, plain in pairs]
        ratios += [
            Ratio(f"throughput of {way}, over {PLAIN}, {CLIENTS} clients", faster, 2.5, True, detail),
            Ratio(f"p95 of {way}, over {PLAIN}, {CLIENTS} clients", sooner, 1.0, False, detail),
            Ratio(f"failed requests of {way}", [float(seen.failed) for seen in found[way]], 0.0, False, detail),
        ]
    return ratios


def _overload(folder: Path, texts: list[str]) -> list[Ratio]:
    """Ten times what the server can answer, for a while, and then a request as ever."""
    with _ours(folder, "--queue", str(QUEUE)) as (port, _):
        # As many texts at a time as the queue holds at most.
        capacity = max(closed_loop(port, texts, QUEUE // EACH, REQUESTS // EACH, EACH).throughput for _ in range(2))
        seen = open_loop(port, texts, EACH, TIMES * capacity / EACH, SECONDS)
        status, begun = 0, time.perf_counter()
        while status != 200:
            status, _ = one(port, texts[0])
        recovery = time.perf_counter() - begun
    refused, other = seen.statuses[503], seen.statuses.total() - seen.statuses[503] - seen.statuses[200]
    offered = EACH * seen.statuses.total() / seen.took / capacity
    bound = (QUEUE + BATCH) / capacity
    detail = {
        "capacity, texts per second": capacity,
        "offered, times the capacity": offered,
        "answered, texts per second": seen.throughput,
        "requests answered": float(seen.statuses[200]),
        "requests refused with 503": float(refused),
        "p95 of what was answered, ms": 1000 * seen.p95,
        "queue and a batch at capacity, ms": 1000 * bound,
    }
    return [
        Ratio("p95 under overload, over queue and a batch at capacity", [seen.p95 / bound], 2.0, False, detail),
        Ratio("requests under overload that ended otherwise than with 200 or 503", [float(other)], 0.0, False, detail),
        Ratio("share of requests refused under overload", [refused / seen.statuses.total()], 0.5, True, detail),
        Ratio("seconds from overload to an answer", [recovery], 5.0, False, detail),
    ]


def _memory(folder: Path, texts: list[str]) -> Ratio:
    held = []
    with _ours(folder) as (port, process):
        for _ in range(20):
            closed_loop(port, texts, CLIENTS, MANY // 20)
            status = Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines()
            held += [int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS")]
    early, late = median(held[2:6]), median(held[-4:])
    detail = {"requests": float(MANY), "early, megabytes": early, "late, megabytes": late}
    return Ratio("memory of the server late over early, over many requests", [late / early], 1.02, False, detail)


def _ours(folder: Path, *more: str) -> AbstractContextManager[Served]:
    return _started("offramp", "serve", str(folder), "--port", "0", *more)


def _plain(folder: Path) -> AbstractContextManager[Served]:
    return _started("benchmarks.plain_server", str(folder))


@contextmanager
def _started(*command: str) -> Iterator[Served]:
    """A server as a process of its own, and its port."""
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            if not said.startswith("Serving at"):
                raise SystemExit(f"`{' '.join(command)}` should serve. It said: {said or 'nothing'}")
            yield int(said.rsplit(":", 1)[1]), process
        finally:
            process.terminate()
