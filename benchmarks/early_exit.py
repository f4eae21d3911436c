"""Early exit against what a user would pick instead: throughput, time of one text, accuracy; tokenisation included.

On each data set the default recipe is trained once (kept in `benchmarks/models`, which is not committed) and calibrated
on texts it was not trained on; everything then answers the same test texts with the same weights. Rounds alternate, so
that a slow moment of the machine meets all of them.

    pipeline, 1 and 32    Hugging Face's pipeline around the model, texts as they come
    sorted                the model in torch, batches of 32 texts of like length
    onnx, onnx int8       onnxruntime at full depth, the same batches
    first 3               the model cut after 3 layers, in onnxruntime; then cut after each layer, beside the best
    one by one            patience, one text at a time, as PABEE does it
    ours ...              early exit with certified thresholds, per engine
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
from transformers import pipeline

from benchmarks.record import Ratio
from offramp import Classifier
from offramp.data.sources import Table, read
from offramp.types import Example

ROOT = Path(__file__).resolve().parent
ROUNDS, ALONE = 3, 100
DROP = 0.01

Answer = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Task:
    """A data set: how it is cut into texts to train on and texts to calibrate on."""

    name: str
    calibration: int
    training: int = 0  # at most this many texts
    per_label: int = 0  # at most this many of each label


TASKS = (Task("trec6", 1000), Task("sst2", 2000, training=8000), Task("banking77", 2000, per_label=40))


def run() -> list[Ratio]:
    ratios: list[Ratio] = []
    for task in TASKS:
        ratios += _task(task)
    return ratios


def _task(task: Task) -> list[Ratio]:
    train, calibration, test = _texts(task)
    home = ROOT / "models" / task.name
    if not (home / "offramp.json").exists():
        Classifier(seed=0).fit_table(train, folder=home, overwrite=True)
    with tempfile.TemporaryDirectory() as name:
        methods = _methods(home, Path(name), calibration)
        texts = [example.text for example in test.examples]
        labels = [str(label) for label in test.labels]
        found = _measure(methods, texts, labels)
        best = min((way for way in found if way.startswith("ours")), key=lambda way: median(found[way].seconds))
        cuts = _cuts(home, Path(name), int8="int8" in best)
        against = _measure({best: methods[best], **cuts}, texts, labels)
    return _ratios(task, best, found, against)


def _texts(task: Task) -> tuple[Table, Table, Table]:
    """Training, calibration and test texts."""
    folder = Path(os.environ.get("OFFRAMP_DATA") or ROOT.parents[1] / "shared" / "data") / task.name
    whole, test = read(str(folder / "train.parquet")), read(str(folder / "test.parquet"))
    order = np.random.default_rng(0).permutation(len(whole.examples)).tolist()
    seen: Counter[object] = Counter()
    learn: list[Example] = []
    rest: list[Example] = []
    for row in order:
        example = whole.examples[row]
        spare = not task.per_label and not task.training and len(rest) < task.calibration
        full = bool(task.training and len(learn) >= task.training)
        full |= bool(task.per_label and seen[example.label] >= task.per_label)
        (rest if full or spare else learn).append(example)
        seen[example.label] += not (full or spare)
    parts = (learn, rest[: task.calibration])
    learned, held = (replace(whole, examples=part, numbers=()) for part in parts)
    return learned, held, test


def _methods(home: Path, folder: Path, calibration: Table) -> dict[str, Answer]:
    """Every way to answer texts, by name."""
    full = Classifier.load(home, policy="never", batch_size=32)
    ours = Classifier.load(home, batch_size=32)
    certificate = ours.calibrate(calibration, max_drop=DROP)
    exits = [*certificate.exits, full.engine_.depth]
    methods: dict[str, Answer] = {
        "pipeline, 1": _pipeline(home, 1),
        "pipeline, 32": _pipeline(home, 32),
        "sorted": _classifier(full),
        "one by one": _one_by_one(Classifier.load(home, policy="patience", threshold=2.0)),
        "ours, torch": _classifier(ours),
    }
    for precision, int8 in (("onnx", False), ("onnx int8", True)):
        whole, cut, parts = (folder / f"{part}-{int8}" for part in ("whole", "cut", "parts"))
        full.export(whole, int8, [full.engine_.depth])
        full.export(cut, int8, [full.engine_.depth // 2])
        full.export(parts, int8, exits)
        methods[precision] = _classifier(Classifier.load(whole, policy="never", batch_size=32))
        methods[f"first 3, {precision}"] = _classifier(
            Classifier.load(cut, depth=full.engine_.depth // 2, batch_size=32)
        )
        early = Classifier.load(parts, batch_size=32)
        early.calibrate(calibration, max_drop=DROP)
        methods[f"ours, {precision}"] = _classifier(early)
    return methods


def _cuts(home: Path, folder: Path, int8: bool) -> dict[str, Answer]:
    """The model cut after each of its layers, the last included, in onnxruntime."""
    full = Classifier.load(home)
    found = {}
    for depth in range(1, full.engine_.depth + 1):
        full.export(folder / f"first-{depth}", int8, [depth])
        found[f"first {depth}"] = _classifier(Classifier.load(folder / f"first-{depth}", depth=depth, batch_size=32))
    return found


def _classifier(classifier: Classifier) -> Answer:
    return lambda texts: [str(label) for label in classifier.predict(list(texts))]


def _one_by_one(classifier: Classifier) -> Answer:
    return lambda texts: [str(classifier.predict([text])[0]) for text in texts]


def _pipeline(home: Path, size: int) -> Answer:
    import offramp.exits.model  # noqa: F401  makes the model known to Hugging Face

    answer = pipeline("text-classification", model=str(home), tokenizer=str(home), device="cpu", batch_size=size)
    return lambda texts: [found["label"] for found in answer(list(texts), truncation=True)]


@dataclass
class Found:
    """What one way to answer gave."""

    seconds: list[float]  # per round, of all texts
    alone: list[float]  # of one text each
    accuracy: float


def _measure(methods: dict[str, Answer], texts: list[str], labels: list[str]) -> dict[str, Found]:
    found = {name: Found([], [], 0.0) for name in methods}
    for name, answer in methods.items():  # a warm-up, and what they answer
        found[name].accuracy = mean(said == label for said, label in zip(answer(texts), labels, strict=True))
    for _ in range(ROUNDS):
        for name, answer in methods.items():
            start = time.perf_counter()
            answer(texts)
            found[name].seconds.append(time.perf_counter() - start)
    for text in texts[:ALONE]:
        for name, answer in methods.items():
            start = time.perf_counter()
            answer([text])
            found[name].alone.append(time.perf_counter() - start)
    return found


def _ratios(task: Task, best: str, found: dict[str, Found], against: dict[str, Found]) -> list[Ratio]:
    precision = "onnx int8" if "int8" in best else "onnx"
    lost = found["sorted"].accuracy - found[best].accuracy
    equal = [name for name, cut in against.items() if cut.accuracy >= against[best].accuracy and name != best]
    # Cut after the last layer it is the full model, which may be the only one as good.
    rival = min(equal or [f"first {len(against) - 1}"], key=lambda name: median(against[name].seconds))

    def faster(other: str, among: dict[str, Found] = found) -> list[float]:
        return [theirs / mine for theirs, mine in zip(among[other].seconds, among[best].seconds, strict=True)]

    def ratio(what: str, rounds: list[float], goal: float) -> Ratio:
        return Ratio(f"{task.name}: throughput of `{best}` over {what}", rounds, goal, at_least=True)

    return [
        Ratio(f"{task.name}: points of accuracy lost by `{best}`", [100 * lost], 1.0, False, _detail(found)),
        ratio("the pipeline at batch 1", faster("pipeline, 1"), 5.0),
        ratio("the pipeline at batch 32", faster("pipeline, 32"), 3.0),
        ratio(f"`{precision}` at full depth", faster(precision), 2.0),
        replace(
            ratio(f"the fastest cut model that is as good, `{rival}`", faster(rival, against), 1.0),
            detail=_detail(against),
        ),
    ]


def _detail(found: dict[str, Found]) -> dict[str, float]:
    detail: dict[str, float] = {}
    for name, one in found.items():
        detail[f"{name}: accuracy"] = one.accuracy
        detail[f"{name}: seconds"] = median(one.seconds)
        detail[f"{name}: p50 alone, ms"] = 1000 * float(np.percentile(one.alone, 50))
        detail[f"{name}: p95 alone, ms"] = 1000 * float(np.percentile(one.alone, 95))
    return detail
