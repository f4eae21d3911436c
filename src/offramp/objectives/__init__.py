"""REPRESENTATION, LOGITS -> LOSS: one file per objective."""

from __future__ import annotations

from typing import Any

from offramp.errors import unknown_name
from offramp.objectives.acl import AlignedContrastive
from offramp.objectives.ce import CrossEntropy
from offramp.objectives.scl import SupervisedContrastive
from offramp.types import Objective

OBJECTIVES: dict[str, type[CrossEntropy]] = {
    "ce": CrossEntropy,
    "scl": SupervisedContrastive,
    "acl": AlignedContrastive,
}


def objective(name: str, **hyper: Any) -> Objective:
    """The objective of this name; hyper-parameters it does not have are left aside."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    kind = OBJECTIVES[name]
    return kind(**{key: value for key, value in hyper.items() if key in kind.hyper})
