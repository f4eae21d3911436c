"""Early exit against what a user would pick instead: throughput, time of one text, accuracy; tokenisation included.

On each data set the default recipe is trained once (kept in `benchmarks/models`, which is not committed) and calibrated
on texts it was not trained on; everything then answers the same test texts with the same weights. Rounds alternate, so
that a slow moment of the machine meets all of them.

    pipeline, 1 and 32    Hugging Face's pipeline around the model, texts as they come
    sorted                the model in torch, batches of 32 texts of like length, a core each
    onnx, onnx int8       onnxruntime at full depth, the same batches, a core each
    first 3               the model cut after 3 layers, in onnxruntime; then cut after each layer, the last included,
                          beside the best, for more rounds: these are nearest to it
    one by one            patience, one text at a time, as PABEE does it
    ours ...              early exit for a loss of at most about a point, per engine
    certified ...         early exit with the default certificate: at most a point, with 95 % confidence

A certificate counts the texts that an early exit answers worse, not those that it answers better, and is right in 95
of 100 draws of the calibration texts: it loses far less than a point. `ours` spends the point: its thresholds as likely
as not harm at most a share of the texts, and the share is the largest with which the calibration texts, each answered
by thresholds that were chosen without it, lose at most a point, a standard error added and better answers counted.
Test texts have no part in that.

How fast early exit can be follows from the layers that are run. Long texts stay longer than short ones, and a layer
costs what its tokens cost: so layers are also counted by token, and `ideal` is what would be left if reading an exit
and taking texts out cost nothing, with the time of a layer and of all else taken from the cut models.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
from transformers import pipeline

from benchmarks.record import Ratio
from benchmarks.replayed import answered, pooled_outputs
from offramp import Classifier
from offramp.calibration import AUTO, Request, choose, rows_of
from offramp.data.sources import Table, read
from offramp.preparation import encode
from offramp.types import Example

ROOT = Path(__file__).resolve().parent
ROUNDS, CLOSE, TIMED, ALONE = 3, 9, 1000, 100
"""Rounds of all ways; of those that are near to each other; texts of a round, texts that are timed alone.

Accuracy is that of all texts."""
HARMS, EVEN, FOLDS = (0.05, 0.04, 0.03, 0.02, 0.015, 0.01, 0.005), 0.5, 5
"""Of `ours`: shares of texts that may be harmed, boldest first; the confidence; parts that are left out in turn."""
DROP, SURE = 0.01, 0.95
"""The accuracy that may be lost; the confidence of a certificate."""

Answer = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Method:
    """One way to answer texts."""

    answer: Answer
    classifier: Classifier | None = None  # where texts may leave early

    def layers(self, texts: Sequence[str]) -> tuple[float, float]:
        """How many layers a text runs on average, and how many a token does."""
        assert self.classifier is not None
        depths = np.array([answer.depth for answer in self.classifier.decide(list(texts))])
        tokens = self.classifier._tokenise([Example(text) for text in texts], warn=False).lengths
        return float(depths.mean()), float(depths @ tokens / tokens.sum())


@dataclass(frozen=True)
class Task:
    """A data set: how many of its texts are trained on, and how many others are calibrated on."""

    name: str
    training: int = 0  # at most this many texts; 0: all
    per_label: int = 0  # at most this many of each label; 0: all
    calibration: int = 0  # texts kept from the training file; 0: those of the validation file


# SST-2's training file holds phrases of its sentences: its sentences to calibrate on are those of the validation file.
TASKS = (
    Task("trec6", calibration=1000),
    Task("sst2", training=8000),
    Task("banking77", per_label=40, calibration=4000),
)


def run() -> list[Ratio]:
    ratios: list[Ratio] = []
    for task in TASKS:
        found = _task(task)
        for ratio in found:
            print(ratio.line(), flush=True)
        ratios += found
    return ratios


def _task(task: Task) -> list[Ratio]:
    _, calibration, test = texts_of(task)
    home = model_of(task)
    with tempfile.TemporaryDirectory() as name:
        methods = _methods(home, Path(name), calibration)
        texts = [example.text for example in test.examples]
        labels = [str(label) for label in test.labels]
        found = _measure({way: method.answer for way, method in methods.items()}, texts, labels, ROUNDS)
        best = min((way for way in found if way.startswith("ours")), key=lambda way: median(found[way].seconds))
        cuts = _cuts(home, Path(name), "int8" in best)
        against = _measure({best: methods[best].answer, **cuts}, texts, labels, CLOSE)
        layers = {way: method.layers(texts) for way, method in methods.items() if method.classifier is not None}
    return _ratios(task, best, found, against, layers)


def model_of(task: Task) -> Path:
    """The folder of the default recipe's model, trained where it is not there."""
    home = ROOT / "models" / task.name
    if not (home / "offramp.json").exists():
        Classifier(seed=0).fit_table(texts_of(task)[0], folder=home, overwrite=True)
    return home


