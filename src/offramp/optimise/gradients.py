"""LOSS -> PARAMETERS: a batch's gradients, under each scope of alignment.

`none` is one backward pass of the weighted sum. `exact` takes the gradient of each term over all
trainable parameters, measures the angle and steps with what it has: two passes, never a third. `exit`
measures on the exit and the states it reads, then sends one combined gradient down the backbone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from offramp.data.views import Views
from offramp.exits.model import MultiExitModel
from offramp.optimise import processes
from offramp.optimise.alignment import Angle, Gradients, Rule, align
from offramp.optimise.strategies import Phase
from offramp.types import Batch, ExitOutput, Loss, Objective, States


@dataclass(frozen=True, slots=True)
class Measured:
    """What a batch gave besides its gradients."""

    loss: float
    parts: dict[str, float]
    angles: tuple[Angle, ...] = ()  # between the gradients of the two terms; one per exit where exits learn apart
    shared: bool = False  # whether the gradients left behind are already those of all processes

    @property
    def angle(self) -> Angle | None:
        """The angle, where there is one for all exits."""
        return self.angles[0] if self.angles else None


@dataclass(frozen=True, slots=True)
class Scene:
    """Who takes part in a backward pass."""

    model: MultiExitModel
    objective: Objective
    phase: Phase
    rule: Rule = field(default_factory=Rule)  # how the gradients of the two terms make one
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext  # around forward passes only
    share: float = 1.0  # 1 / batches per update
    views: Views | None = None  # how an objective that contrasts views sees a text
    counts: processes.Counts = ()  # texts of the batch that each process has

    def shared(self, gradients: Gradients) -> list[Tensor | None]:
        """The parameters' gradients over all processes."""
        return processes.mean(gradients) if self.counts else list(gradients)

    def joined(self, output: ExitOutput) -> ExitOutput:
        """What an exit says of the texts of all processes."""
        return processes.together(output, self.counts, len(self.views.names) if self.views else 1)

    def labels(self, labels: Tensor) -> Tensor:
        """The labels of the texts of all processes."""
        return processes.gathered(labels, self.counts, len(self.views.names) if self.views else 1)

    def weights(self, weights: Tensor | None) -> Tensor | None:
        """Their weights, where they have some."""
        return None if weights is None else self.labels(weights)


def plain(scene: Scene, batch: Batch) -> Measured:
    """One backward pass of the weighted sum of the terms."""
    return _backward(scene, _forward(scene, batch))


def exact(scene: Scene, batch: Batch) -> Measured:
    """The angle over all trainable parameters; both gradients are reused for the step."""
    loss = _forward(scene, batch)
    if loss.auxiliary is None:
        return _backward(scene, loss)
    learning = scene.phase.trainable
    found = [
        torch.autograd.grad(loss.main, learning, retain_graph=True, allow_unused=True),
        torch.autograd.grad(loss.auxiliary, learning, allow_unused=True),
    ]
    # First both, then what processes tell each other: another may go through the gradient cache, which does the same.
    main, auxiliary = (scene.shared(gradients) for gradients in found)
    combined, angle = align(main, auxiliary, loss.main_weight, loss.auxiliary_weight, scene.rule, scene.phase.groups)
    accumulate(learning, combined, scene.share)
    return replace(measured(loss, angle), shared=True)


def at_exit(scene: Scene, batch: Batch) -> Measured:
    """The angle over the exits' parameters and the states they read; then one pass down the backbone."""
    batch = seen(scene, batch)
    with scene.autocast():
        read = states_read(scene, batch)
        cut = {d: s.output.detach().requires_grad_() for d, s in read.items()}
        above_cut = {d: States(hidden=cut[d], output=cut[d], mask=s.mask, words=s.words) for d, s in read.items()}
        outputs = {d: scene.model.read(d, states) for d, states in above_cut.items()}
        loss = loss_of(scene, outputs, batch.labels, batch.weights)
    exits = {id(p) for p in scene.model.exits.parameters()}
    above = [p for p in scene.phase.trainable if id(p) in exits]
    tensors: list[Tensor] = [*above, *cut.values()]
    main = torch.autograd.grad(loss.main, tensors, retain_graph=loss.auxiliary is not None, allow_unused=True)
    combined: list[Tensor | None] = [None if g is None else loss.main_weight * g for g in main]
    angle = None
    if loss.auxiliary is not None:
        auxiliary = torch.autograd.grad(loss.auxiliary, tensors, allow_unused=True)
        combined, angle = align_at_cut(scene, loss, main, auxiliary, len(above))
    accumulate(above, combined[: len(above)], scene.share)
    downward = [
        (s.output, g * scene.share)
        for s, g in zip(read.values(), combined[len(above) :], strict=True)
        if s.output.requires_grad and g is not None
    ]
    if downward:
        torch.autograd.backward([t for t, _ in downward], [g for _, g in downward])
    return measured(loss, angle)


