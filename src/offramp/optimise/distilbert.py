"""LOSS -> PARAMETERS: a student with half of the layers that learns the task from the full model, as DistilBERT does.

The student begins as every other layer of its teacher, with its embeddings and its last exit, and learns from the
labels, the teacher's soft targets and the direction of its last states:

    L = (1 - sigma) objective + sigma T^2 KL(teacher || student) + gamma (1 - cos(s, s'))

Reference: Sanh et al., DistilBERT (2019), sections 2 and 3. Differences: the task is distilled and the backbone is not
pre-trained again; where the run's objective has a contrast, the student has it too.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from offramp.exits.model import MultiExitModel
from offramp.objectives.distilbert import cosine_distance
from offramp.objectives.softened import Softened
from offramp.optimise.stage import FULL, Lessons, Models, Stage, alone, full, student
from offramp.optimise.strategies import Phase
from offramp.types import Batch, ExitOutput, Loss, States


def stages(lessons: Lessons) -> list[Stage]:
    """The full model; then its student."""
    config, settings = lessons.config, lessons.config.compress
    objective = Softened(lessons.objective, settings.soft, settings.temperature)

    def phase(model: MultiExitModel, models: Models) -> Phase:
        def loss(model: MultiExitModel, batch: Batch) -> Loss:
            if batch.labels is None:
                raise ValueError("training needs labels")
            with torch.no_grad():
                above, teacher = answer(models[FULL], batch)
            own, output = answer(model, batch)
            found: Loss = objective(output, batch.labels, teacher, batch.weights)
            apart = cosine_distance(own.output, above.output, batch.mask)
            parts = {**found.parts, "cosine": apart.detach()}
            return replace(found, main=found.main + settings.cosine * apart, parts=parts)

        return replace(alone(model), name="student", loss=loss)

    return [*full(config), Stage("student", config.optimise, lambda models: student(config, models[FULL]), phase)]


def answer(model: MultiExitModel, batch: Batch) -> tuple[States, ExitOutput]:
    """The states after the last layer, and what the last exit says of them."""
    *_, (depth, states) = model.walk(batch)
    return states, model.read(depth, states)
