"""Every policy that scores, with thresholds that let some texts leave, and as a slow loop over the texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from hypothesis import assume
from tests.reference import policies as reference
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES, policy
from offramp.policies.replay import Pooled, scores
from offramp.policies.scored import Scored
from offramp.types import Batch

LAYERS = 4


def alone(batch: Batch, row: int) -> Batch:
    """One text without padding."""
    n = int(batch.mask[row].sum())
    types = batch.token_types
    return Batch(
        batch.input_ids[row : row + 1, :n],
        batch.mask[row : row + 1, :n],
        None if types is None else types[row : row + 1, :n],
    )


def fitted(model: MultiExitModel, name: str) -> dict[str, Tensor] | None:
    """Tensors such as fitting gives a policy, at random."""
    made = _drawn(model, name)
    return made and {key: value.to(model.dtype) for key, value in made.items()}


def _drawn(model: MultiExitModel, name: str) -> dict[str, Tensor] | None:
    draw = torch.Generator().manual_seed(0)
    if name == "learned":
        every = range(1, LAYERS + 1)
        weights = {f"{d}.weight": torch.randn(model.width(model.depth) + 3, generator=draw) for d in every}
        return weights | {f"{d}.bias": torch.zeros(()) for d in every}
    if name == "prior":
        shapes = {"weight": (32, LAYERS), "length": (LAYERS,), "bias": (LAYERS,)}
        return {key: torch.randn(*shape, generator=draw) for key, shape in shapes.items()}
    return None


def rule(model: MultiExitModel, name: str, thresholds: float | dict[int, float]) -> Scored:
    return cast(Scored, policy(name, thresholds, patience=2, tensors=fitted(model, name)))


@torch.no_grad()
def pool(model: MultiExitModel, batch: Batch) -> Pooled:
    return Pooled(batch, model.outputs(batch))


def levels(
    model: MultiExitModel, texts: Batch, name: str, exits: Sequence[int], shares: Sequence[float]
) -> dict[int, float]:
    """Thresholds by depth: what about these shares of all scores that some texts have at these exits do not reach."""
    low = POLICIES[name].range[0]  # type: ignore[attr-defined]
    made = rule(model, name, max(low, 0.0))
    found = scores(made, pool(model, texts), exits)  # (E, N)
    ranked = found.nan_to_num(neginf=0.0).flatten().sort().values  # (E * N,)
    # A little less, so that rounding does not decide where scores are few and often the same.
    cut = [ranked[round(share * (len(ranked) - 1))].item() - 1e-3 for share in shares[: len(exits)]]
    shut = [share > 0.9 for share in shares]  # such an exit is read, and nobody leaves there
    return {
        depth: math.inf if closed else max(low, value) for depth, value, closed in zip(exits, cut, shut, strict=False)
    }


@torch.no_grad()
def slowly(model: MultiExitModel, batch: Batch, name: str, thresholds: dict[int, float]) -> tuple[Tensor, list[int]]:
    """Text by text, exit by exit, in Python floats: the logits and the depth of each text."""
    exits = sorted(thresholds)
    given: dict[str, Any] = {"patience": 2}
    tensors = fitted(model, name)
    if name == "learned" and tensors:
        given["heads"] = [(tensors[f"{d}.weight"].tolist(), tensors[f"{d}.bias"].item()) for d in exits]
    if name == "prior" and tensors:
        of = lambda key, d: tensors[key][..., d - 1].tolist()  # noqa: E731
        given["priors"] = [(of("weight", d), of("length", d), of("bias", d)) for d in exits]
    logits, left = [], []
    for row in range(len(batch)):
        one = alone(batch, row)
        outputs = model.outputs(one)
        said = [
            (o.representation[0].tolist(), o.logits[0].tolist(), o.label_embeddings.tolist())
            for o in (outputs[d] for d in exits)
        ]
        found = reference.scores(name, said, tokens=one.input_ids[0].tolist(), **given)
        wanted = [thresholds[d] for d in exits]
        assume(
            all(abs(s - t) > 1e-5 or s == t for s, t in zip(found, wanted, strict=True))
        )  # rounding may decide there
        depth = reference.depth(found, wanted, exits, LAYERS)
        logits.append(outputs[depth].logits[0])
        left.append(depth)
    return torch.stack(logits), left
