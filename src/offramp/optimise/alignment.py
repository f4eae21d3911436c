"""LOSS -> PARAMETERS: gradient alignment (ACL-Grad).

The auxiliary term takes part in an update only where its gradient does not turn away from the main
term's (ACL section 4.3, eq. 2 and 4):

    gamma = arccos( g_main . g_aux / (|g_main| |g_aux|) )
    update with  w_main g_main + w_aux g_aux   if gamma <= threshold,   else  w_main g_main

A NaN angle, such as a zero gradient gives, drops the term. For comparison, `offramp.optimise.aggregators` has other
ways to make one step of two gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from offramp.optimise import processes

Gradients = Sequence[Tensor | None]
Aggregator = Callable[[Tensor], tuple[float, float]]
"""The two gradients' dot products with each other, (2, 2), to the weights with which they make the step."""


@dataclass(frozen=True, slots=True)
class Angle:
    """How the two terms' gradients stood to each other on one batch."""

    degrees: float
    kept: bool  # whether the auxiliary gradient has a part in the step
    main_norm: float
    auxiliary_norm: float
    cosines: dict[str, float] = field(default_factory=dict)  # by group of parameters; NaN where a term has no gradient


@dataclass(frozen=True, slots=True)
class Rule:
    """From which angle on the two gradients conflict, and how they make a step."""

    threshold: float = 90.0  # degrees
    aggregator: Aggregator | None = None  # None: the auxiliary gradient is dropped beyond the threshold


def align(
    main: Gradients,
    auxiliary: Gradients,
    main_weight: float,
    auxiliary_weight: float,
    rule: Rule,
    groups: Sequence[str] = (),
    apart: int = 0,
) -> tuple[list[Tensor | None], Angle]:
    """The gradient to step with, and the angle that decided it.

    Both lists run over the same tensors; None is a tensor the term does not reach. A sparse gradient is
    an embedding's, whose rows are those of the batch for both terms. `groups` names each tensor's group. The last
    `apart` tensors are of one group and hold this process's texts only: others have theirs.
    """
    rows_main, rows_auxiliary = [_rows(g) for g in main], [_rows(g) for g in auxiliary]
    products = torch.stack(  # (3, tensors)
        [_dots(rows_main, rows_auxiliary), _dots(rows_main, rows_main), _dots(rows_auxiliary, rows_auxiliary)]
    ).cpu()
    if apart:
        # Each process's loss reads every text, so that the gradient at a text is too large by the number of processes.
        here = products[:, -apart:].sum(dim=1, keepdim=True).to(_device(main))
        everywhere = processes.total(here).cpu() / processes.count() ** 2
        products = torch.cat([products[:, :-apart], everywhere], dim=1)
        groups = groups[: products.shape[1]]
    dot, main_square, auxiliary_square = products.sum(dim=1).tolist()
    degrees = _degrees(_cosine(dot, main_square, auxiliary_square))
    kept = degrees <= rule.threshold  # False for NaN
    weights = (main_weight, auxiliary_weight if kept else 0.0)
    # An aggregator may answer a zero gradient with a zero step: where one is zero, the rule above stands.
    if rule.aggregator is not None and math.isfinite(degrees) and main_weight and auxiliary_weight:
        scale = torch.tensor([main_weight, auxiliary_weight], dtype=torch.float64)  # (2,)
        gramian = torch.tensor([[main_square, dot], [dot, auxiliary_square]], dtype=torch.float64)  # (2, 2)
        shares = rule.aggregator(scale[:, None] * gramian * scale)
        kept = shares[1] != 0.0
        weights = (main_weight * shares[0], auxiliary_weight * shares[1])
    norms = (math.sqrt(main_square), math.sqrt(auxiliary_square))
    return _combine(main, auxiliary, *weights), Angle(degrees, kept, *norms, _by_group(products, groups))


def _combine(main: Gradients, auxiliary: Gradients, main_weight: float, auxiliary_weight: float) -> list[Tensor | None]:
    combined: list[Tensor | None] = []
    for first, second in zip(main, auxiliary, strict=True):
        scaled = None if first is None else main_weight * first
        if auxiliary_weight and second is not None:
            scaled = auxiliary_weight * second if scaled is None else scaled.add_(second, alpha=auxiliary_weight)
        combined.append(scaled)
    return combined


def _rows(gradient: Tensor | None) -> Tensor | None:
    """A gradient as a dense tensor; of a sparse one, its rows, summed and in order."""
    return gradient.coalesce().values() if gradient is not None and gradient.is_sparse else gradient


def _dots(first: Gradients, second: Gradients) -> Tensor:
    """The dot product of each pair, 0 where one is missing, (tensors,)."""
    device = _device((*first, *second))
    nothing = torch.zeros((), dtype=torch.float64, device=device)
    found = [
        nothing if a is None or b is None else torch.dot(a.flatten(), b.flatten()).double()
        for a, b in zip(first, second, strict=True)
    ]
    return torch.stack(found) if found else nothing[None]


def _device(gradients: Gradients) -> torch.device:
    return next((g.device for g in gradients if g is not None), torch.device("cpu"))


def _by_group(products: Tensor, groups: Sequence[str]) -> dict[str, float]:
    sums: dict[str, Tensor] = {}
    for column, group in enumerate(groups):
        sums[group] = sums[group] + products[:, column] if group in sums else products[:, column]
    return {group: _cosine(*three.tolist()) for group, three in sums.items()}


def _cosine(dot: float, main_square: float, auxiliary_square: float) -> float:
    length = math.sqrt(main_square) * math.sqrt(auxiliary_square)
    if not length or not math.isfinite(length) or not math.isfinite(dot):
        return math.nan
    return max(-1.0, min(1.0, dot / length))


def _degrees(cosine: float) -> float:
    return math.degrees(math.acos(cosine))  # NaN for NaN
