"""LOSS -> PARAMETERS: the gradient cache, for contrasts among more texts than memory holds.

The texts come in micro-batches. Each walks the backbone without gradients; the exits read copies of its states, and the
loss is that of all texts together. It gives a gradient at every copy. Then each micro-batch walks again, with gradients
and with the random numbers of its first walk, and sends the gradient at its states down the backbone. Memory holds one
micro-batch's way through the backbone at a time; the price is the second walk.

Reference: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (2021). Differences: the
cut is at the states the exits read, not at the representation, so that alignment can measure on either side of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from offramp.optimise.alignment import Gradients, align
from offramp.optimise.gradients import Measured, Scene, accumulate, align_at_cut, loss_of, measured, seen, states_read
from offramp.types import Batch, ExitOutput, States


def plain(scene: Scene, batches: Sequence[Batch]) -> Measured:
    """The weighted sum of the terms, sent down once."""
    cache = Cache(scene, batches)
    cache.step(cache.at_cut(cache.loss.total))
    return measured(cache.loss, None)


def exact(scene: Scene, batches: Sequence[Batch]) -> Measured:
    """The angle over all trainable parameters: both terms are sent down each micro-batch."""
    cache = Cache(scene, batches)
    loss = cache.loss
    if loss.auxiliary is None:
        cache.step(cache.at_cut(loss.total))
        return measured(loss, None)
    found = cache.everywhere(cache.at_cut(loss.main, keep=True), cache.at_cut(loss.auxiliary))
    main, auxiliary = (scene.shared(gradients) for gradients in found)
    phase = scene.phase
    combined, angle = align(main, auxiliary, loss.main_weight, loss.auxiliary_weight, scene.rule, phase.groups)
    accumulate(phase.trainable, combined, scene.share)
    return replace(measured(loss, angle), shared=True)


def at_exit(scene: Scene, batches: Sequence[Batch]) -> Measured:
    """The angle over the exits' parameters and the states they read; one combined gradient is sent down."""
    cache = Cache(scene, batches)
    loss = cache.loss
    if loss.auxiliary is None:
        cache.step(cache.at_cut(loss.total))
        return measured(loss, None)
    main, auxiliary = cache.at_cut(loss.main, keep=True), cache.at_cut(loss.auxiliary)
    combined, angle = align_at_cut(scene, loss, main, auxiliary, len(cache.above))
    cache.step(combined)
    return measured(loss, angle)


CACHED: dict[str, Callable[[Scene, Sequence[Batch]], Measured]] = {"none": plain, "exact": exact, "exit": at_exit}
"""Names of `alignment.scope` to the functions that leave a contrast batch's gradients behind."""


