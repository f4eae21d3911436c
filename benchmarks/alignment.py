"""Time of an ACL step over a cross-entropy step, with `exact` and with `exit` alignment.

The same model takes the same batches under the three, one after the other, step by step.
"""

from __future__ import annotations

import time

import torch

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.config import load_recipe
from offramp.data.sampling import length_buckets
from offramp.encoder.load import load_backbone
from offramp.exits.model import build
from offramp.objectives import objective
from offramp.optimise.gradients import SCOPES, Scene
from offramp.optimise.strategies import plan
from offramp.optimise.update import Update

BATCH, ROUNDS, STEPS = 16, 3, 30


def run() -> list[Ratio]:
    data, labels = tokens(BATCH * STEPS * ROUNDS)
    config = load_recipe("acl")
    torch.manual_seed(0)
    model = build(load_backbone("minilm-l6"), labels.names)
    model.train()
    phase = plan("single", model)[0]
    update = Update(model, phase.trainable, config.optimise)
    acl = objective("acl", temperature=config.objective.temperature, weight=config.objective.weight)
    kinds = {"ce": ("none", objective("ce")), "exact": ("exact", acl), "exit": ("exit", acl)}
    batches = [data.batch(rows) for rows in length_buckets(data.lengths, BATCH, torch.Generator().manual_seed(0))]
    rounds: dict[str, list[float]] = {"exact": [], "exit": []}
    for number in range(ROUNDS):
        spent = dict.fromkeys(kinds, 0.0)
        for batch in batches[number * STEPS : (number + 1) * STEPS]:
            for name, (scope, loss) in kinds.items():
                start = time.perf_counter()
                SCOPES[scope](Scene(model, loss, phase), batch)
                update.apply(1e-6)
                spent[name] += time.perf_counter() - start
        for name in rounds:
            rounds[name].append(spent[name] / spent["ce"])
    update.close()
    goals = {"exact": 1.8, "exit": 1.2}
    return [
        Ratio(f"time of an ACL step with `{name}` alignment over a CE step", rounds[name], goal, at_least=False)
        for name, goal in goals.items()
    ]