def texts_of(task: Task) -> tuple[Table, Table, Table]:
    """Training, calibration and test texts."""
    folder = Path(os.environ.get("OFFRAMP_DATA") or ROOT.parents[1] / "shared" / "data") / task.name
    whole, test = read(str(folder / "train.parquet")), read(str(folder / "test.parquet"))
    order = np.random.default_rng(0).permutation(len(whole.examples)).tolist()
    rest = [whole.examples[row] for row in order]
    learn: list[Example] = []
    if task.per_label:
        count: Counter[object] = Counter()
        for example in rest:
            count[example.label] += 1
            if count[example.label] <= task.per_label:
                learn.append(example)
        chosen = set(map(id, learn))
        rest = [example for example in rest if id(example) not in chosen]
    else:
        cut = task.training or len(rest) - task.calibration
        learn, rest = rest[:cut], rest[cut:]
    train, known = replace(whole, examples=learn, numbers=()), {_plain(example) for example in learn}
    rest = [example for example in rest if _plain(example) not in known]  # some stand there twice
    if not task.calibration:
        return train, read(str(folder / "validation.parquet")), test
    return train, replace(whole, examples=rest[: task.calibration], numbers=()), test


def _plain(example: Example) -> str:
    return " ".join(example.text.lower().split())


def _methods(home: Path, folder: Path, calibration: Table) -> dict[str, Method]:
    """Every way to answer texts, by name."""
    full = Classifier.load(home, policy="never", batch_size=32)
    harm = _spendable(full, calibration)
    ours, exits = _calibrated(home, calibration, harm, EVEN)
    sure, more = _calibrated(home, calibration, DROP, SURE)
    methods = {
        "pipeline, 1": Method(_pipeline(home, 1)),
        "pipeline, 32": Method(_pipeline(home, 32)),
        "sorted": Method(_classifier(full)),
        "one by one": Method(_one_by_one(Classifier.load(home, policy="patience", threshold=2.0))),
        "ours, torch": Method(_classifier(ours), ours),
        "certified, torch": Method(_classifier(sure), sure),
    }
    for precision, int8 in (("onnx", False), ("onnx int8", True)):
        whole, cut = (folder / f"{part}-{int8}" for part in ("whole", "cut"))
        full.export(whole, int8, [full.engine_.depth])
        full.export(cut, int8, [full.engine_.depth // 2])
        methods[precision] = Method(_classifier(Classifier.load(whole, policy="never", batch_size=32)))
        half = Classifier.load(cut, depth=full.engine_.depth // 2, batch_size=32)
        methods[f"first 3, {precision}"] = Method(_classifier(half))
        for way, wanted, asked in (("ours", exits, (harm, EVEN)), ("certified", more, (DROP, SURE))):
            parts = folder / f"{way}-{int8}"
            full.export(parts, int8, wanted)
            early, _ = _calibrated(parts, calibration, *asked)
            methods[f"{way}, {precision}"] = Method(_classifier(early), early)
    return methods


def _spendable(full: Classifier, calibration: Table) -> float:
    """The largest share of texts that may be harmed for a loss of `DROP`, as the calibration texts tell."""
    pooled, truth = pooled_outputs(full, calibration.examples, encode(full.labels_, calibration))
    parts = np.array_split(np.random.default_rng(0).permutation(len(truth)), FOLDS)
    for harm in HARMS:
        request = Request.of(harm, None, EVEN, None, AUTO)
        lost = []
        for part in parts:
            others = np.setdiff1d(np.arange(len(truth)), part)
            rule = choose(rows_of(pooled, others), truth[others].tolist(), request)
            before, after = (answers == truth[part] for answers in answered(rule, rows_of(pooled, part))[:2])
            lost += (before.astype(int) - after).tolist()
        if mean(lost) + stdev(lost) / len(lost) ** 0.5 <= DROP:
            break
    return harm


def _calibrated(home: Path, calibration: Table, drop: float, confidence: float) -> tuple[Classifier, list[int]]:
    """A classifier whose texts leave early, and the exits it reads."""
    classifier = Classifier.load(home, batch_size=32)
    found = classifier.calibrate(calibration, max_drop=drop, confidence=confidence)
    return classifier, [*found.exits, classifier.engine_.depth]


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

    seconds: list[float]  # per round, of the texts that are timed
    alone: list[float]  # of one text each
    accuracy: float


def _measure(methods: dict[str, Answer], texts: list[str], labels: list[str], rounds: int) -> dict[str, Found]:
    found = {name: Found([], [], 0.0) for name in methods}
    for name, answer in methods.items():  # a warm-up, and what they answer
        found[name].accuracy = mean(said == label for said, label in zip(answer(texts), labels, strict=True))
    for _ in range(rounds):
        for name, answer in methods.items():
            start = time.perf_counter()
            answer(texts[:TIMED])
            found[name].seconds.append(time.perf_counter() - start)
    for text in texts[:ALONE]:
        for name, answer in methods.items():
            start = time.perf_counter()
            answer([text])
            found[name].alone.append(time.perf_counter() - start)
    return found


def _ratios(
    task: Task,
    best: str,
    found: dict[str, Found],
    against: dict[str, Found],
    layers: dict[str, tuple[float, float]],
) -> list[Ratio]:
    precision = "onnx int8" if "int8" in best else "onnx"
    lost = found["sorted"].accuracy - found[best].accuracy
    cuts = {name: cut for name, cut in against.items() if name.startswith("first")}
    full = f"first {len(cuts)}"  # cut after the last layer it is the full model
    equal = [name for name, cut in cuts.items() if cut.accuracy >= against[best].accuracy]
    rival = min(equal or [full], key=lambda name: median(against[name].seconds))

    def faster(other: str, among: dict[str, Found] = found) -> list[float]:
        return [theirs / mine for theirs, mine in zip(among[other].seconds, among[best].seconds, strict=True)]

    detail = _detail(found)
    for way, (by_text, by_token) in layers.items():
        detail |= {f"{way}: layers": by_text, f"{way}: layers by token": by_token}

    def ratio(what: str, rounds: list[float], goal: float) -> Ratio:
        return Ratio(f"{task.name}: throughput of `{best}` over {what}", rounds, goal, at_least=True)

    return [
        Ratio(f"{task.name}: points of accuracy lost by `{best}`", [100 * lost], 1.0, False, detail),
        ratio("the pipeline at batch 1", faster("pipeline, 1"), 5.0),
        ratio("the pipeline at batch 32", faster("pipeline, 32"), 3.0),
        replace(
            ratio(f"`{precision}` at full depth", faster(full, against), 2.0), detail=_ideal(best, cuts, *layers[best])
        ),
        replace(
            ratio(f"the fastest cut model that is as good, `{rival}`", faster(rival, against), 1.0),
            detail=_detail(against),
        ),
    ]


def _ideal(best: str, cuts: dict[str, Found], by_text: float, by_token: float) -> dict[str, float]:
    """How much faster than the full model these layers could be, from the times of the model cut after each layer."""
    layer, rest = np.polyfit(range(1, len(cuts) + 1), [median(cut.seconds) for cut in cuts.values()], 1).tolist()
    full = rest + layer * len(cuts)
    return {
        f"{best}: ideal from layers": full / (rest + layer * by_text),
        f"{best}: ideal from layers by token": full / (rest + layer * by_token),
        f"{best}: share of the full model's time outside its layers": rest / full,
    }


def _detail(found: dict[str, Found]) -> dict[str, float]:
    detail: dict[str, float] = {}
    for name, one in found.items():
        detail[f"{name}: accuracy"] = one.accuracy
        detail[f"{name}: seconds"] = median(one.seconds)
        detail[f"{name}: p50 alone, ms"] = 1000 * float(np.percentile(one.alone, 50))
        detail[f"{name}: p95 alone, ms"] = 1000 * float(np.percentile(one.alone, 95))
    return detail
