"""REPRESENTATION, LOGITS -> LOSS: one file per objective."""

from __future__ import annotations

from typing import Any

from offramp.errors import unknown_name
from offramp.objectives.acl import AlignedContrastive
from offramp.objectives.acl_cl import CrossLayerContrastive
from offramp.objectives.base import Term
from offramp.objectives.ce import CrossEntropy
from offramp.objectives.distill import Distillation
from offramp.objectives.icl import InstanceCentred
from offramp.objectives.infonce import InfoNce
from offramp.objectives.lacon import LabelAnchored
from offramp.objectives.lcl import LabelCentred
from offramp.objectives.ler import LabelRegulariser
from offramp.objectives.scl import SupervisedContrastive

OBJECTIVES: dict[str, type[Term]] = {
    "ce": CrossEntropy,
    "scl": SupervisedContrastive,
    "acl": AlignedContrastive,
    "acl-cl": CrossLayerContrastive,
    "icl": InstanceCentred,
    "lcl": LabelCentred,
    "ler": LabelRegulariser,
    "lacon": LabelAnchored,
    "infonce": InfoNce,
    "distill": Distillation,
}


def objective(name: str, **hyper: Any) -> Term:
    """The objective of this name; hyper-parameters it does not have are left aside."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    kind = OBJECTIVES[name]
    return kind(**{key: value for key, value in hyper.items() if key in kind.hyper})
