"""LOSS -> PARAMETERS: gradient alignment (ACL-Grad).

The auxiliary term takes part in an update only where its gradient does not turn away from the main
term's (ACL section 4.3, eq. 2 and 4):

    gamma = arccos( g_main . g_aux / (|g_main| |g_aux|) )
    update with  w_main g_main + w_aux g_aux   if gamma <= threshold,   else  w_main g_main

A NaN angle, such as a zero gradient gives, drops the term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Gradients = Sequence[Tensor | None]


@dataclass(frozen=True, slots=True)
class Angle:
    """How the two terms' gradients stood to each other on one batch."""

    degrees: float
    kept: bool
    main_norm: float
    auxiliary_norm: float


def align(
    main: Gradients, auxiliary: Gradients, main_weight: float, auxiliary_weight: float, threshold: float
) -> tuple[list[Tensor | None], Angle]:
    """The gradient to step with, and the angle that decided it.

    Both lists run over the same tensors; None is a tensor the term does not reach. A sparse gradient is
    an embedding's, whose rows are those of the batch for both terms.
    """
    rows_main, rows_auxiliary = [_rows(g) for g in main], [_rows(g) for g in auxiliary]
    dot = _dot(rows_main, rows_auxiliary)
    main_norm = math.sqrt(_dot(rows_main, rows_main))
    auxiliary_norm = math.sqrt(_dot(rows_auxiliary, rows_auxiliary))
    degrees = _degrees(dot, main_norm, auxiliary_norm)
    kept = degrees <= threshold  # False for NaN
    combined: list[Tensor | None] = []
    for first, second in zip(main, auxiliary, strict=True):
        scaled = None if first is None else main_weight * first
        if kept and second is not None:
            scaled = auxiliary_weight * second if scaled is None else scaled.add_(second, alpha=auxiliary_weight)
        combined.append(scaled)
    return combined, Angle(degrees, kept, main_norm, auxiliary_norm)


def _rows(gradient: Tensor | None) -> Tensor | None:
    """A gradient as a dense tensor; of a sparse one, its rows, summed and in order."""
    return gradient.coalesce().values() if gradient is not None and gradient.is_sparse else gradient


def _dot(first: Gradients, second: Gradients) -> float:
    products = [
        torch.dot(a.flatten(), b.flatten()).double()
        for a, b in zip(first, second, strict=True)
        if a is not None and b is not None
    ]
    return float(torch.stack(products).sum()) if products else 0.0


def _degrees(dot: float, main_norm: float, auxiliary_norm: float) -> float:
    length = main_norm * auxiliary_norm
    if not length or not math.isfinite(length):
        return math.nan
    return math.degrees(math.acos(max(-1.0, min(1.0, dot / length))))
