"""LOGITS SO FAR -> LEAVE OR STAY: what is asked of thresholds, and how many texts that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.errors import ConfigError, DataError
from offramp.policies.bounds import needed


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked of the thresholds: a risk that is kept with confidence, a budget, or both."""

    epsilon: float | None = None  # the largest risk
    delta: float = 0.05  # the chance that it is larger nevertheless
    budget: float | None = None  # the largest mean cost, in the unit of `Evidence.cost`
    share: float = 0.3  # of the texts for selection
    exit_cost: float = 0.06  # of reading an exit, in layers
    seed: int = 0  # of the division

    def __post_init__(self) -> None:
        if self.epsilon is None and self.budget is None:
            raise ConfigError("Calibration should have a largest risk or a budget. Found neither.")
        for name in ("epsilon", "delta", "share"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ConfigError(f"`{name}` should be between 0 and 1, both excluded. Found {value:g}.")
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise ConfigError(f"`budget` should be above 0. Found {self.budget:g}.")
        if not 0 <= self.exit_cost < math.inf:
            raise ConfigError(f"`exit_cost` should be 0 or more. Found {self.exit_cost:g}.")


def texts_needed(terms: Terms, tried: int = 1) -> int:
    """The fewest texts, of both parts together, with which `epsilon` can be certified at all."""
    least = 1 if terms.epsilon is None else needed(terms.epsilon, terms.delta / tried)
    total = max(2, least)
    while total - _selected(total, terms) < least or not _selected(total, terms):
        total += 1
    return total


def least_risk(texts: int, terms: Terms, tried: int = 1) -> float:
    """The smallest risk, in whole tenths of a percent, that so many texts can certify; 1 where they certify nothing."""
    certifying = texts - _selected(texts, terms)
    if certifying == texts:
        return 1.0
    return math.ceil(1000 * (1 - math.pow(terms.delta / tried, 1 / certifying))) / 1000


def divide(texts: int, terms: Terms, tried: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the selection and of the certification texts; too few of them is an error that says how many."""
    least = texts_needed(terms, tried)
    if texts < least:
        found = f"Found {texts}."
        if terms.epsilon is None:
            raise DataError(f"Calibration should have at least {least} texts. {found} Give more.")
        alone = least - _selected(least, terms)
        advice = f"Give at least {least}, or tolerate a larger risk or less confidence."
        if (possible := least_risk(texts, terms, tried)) < 1:
            one = least_risk(texts, terms)
            fewer = f", of one policy that is named {100 * one:g} %" if one < possible else ""
            advice += f" What {texts} texts can certify is a risk of {100 * possible:g} % or more{fewer}."
        raise DataError(
            f"A risk of at most {100 * terms.epsilon:g} % with {100 * (1 - terms.delta):g} % confidence should have "
            f"at least {least} held-out texts: {alone} to certify with, the others to choose by. {found} {advice}"
        )
    order = torch.randperm(texts, generator=torch.Generator().manual_seed(terms.seed)).numpy()
    first = _selected(texts, terms)
    return np.sort(order[:first]), np.sort(order[first:])


def _selected(texts: int, terms: Terms) -> int:
    return int(texts * terms.share)