class Cache:
    """A contrast batch between its two walks through the backbone."""

    def __init__(self, scene: Scene, batches: Sequence[Batch]) -> None:
        self.scene, self.batches = scene, batches
        exits = {id(p) for p in scene.model.exits.parameters()}
        self.above = [p for p in scene.phase.trainable if id(p) in exits]
        self.below = [p for p in scene.phase.trainable if id(p) not in exits]
        self.before: list[list[Tensor]] = []  # the generators' states before each micro-batch
        self.states: list[Tensor] = []  # copies of what the exits read, micro-batch by micro-batch, by depth in each
        outputs: list[dict[int, ExitOutput]] = []
        labels: list[Tensor] = []
        weights: list[Tensor] = []
        for batch in batches:
            self.before.append(generators())
            with scene.autocast():
                looked = seen(scene, batch)
                with torch.no_grad():
                    read = states_read(scene, looked)
                cut = {d: s.output.detach().requires_grad_() for d, s in read.items()}
                # All exits read after the walk, so that the random numbers of a walk stand together.
                above = {d: States(cut[d], cut[d], s.mask, words=s.words) for d, s in read.items()}
                outputs.append({d: scene.model.read(d, states) for d, states in above.items()})
            self.states += cut.values()
            if looked.labels is not None:
                labels.append(looked.labels)
            if looked.weights is not None:
                weights.append(looked.weights)
        self.after = generators()
        with scene.autocast():
            together = {depth: self._join([one[depth] for one in outputs]) for depth in outputs[0]}
            truth = (self._cat(given) if given else None for given in (labels, weights))
            self.loss = loss_of(scene, together, *truth)

    def at_cut(self, term: Tensor, keep: bool = False) -> list[Tensor | None]:
        """The term's gradients at the exits' parameters, then at the states; `keep` leaves the graph for another."""
        return list(torch.autograd.grad(term, [*self.above, *self.states], retain_graph=keep, allow_unused=True))

    def step(self, gradients: Gradients) -> None:
        """Leave the gradients that follow from those at the cut: one backward pass per micro-batch."""
        above, states = gradients[: len(self.above)], gradients[len(self.above) :]
        accumulate(self.above, above, self.scene.share)
        if not self.below:
            return
        for number in range(len(self.batches)):
            tops, given = self._tops(self._walk(number), states, number)
            if tops:
                torch.autograd.backward(tops, [g * self.scene.share for g in given])
        put_back(self.after)

    def everywhere(self, *terms: Gradients) -> list[list[Tensor | None]]:
        """For each term, from its gradients at the cut, those of all trainable parameters in the phase's order."""
        sums: list[list[Tensor | None]] = [[None] * len(self.below) for _ in terms]
        for number in range(len(self.batches) if self.below else 0):
            walked = self._walk(number)
            for place, term in enumerate(terms):
                tops, given = self._tops(walked, term[len(self.above) :], number)
                if tops:
                    keep = place + 1 < len(terms)
                    found = torch.autograd.grad(tops, self.below, given, retain_graph=keep, allow_unused=True)
                    sums[place] = [_plus(a, b) for a, b in zip(sums[place], found, strict=True)]
        put_back(self.after)
        return [self._in_order(term[: len(self.above)], total) for term, total in zip(terms, sums, strict=True)]

    def _walk(self, number: int) -> list[Tensor]:
        """The states of a micro-batch once more, with the random numbers of the first time and with gradients."""
        put_back(self.before[number])
        with self.scene.autocast():
            return [s.output for s in states_read(self.scene, seen(self.scene, self.batches[number])).values()]

    def _tops(self, walked: list[Tensor], states: Gradients, number: int) -> tuple[list[Tensor], list[Tensor]]:
        """Where a gradient enters the backbone of this micro-batch, and the gradients."""
        mine = states[number * len(walked) : (number + 1) * len(walked)]
        pairs = [(s, g) for s, g in zip(walked, mine, strict=True) if s.requires_grad and g is not None]
        return [s for s, _ in pairs], [g for _, g in pairs]

    def _in_order(self, above: Gradients, below: Gradients) -> list[Tensor | None]:
        found = {id(p): g for p, g in zip([*self.above, *self.below], [*above, *below], strict=True)}
        return [found[id(p)] for p in self.scene.phase.trainable]

    def _join(self, parts: Sequence[ExitOutput]) -> ExitOutput:
        return ExitOutput(
            representation=self._cat([part.representation for part in parts]),
            logits=self._cat([part.logits for part in parts]),
            label_embeddings=parts[0].label_embeddings,  # the exit's own, whoever is read
        )

    def _cat(self, parts: Sequence[Tensor]) -> Tensor:
        """The micro-batches one after the other: all texts in their first view, then all in their second."""
        views = len(self.scene.views.names) if self.scene.views else 1
        return torch.cat([part.chunk(views)[view] for view in range(views) for part in parts])


def generators() -> list[Tensor]:
    """The states of torch's generators, from which dropout and views draw."""
    cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *cuda]


def put_back(states: list[Tensor]) -> None:
    """Let torch's generators go on from these states."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)


def _plus(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if total is None or more is None:
        return more if total is None else total
    return total + more
