"""The guarantee on a real model: how often the risk of what was calibrated is above what was promised.

What all exits of the model of `early-exit` say of thousands of texts it was not trained on is pooled once. Each policy
is then calibrated on 200 random draws from the pool, and the risk of what was chosen is that over the whole pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import binom

from benchmarks.early_exit import TASKS, Task, model_of, texts_of
from benchmarks.record import Ratio
from offramp import Classifier
from offramp.calibration import AUTO, SCORED, Request, choose, rows_of
from offramp.policies import policy
from offramp.policies.patient_confidence import PATIENCE
from offramp.policies.replay import Pooled, depths, scores
from offramp.policies.scored import Scored
from offramp.preparation import encode
from offramp.runtime.engine import pool

POOL, DRAW, SPLITS = 6000, 1000, 200
DROP, CONFIDENCE = 0.02, 0.9


def run(tasks: Sequence[Task] = TASKS[2:]) -> list[Ratio]:
    ratios = []
    for task in tasks:
        _, held, test = texts_of(task)
        classifier = Classifier.load(model_of(task))
        examples = [*test.examples, *held.examples][:POOL]
        tokens = classifier._tokenise(examples, warn=False)
        exits = [depth for depth in classifier.engine_.trained if depth < classifier.engine_.depth]
        pooled = pool(classifier.engine_, tokens, 64, [*exits, classifier.engine_.depth])
        truth = np.array([*encode(classifier.labels_, test), *encode(classifier.labels_, held)][:POOL])
        for name in (*SCORED, AUTO):
            ratios.append(_share(task, name, pooled, truth))
    return ratios


def _share(task: Task, name: str, pooled: Pooled, truth: np.ndarray) -> Ratio:
    """The share of draws whose risk is too high, over the largest that an honest method has in 999 of 1000 cases."""
    risks, layers = [], []
    for split in range(SPLITS):
        rows = np.random.default_rng(split).choice(len(truth), DRAW, replace=False)
        request = Request.of(DROP, None, CONFIDENCE, None, name)
        chosen, found, tensors = choose(rows_of(pooled, rows), truth[rows].tolist(), request)
        last = max(pooled.outputs)
        left = torch.full((len(truth),), last)
        if found.thresholds:
            rule = {depth: found.thresholds.get(depth, np.inf) for depth in found.exits}
            made = policy(chosen, rule, patience=PATIENCE, tensors=tensors)
            assert isinstance(made, Scored)
            limits = torch.tensor([rule[depth] for depth in found.exits])
            left = depths(scores(made, pooled, found.exits), limits, found.exits, last)
        answers = {depth: output.logits.argmax(dim=1).numpy() for depth, output in pooled.outputs.items()}
        early = np.array([answers[depth][row] for row, depth in enumerate(left.tolist())])
        risks.append(float(((answers[last] == truth) & (early != truth)).mean()))
        layers.append(float(left.float().mean()))
    most = float(binom.ppf(0.999, SPLITS, 1 - CONFIDENCE)) / SPLITS
    broken = sum(risk > DROP for risk in risks) / SPLITS
    detail = {
        "pool": float(len(truth)),
        "texts of a draw": float(DRAW),
        "draws": float(SPLITS),
        "promised risk": DROP,
        "promised share": 1 - CONFIDENCE,
        "mean risk": float(np.mean(risks)),
        "largest risk": max(risks),
        "mean layers": float(np.mean(layers)),
    }
    return Ratio(
        f"{task.name}: share of calibrations with `{name}` whose risk is too high", [broken], most, False, detail
    )
