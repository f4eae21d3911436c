"""LOGITS SO FAR -> LEAVE OR STAY: one file per policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor

from offramp.errors import ConfigError, unknown_name
from offramp.policies.anchor import Anchor
from offramp.policies.confidence import Confidence
from offramp.policies.energy import Energy
from offramp.policies.entropy import Entropy
from offramp.policies.fixed import Fixed
from offramp.policies.learned import Learned
from offramp.policies.margin import Margin
from offramp.policies.never import Never
from offramp.policies.patience import Patience
from offramp.policies.patient_confidence import PATIENCE, PatientConfidence
from offramp.policies.prior import Prior
from offramp.policies.scored import Scored
from offramp.policies.vote import Vote
from offramp.types import Policy

POLICIES: dict[str, type[Never]] = {
    "never": Never,
    "fixed": Fixed,
    "confidence": Confidence,
    "entropy": Entropy,
    "margin": Margin,
    "energy": Energy,
    "anchor": Anchor,
    "patience": Patience,
    "patient-confidence": PatientConfidence,
    "vote": Vote,
    "learned": Learned,
    "prior": Prior,
}

FITTED = ("learned", "prior")
"""Those that are fitted to held-out texts before they can run."""


def check_sets(name: str) -> None:
    """Refuse a policy that cannot tell of a set of labels when to leave."""
    if not POLICIES[name].takes_sets:
        known = ", ".join(name for name, kind in POLICIES.items() if kind.takes_sets)
        raise ConfigError(f"The policy should be one for sets of labels: {known}. Found `{name}`.")


def check_words(name: str) -> None:
    """Refuse a policy that cannot tell of each word of a text when to leave."""
    if not POLICIES[name].takes_words:
        known = ", ".join(name for name, kind in POLICIES.items() if kind.takes_words)
        raise ConfigError(f"The policy should be one for words: {known}. Found `{name}`.")


def check_choice(name: str | None, threshold: float | None, depth: int | None) -> None:
    """Refuse a threshold or a depth that the policy has none of, and that would be left out without a word."""
    if threshold is not None and depth is not None:
        raise ConfigError("Either a threshold or a depth should say when texts leave. Found both.")
    if threshold is not None and name in POLICIES and not issubclass(POLICIES[name], Scored):
        raise ConfigError(f"`threshold` should stand with a policy that has one. Found `{name}`.")
    if depth is not None and name not in (None, "fixed"):
        raise ConfigError(f"`depth` should stand with the policy `fixed`, or alone. Found `{name}`.")


def policy(
    name: str,
    threshold: float | Mapping[int, float],
    depth: int = 0,
    patience: int = PATIENCE,
    tensors: Mapping[str, Tensor] | None = None,
    sets: bool = False,
) -> Policy:
    """The policy of this name, with the settings it takes.

    `threshold` is one for all exits or one per depth; `tensors` is what the `state` of a fitted policy gave; `sets`
    says that each text has a set of labels.
    """
    if name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    if sets:
        check_sets(name)
    if name == "never":
        return Never()
    if name == "fixed":
        return Fixed(depth)
    if name == "patient-confidence":
        return PatientConfidence(threshold, patience, sets)
    if name in FITTED:
        if not tensors:
            raise ConfigError(
                f"The policy `{name}` should be fitted to held-out texts first. Found nothing fitted. "
                f"Run: offramp calibrate MODEL DATA --policy {name}"
            )
        return Learned.from_state(threshold, tensors) if name == "learned" else Prior(threshold, tensors)
    return cast(type[Scored], POLICIES[name])(threshold, sets)