def align_at_cut(
    scene: Scene, loss: Loss, main: Gradients, auxiliary: Gradients, above: int
) -> tuple[list[Tensor | None], Angle]:
    """Align where the first `above` gradients are the exits' parameters' and the rest those of the states they read."""
    groups = ["exit"] * above + ["states"] * (len(main) - above)
    main = [*scene.shared(main[:above]), *main[above:]]
    auxiliary = [*scene.shared(auxiliary[:above]), *auxiliary[above:]]
    apart = len(main) - above if scene.counts else 0
    return align(main, auxiliary, loss.main_weight, loss.auxiliary_weight, scene.rule, groups, apart)


SCOPES: dict[str, Callable[[Scene, Batch], Measured]] = {"none": plain, "exact": exact, "exit": at_exit}
"""Names of `alignment.scope` to the functions that leave gradients behind."""


def _forward(scene: Scene, batch: Batch) -> Loss:
    batch = seen(scene, batch)
    with scene.autocast():
        if scene.phase.loss is not None:
            return scene.phase.loss(scene.model, batch)
        change = scene.views.erase if scene.views else None
        outputs = scene.model.outputs(batch, scene.phase.exits, change)
        return loss_of(scene, outputs, batch.labels, batch.weights)


def seen(scene: Scene, batch: Batch) -> Batch:
    """The batch as the objective wants it: each text once per view."""
    return scene.views.batch(batch) if scene.views else batch


def states_read(scene: Scene, batch: Batch) -> dict[int, States]:
    """The states that the exits in play read, by depth."""
    wanted = set(scene.phase.exits)
    walk = scene.model.walk(batch, max(wanted), scene.views.erase if scene.views else None)
    return {depth: states for depth, states in walk if depth in wanted}


def loss_of(scene: Scene, outputs: dict[int, ExitOutput], labels: Tensor | None, weights: Tensor | None = None) -> Loss:
    """The weighted sum of the objective over the exits in play; the last of them teaches, where one is wanted."""
    if labels is None:
        raise ValueError("training needs labels")
    outputs = {depth: scene.joined(output) for depth, output in outputs.items()}
    labels, weights = scene.labels(labels), scene.weights(weights)
    teacher = outputs[max(outputs)] if scene.objective.taught else None
    exits = scene.phase.exits
    losses = [scene.objective(outputs[depth], labels, teacher, weights) for depth in exits]
    return summed(losses, [scene.phase.weight(depth) for depth in exits])


def summed(losses: Sequence[Loss], weights: Sequence[float]) -> Loss:
    """One loss for several exits."""
    if len(losses) == 1 and weights[0] == 1.0:
        return losses[0]

    def total(values: Sequence[Tensor]) -> Tensor:
        return torch.stack([v if w == 1.0 else w * v for v, w in zip(values, weights, strict=True)]).sum()

    auxiliary = [loss.auxiliary for loss in losses if loss.auxiliary is not None]
    return Loss(
        main=total([loss.main for loss in losses]),
        auxiliary=total(auxiliary) if auxiliary else None,
        main_weight=losses[0].main_weight,
        auxiliary_weight=losses[0].auxiliary_weight,
        parts={name: total([loss.parts[name] for loss in losses]) for name in losses[0].parts},
    )


def _backward(scene: Scene, loss: Loss) -> Measured:
    total = loss.total if scene.share == 1.0 else loss.total * scene.share
    total.backward()
    return measured(loss, None)


def measured(loss: Loss, angle: Angle | None) -> Measured:
    """What the batch's loss and its gradients' angle tell a log."""
    parts = {name: float(value) for name, value in loss.parts.items()}
    return Measured(float(loss.total.detach()), parts, () if angle is None else (angle,))


def accumulate(tensors: Sequence[Tensor], gradients: Sequence[Tensor | None], share: float) -> None:
    """Add this share of the gradients to what the tensors have gathered."""
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if gradient is not None:
            scaled = gradient if share == 1.0 else gradient * share
            tensor.grad = scaled if tensor.grad is None else tensor.grad + scaled
