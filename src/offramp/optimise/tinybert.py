"""LOSS -> PARAMETERS: a student that learns each layer from a layer of the full model, as TinyBERT does.

Student layer m of M looks at the teacher's layer g(m) = m L / M of L. First come the embeddings, the attention scores
and the states,

    L = w_e L_embd + sum_m ( w_a L_attn(m, g(m)) + w_h L_hidn(m, g(m)) ),

for `compress.epochs`, then the answers: the teacher's soft targets at the last exit, without the labels.

Reference: Jiao et al., TinyBERT (2020), section 3. Differences: the task is distilled, without general distillation
before it and without augmented texts; the student begins as every other layer of its teacher, and is as wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from offramp.config import CompressConfig
from offramp.exits.heads import attention_scores
from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import modules
from offramp.objectives.distill import soft_targets
from offramp.objectives.tinybert import attention_distance, hidden_distance
from offramp.optimise.distilbert import answer
from offramp.optimise.stage import FULL, Lessons, Models, Stage, alone, full, student
from offramp.optimise.strategies import Phase
from offramp.types import Batch, Loss


def stages(lessons: Lessons) -> list[Stage]:
    """The full model; then its student's layers, and the student's answers."""
    config = lessons.config
    # Without answers to judge, no epoch is better than the last.
    inside = replace(config.optimise, epochs=config.compress.epochs, patience=0)

    def by_layer(model: MultiExitModel, models: Models) -> Phase:
        def loss(model: MultiExitModel, batch: Batch) -> Loss:
            return layer_loss(model, models[FULL], batch, config.compress)

        # The exit is not asked yet.
        trainable = tuple(model.encoder.parameters())
        groups = alone(model).groups[: len(trainable)]
        return replace(alone(model), name="layers", trainable=trainable, groups=groups, loss=loss, newest=True)

    def by_answer(model: MultiExitModel, models: Models) -> Phase:
        def loss(model: MultiExitModel, batch: Batch) -> Loss:
            with torch.no_grad():
                _, teacher = answer(models[FULL], batch)
            _, output = answer(model, batch)
            soft = soft_targets(output.logits, teacher.logits, config.compress.temperature)
            return Loss(main=soft, parts={"soft": soft.detach()})

        return replace(alone(model), name="answers", loss=loss)

    return [
        *full(config),
        Stage("layers", inside, lambda models: student(config, models[FULL]), by_layer),
        Stage("answers", config.optimise, lambda models: models["layers"], by_answer),
    ]


def layer_loss(model: MultiExitModel, teacher: MultiExitModel, batch: Batch, weights: CompressConfig) -> Loss:
    """How far the student's embeddings, attention scores and states are from those of the layers it looks at."""
    looked_at = {theirs[-1]: own for own, theirs in enumerate(modules(model.depth, teacher.depth), 1)}
    with torch.no_grad():
        shown = [(s, h) for depth, s, h in _seen(teacher, batch) if depth in looked_at or not depth]
    far: dict[str, list[Tensor]] = {"embedding": [], "attention": [], "hidden": []}
    for (depth, scores, hidden), (their_scores, theirs) in zip(_seen(model, batch), shown, strict=True):
        far["hidden" if depth else "embedding"].append(hidden_distance(hidden, theirs, batch.mask))
        if scores is not None and their_scores is not None:
            far["attention"].append(attention_distance(scores, their_scores, batch.mask))
    parts = {name: torch.stack(found).sum() for name, found in far.items()}
    total = torch.stack([getattr(weights, name) * value for name, value in parts.items()]).sum()
    return Loss(main=total, parts={name: value.detach() for name, value in parts.items()})


def _seen(model: MultiExitModel, batch: Batch) -> Iterator[tuple[int, Tensor | None, Tensor]]:
    """The embeddings as depth 0, then of each layer the attention scores and the states."""
    states = model.encoder.embed(batch)
    yield 0, None, states.hidden
    for depth in range(1, model.depth + 1):
        below, states = states, model.encoder.step(depth, states)
        yield depth, attention_scores(model, depth, below.hidden), states.hidden
