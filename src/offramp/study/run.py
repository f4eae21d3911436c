"""One run of a study: train, score once on texts that nothing was chosen on, and write down all that was seen."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import f1_score

from offramp import __version__
from offramp.classifier import Classifier
from offramp.config import Config, to_mapping
from offramp.data.sources import Table
from offramp.data.tasks import task
from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.exits.manifest import MANIFEST
from offramp.optimise.angles import Angles, measure
from offramp.preparation import first_objective, tokenise
from offramp.report.cost import costs
from offramp.report.exit_map import chosen_depth, lay_out
from offramp.report.geometry import geometry
from offramp.report.history import History, read_history
from offramp.report.metrics import Scores, score_without_a_look, scores
from offramp.runtime.engine import pool
from offramp.study.data import Texts, texts_of
from offramp.study.kinds import BY_LABEL, PROBES
from offramp.study.plan import Run
from offramp.study.training import MODEL, trained

BATCH = 64  # texts that are scored at once
VERSIONS = ("torch", "transformers", "tokenizers", "accelerate", "numpy", "scikit-learn", "scipy")


def perform(run: Run, work: Path) -> dict[str, Any]:
    """The result of a run as plain JSON values; `work` is its folder, which a killed run finds again."""
    texts = texts_of(run.task, run.data, run.config, run.test_cap, run.validation_cap, run.held_out)
    if run.before is not None:
        texts = texts.unseen_by(texts_of(run.before.task, run.before.data, run.before.config))
    classifier, result = trained(texts, run.before, work)
    began = time.monotonic()
    seen = _Seen(classifier, texts.test, run)
    record: dict[str, Any] = {
        "study": run.study,
        "scale": run.scale,
        "variant": run.variant,
        "task": run.task,
        "value": run.value,
        "seed": run.seed,
        "key": run.key,
        "config": to_mapping(run.config),
        "metrics": {**seen.metrics(), **seen.by_label(texts), **texts.sizes()},
        "validation": {"score": result.score, "epoch": result.best_epoch, "epochs": result.epochs},
        "geometry": asdict(geometry(seen.outputs[_depth(seen, run)].representation.numpy(), seen.truth)),
        "cost": _cost(classifier, seen.tokens),
        "data": texts.hashes(),
        "weights": json.loads((work / MODEL / MANIFEST).read_text("utf-8"))["files"]["model.safetensors"],
    }
    if run.before is not None:
        record["before"] = {"task": run.before.task, "config": to_mapping(run.before.config)}
    if angles := _angles(classifier, texts, read_history(work / MODEL / "training" / "log.jsonl"), run):
        record["angles"] = angles
    if run.map is not None:
        record["map"] = _map(seen, run)
    return record | {
        "seconds": {"training": result.seconds, "scoring": time.monotonic() - began},
        "machine": _machine(),
        "versions": {"offramp": __version__, **{name: version(name) for name in VERSIONS}},
    }


class _Seen:
    """What the trained exits say of the scored texts, labels numbered in the order of the task."""

    def __init__(self, classifier: Classifier, test: Table, run: Run) -> None:
        self.run, engine = run, classifier.engine_
        mine = [str(name) for name in classifier.labels_.names]
        self.names = [name for name in task(run.task).labels if name in mine]
        self.order = torch.tensor([mine.index(name) for name in self.names])  # (C,)
        self.truth = [self.names.index(str(label)) for label in test.labels]
        self.tokens = Tokens.of(classifier.tokenizer_, test.examples, warn=False, **classifier.reading())
        self.depth, self.trained = engine.depth, list(engine.trained)
        self.outputs = pool(engine, self.tokens, BATCH, sorted({*engine.trained, engine.depth})).outputs

    def scores(self, depth: int) -> Scores:
        """The scores of one exit."""
        return scores(self.truth, self.answers(depth), len(self.names))

    def answers(self, depth: int) -> list[int]:
        """The classes that one exit gives."""
        found: list[int] = self.outputs[depth].logits[:, self.order].argmax(dim=1).tolist()
        return found

    def metrics(self) -> dict[str, Any]:
        """The scores of the last exit, and the score that is shown of every trained one."""
        last = self.scores(self.depth)
        return {
            "metric": self.run.metric,
            "score": last.value(self.run.metric),
            **{name: value for name, value in asdict(last).items() if name != "n" and value is not None},
            "by_exit": {str(depth): self.scores(depth).value(self.run.metric) for depth in self.trained},
            "always": score_without_a_look(self.truth, len(self.names), self.run.metric),
            "layers": self.depth,
        }

    def by_label(self, texts: Texts) -> dict[str, float]:
        """F1 of the label that is rarest in training and of the most frequent one, where the protocol makes them so."""
        if not self.run.config.protocol.imbalance:
            return {}
        counts = Counter(str(example.label) for example in texts.divided[1])
        order = sorted(range(len(self.names)), key=lambda number: counts[self.names[number]])
        found = f1_score(
            self.truth, self.answers(self.depth), labels=[order[0], order[-1]], average=None, zero_division=0.0
        )
        return dict(zip(BY_LABEL, map(float, found), strict=True))


def _angles(classifier: Classifier, texts: Texts, history: History, run: Run) -> dict[str, Any]:
    """The angles at every update, where the run measured them, and those of the trained model, where the study asks."""
    found: dict[str, Any] = {}
    steps = [step for step in history.steps if step.angle is not None and step.phase != "exits"]
    if steps:
        degrees = [step.angle for step in steps if step.angle is not None]
        found["training"] = Angles.of(degrees, History(steps).kept_share).to_json()
    if run.probe is not None:
        labels, learn, _ = texts.divided
        config = _contrasting(run.config, run.probe.objective)
        tokens = tokenise(classifier.tokenizer_, learn, labels, classifier.model_.config)
        batch = config.optimise.contrast_batch or config.optimise.batch_size
        contrast = first_objective(config, labels, learn)
        views = Views(config.data.views, config.data.cutoff) if contrast.views > 1 else None
        degrees = measure(classifier.model_, contrast, tokens, batch, run.probe.batches, run.seed, views)
        found["after"] = {"objective": config.objective.name, **Angles.of(degrees).to_json()}
    return found


def _contrasting(config: Config, wanted: str) -> Config:
    """The run's configuration with the contrast that is asked for; else with its own, or SCL's where it has none."""
    own = config.objective.name if config.objective.name in PROBES else "scl"
    # The angle does not depend on the weight, but a weight of 0 leaves the term out.
    return replace(config, objective=replace(config.objective, name=wanted or own, weight=0.5))


def _map(seen: _Seen, run: Run) -> dict[str, Any]:
    """Where the texts and the label embeddings lie, seen by the exit that the study names."""
    depth = _depth(seen, run)
    output = seen.outputs[depth]
    anchors = output.label_embeddings[seen.order].numpy()  # (C, D)
    found = lay_out(depth, output.representation.numpy(), anchors, seen.truth, seen.names, run.seed)
    flat = {"texts": found.texts, "anchors": found.anchors}
    return {**asdict(found), **{name: points.astype(float).round(3).tolist() for name, points in flat.items()}}


def _depth(seen: _Seen, run: Run) -> int:
    """The exit that is looked at: the one that the study names, or the last."""
    if run.map is None:
        return seen.depth
    places: dict[str | int | None, int] = {"last": seen.depth, "half": max(1, seen.depth // 2)}
    wanted = places.get(run.map, run.map)
    return wanted if isinstance(wanted, int) and wanted in seen.trained else chosen_depth(seen.trained)


def _cost(classifier: Classifier, tokens: Tokens) -> dict[str, Any]:
    """What a text of the mean length costs at every exit, and how large the model is."""
    length = round(float(tokens.lengths.mean()))
    found = costs(classifier.model_.config, length)
    return {
        "tokens": length,
        "flops": {str(cost.depth): cost.flops for cost in found},
        "parameters": found[-1].parameters,
    }


def _machine() -> dict[str, Any]:
    """What the run ran on; threads and the processor's instructions decide the order of sums, and with it the last
    bits.
    """
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }
