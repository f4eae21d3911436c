"""LOGITS SO FAR -> LEAVE OR STAY: one file per policy."""

from __future__ import annotations

from offramp.errors import unknown_name
from offramp.policies.confidence import Confidence
from offramp.policies.fixed import Fixed
from offramp.policies.never import Never
from offramp.types import Policy

POLICIES = {"never": Never, "fixed": Fixed, "confidence": Confidence}


def policy(name: str, threshold: float, depth: int) -> Policy:
    """The policy of this name, with the settings it takes."""
    if name == "never":
        return Never()
    if name == "fixed":
        return Fixed(depth)
    if name == "confidence":
        return Confidence(threshold)
    raise unknown_name("policy", name, POLICIES)
