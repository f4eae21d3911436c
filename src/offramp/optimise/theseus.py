"""LOSS -> PARAMETERS: layers of the full model replaced one after the other, as BERT-of-Theseus does.

The predecessor's layers fall into as many modules as the successor has layers. In each batch a module is replaced by
the successor's layer with a probability that grows from `compress.drop` to 1,

    p(t) = min(1, drop + (1 - drop) t / end),

over `compress.epochs`; only the successor's layers learn, from the objective of the task alone. Then the successor
is fine-tuned as a whole.

Reference: Xu et al., BERT-of-Theseus (2020), section 3. Differences: where no module of a batch would be replaced, one
is, drawn among all, for otherwise nothing would learn; the predecessor stands still without dropout; the successor
begins as the first layers of the fine-tuned predecessor, with its embeddings and its last exit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import modules, thinned
from offramp.optimise.stage import FULL, Lessons, Models, Stage, alone, full, layers
from offramp.optimise.strategies import Phase, groups
from offramp.types import States


class Replacing:
    """Lets the predecessor's module take the place of a successor's layer, in training."""

    def __init__(self, predecessor: MultiExitModel, layers: int, rate: float) -> None:
        self.predecessor, self.modules = predecessor, modules(layers, predecessor.depth)
        self.first = self.rate = rate
        self.replaced: list[bool] = []  # modules of this batch

    def grow(self, done: float) -> None:
        """Take note that this share of the updates is done."""
        self.rate = min(1.0, self.first + (1.0 - self.first) * done)

    def __call__(self, depth: int, states: States, training: bool) -> Tensor | None:
        """What the predecessor's module makes of the states, or None where it is replaced."""
        if not training:
            return None
        if depth == 1:
            self.draw()
        if self.replaced[depth - 1]:
            return None
        # The predecessor makes its own attention mask: in some families it holds weights.
        above = States(states.hidden, states.output, states.mask)
        for theirs in self.modules[depth - 1]:
            above = self.predecessor.encoder.step(theirs, above)
        return above.hidden

    def draw(self) -> None:
        """Draw for each module whether it is replaced; at least one is."""
        count = len(self.modules)
        self.replaced = (torch.rand(count) < self.rate).tolist()
        lone = int(torch.randint(count, ()))  # drawn always, so that what follows does not depend on it
        self.replaced[lone] = self.replaced[lone] or not any(self.replaced)


def stages(lessons: Lessons) -> list[Stage]:
    """The full model; then modules are replaced, and the successor is fine-tuned."""
    config = lessons.config
    # Half replaced it is not yet what it will be: no epoch is better than the last.
    between = replace(config.optimise, epochs=config.compress.epochs, patience=0)

    def begin(models: Models) -> MultiExitModel:
        model = models[FULL]
        return thinned(model, range(1, layers(config, model.depth) + 1), top=model.depth)

    def phase(model: MultiExitModel, models: Models) -> Phase:
        hook = Replacing(models[FULL], model.depth, config.compress.drop)
        model.encoder.instead = hook
        trainable = tuple(model.encoder.family.layers(model.encoder.backbone).parameters())
        named = groups(model, trainable)
        return replace(alone(model), name="replacing", trainable=trainable, groups=named, before=hook.grow, newest=True)

    return [
        *full(config),
        Stage("replacing", between, begin, phase),
        Stage("successor", config.optimise, lambda models: models["replacing"]),
    ]
