"""What all exits of a model say of many texts, kept, and what they are answered under what was calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp import Classifier
from offramp.policies import policy
from offramp.policies.calibrate import Calibration
from offramp.policies.patient_confidence import PATIENCE
from offramp.policies.replay import Pooled, depths, scores
from offramp.policies.scored import Scored
from offramp.runtime.engine import pool
from offramp.types import Example

Rule = tuple[str, Calibration, Mapping[str, Tensor]]
"""A policy, its calibration and what was fitted for it."""


def pooled_outputs(
    classifier: Classifier, examples: Sequence[Example], truth: Sequence[int]
) -> tuple[Pooled, NDArray[np.int64]]:
    """What the trained exits say of the texts, and what is right."""
    engine = classifier.engine_
    tokens = classifier._tokenise(list(examples), warn=False)
    return pool(engine, tokens, 64, sorted({*engine.trained, engine.depth})), np.asarray(truth)


def answered(rule: Rule, pooled: Pooled) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The last exit's answers, (N,), those of the exits at which the texts leave, and the depths of these."""
    chosen, found, tensors = rule
    last = max(pooled.outputs)
    answers = {depth: output.logits.argmax(dim=1).numpy() for depth, output in pooled.outputs.items()}
    left = np.full(len(answers[last]), last)
    if found.thresholds:
        limits = {depth: found.thresholds.get(depth, np.inf) for depth in found.exits}
        made = policy(chosen, limits, patience=PATIENCE, tensors=tensors)
        assert isinstance(made, Scored)
        thresholds = torch.tensor([limits[depth] for depth in found.exits])
        left = depths(scores(made, pooled, found.exits), thresholds, found.exits, last).numpy()
    early = np.array([answers[depth][row] for row, depth in enumerate(left.tolist())])
    return answers[last], early, left
