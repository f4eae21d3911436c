"""Time of each objective itself over a training step: batch 64, the real backbone.

A step is the forward pass, the backward pass and the update with cross entropy. An objective's own time is its value
and its gradients down to the exit's output, on the very outputs of that step. They alternate, batch by batch.
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
from offramp.objectives import OBJECTIVES, objective
from offramp.optimise.gradients import Scene, plain
from offramp.optimise.strategies import plan
from offramp.optimise.update import Update
from offramp.types import Batch, ExitOutput

BATCH, ROUNDS, STEPS, GOAL = 64, 3, 15, 0.02
HYPER = {"temperature": 0.5, "weight": 0.1, "heads": 4}


def run() -> list[Ratio]:
    data, labels = tokens(BATCH * STEPS * ROUNDS)
    torch.manual_seed(0)
    model = build(load_backbone("minilm-l6"), labels.names)
    model.train()
    phase = plan("single", model)[0]
    update = Update(model, phase.trainable, load_recipe("ce").optimise)
    scene = Scene(model, objective("ce"), phase)
    losses = {name: objective(name, **HYPER) for name in OBJECTIVES}
    batches = [data.batch(rows) for rows in length_buckets(data.lengths, BATCH, torch.Generator().manual_seed(0))]
    rounds: dict[str, list[float]] = {name: [] for name in losses}
    for number in range(ROUNDS):
        step, spent = 0.0, dict.fromkeys(losses, 0.0)
        for batch in batches[number * STEPS : (number + 1) * STEPS]:
            start = time.perf_counter()
            plain(scene, batch)
            update.apply(1e-6)
            step += time.perf_counter() - start
            with torch.no_grad():
                output = model.outputs(batch, phase.exits)[model.depth]
            for name in losses:
                spent[name] += _own_time(name, losses[name], output, batch)
        for name in losses:
            rounds[name].append(spent[name] / step)
    update.close()
    return [
        Ratio(f"time of the objective `{name}` over a training step at batch {BATCH}", found, GOAL, at_least=False)
        for name, found in rounds.items()
    ]


def _own_time(name: str, loss: torch.nn.Module, output: ExitOutput, batch: Batch) -> float:
    assert batch.labels is not None
    views = OBJECTIVES[name].views
    wanted = batch.labels.repeat(views)
    parts = (output.representation.repeat(views, 1), output.logits.repeat(views, 1), output.label_embeddings)
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    teacher = output if OBJECTIVES[name].taught else None
    start = time.perf_counter()
    loss(ExitOutput(*leaves), wanted, teacher).total.backward()
    return time.perf_counter() - start
