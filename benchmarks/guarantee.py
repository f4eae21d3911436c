"""The guarantee on a real model: how often the risk of what was calibrated is above what was promised.

What all exits of the model of `early-exit` say of thousands of texts it was not trained on is pooled once. Each policy
is then calibrated on 200 random draws from the pool, and the risk of what was chosen is that over the whole pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from benchmarks.early_exit import TASKS, Task, model_of, texts_of
from benchmarks.record import Ratio
from benchmarks.replayed import answered, pooled_outputs
from offramp import Classifier
from offramp.calibration import AUTO, SCORED, Request, choose, rows_of
from offramp.policies.replay import Pooled
from offramp.preparation import encode

POOL, DRAW, SPLITS = 6000, 1000, 200
DROP, CONFIDENCE = 0.02, 0.9


def run(tasks: Sequence[Task] = TASKS[2:]) -> list[Ratio]:
    ratios = []
    for task in tasks:
        _, held, test = texts_of(task)
        classifier = Classifier.load(model_of(task))
        right = [*encode(classifier.labels_, test), *encode(classifier.labels_, held)]
        pooled, truth = pooled_outputs(classifier, [*test.examples, *held.examples][:POOL], right[:POOL])
        for name in (*SCORED, AUTO):
            ratios.append(_share(task, name, pooled, truth))
    return ratios


def _share(task: Task, name: str, pooled: Pooled, truth: np.ndarray) -> Ratio:
    """The share of draws whose risk is too high, over the largest that an honest method has in 999 of 1000 cases."""
    risks, layers = [], []
    for split in range(SPLITS):
        rows = np.random.default_rng(split).choice(len(truth), DRAW, replace=False)
        request = Request.of(DROP, None, CONFIDENCE, None, name)
        rule = choose(rows_of(pooled, rows), truth[rows].tolist(), request)
        last, early, left = answered(rule, pooled)
        risks.append(float(((last == truth) & (early != truth)).mean()))
        layers.append(float(left.mean()))
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
