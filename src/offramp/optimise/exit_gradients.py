"""LOSS -> PARAMETERS: gradients of exits that learn apart from each other, on a backbone that stands still.

Each exit has parameters of its own and shares none, so the gradients of the sum of all losses are each exit's own, and
alignment measures an angle at every exit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from offramp.optimise.alignment import Angle, align
from offramp.optimise.exits_together import read_below
from offramp.optimise.gradients import Measured, Scene, accumulate, measured, summed
from offramp.optimise.state_cache import Lesson
from offramp.types import Loss


def plain(scene: Scene, lesson: Lesson) -> Measured:
    """One backward pass for all exits."""
    loss = _loss(scene, lesson)
    (loss.total if scene.share == 1.0 else loss.total * scene.share).backward()
    return measured(loss, None)


def exact(scene: Scene, lesson: Lesson) -> Measured:
    """Two backward passes for all exits; at each, the contrast is kept or dropped by its own angle."""
    loss = _loss(scene, lesson)
    if loss.auxiliary is None:
        (loss.total if scene.share == 1.0 else loss.total * scene.share).backward()
        return measured(loss, None)
    learning, groups = scene.phase.trainable, scene.phase.groups
    main = scene.shared(torch.autograd.grad(loss.main, learning, retain_graph=True, allow_unused=True))
    auxiliary = scene.shared(torch.autograd.grad(loss.auxiliary, learning, allow_unused=True))
    angles: list[Angle] = []
    for group in dict.fromkeys(groups):
        mine = [place for place, name in enumerate(groups) if name == group]
        combined, angle = align(
            [main[place] for place in mine],
            [auxiliary[place] for place in mine],
            loss.main_weight,
            loss.auxiliary_weight,
            scene.rule,
            [group] * len(mine),
        )
        accumulate([learning[place] for place in mine], combined, scene.share)
        angles.append(angle)
    found = measured(loss, None)
    return Measured(found.loss, found.parts, tuple(angles), shared=True)


APART: dict[str, Callable[[Scene, Lesson], Measured]] = {"none": plain, "exact": exact}
"""Names of `stage2.scope` to the functions that leave gradients behind."""


def _loss(scene: Scene, lesson: Lesson) -> Loss:
    with scene.autocast():
        outputs = read_below(scene.model, lesson.states, scene.phase.exits)
        told = scene.labels(lesson.labels), scene.joined(lesson.teacher), scene.weights(lesson.weights)
        losses = [scene.objective(scene.joined(output), *told) for output in outputs.values()]
    return summed(losses, [1.0] * len(losses))
