"""LOSS -> PARAMETERS: truncation, the first layers fine-tuned with an exit on top.

Reference: ACL, section 5.2, "directly training of intermediate layers" (BERT-6L).
"""

from __future__ import annotations

from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import thinned
from offramp.optimise.stage import FULL, Lessons, Models, Stage, layers


def stages(lessons: Lessons) -> list[Stage]:
    """One: the backbone without its upper layers is fine-tuned as any."""
    config = lessons.config

    def begin(models: Models) -> MultiExitModel:
        count = layers(config, models[FULL].depth)
        return thinned(models[FULL], range(1, count + 1), top=count)

    return [Stage("truncated", config.optimise, begin)]
