"""A model of a verb, and the texts that it is to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offramp.verbs.printing import say

if TYPE_CHECKING:
    from offramp.classifier import Classifier
    from offramp.data.sources import Table


def check_there(model: Path, data: str | None = None) -> None:
    """Refuse a model folder or labelled texts that are not there, before seconds go into loading what reads them."""
    from offramp.data.presence import check_data
    from offramp.runtime.onnx_folder import check_any

    check_any(model)
    check_data(data)


def load(
    model: Path,
    policy: str | None = None,
    threshold: float | None = None,
    depth: int | None = None,
    threads: int | None = None,
    certificate: bool = True,
) -> Classifier:
    """A model under a policy; with a warning where that stops at an exit which nobody trained."""
    from offramp.classifier import Classifier
    from offramp.policies import check_choice

    check_choice(policy, threshold, depth)
    classifier = Classifier.load(model, threads, certificate, policy=policy, threshold=threshold, depth=depth)
    chosen = classifier.policy_in_force()
    trained = classifier.engine_.trained
    # An exit that was not exported is refused later.
    if chosen["name"] == "fixed" and chosen["depth"] not in trained and chosen["depth"] in classifier.engine_.exits:
        say(f"warning: the exit at depth {chosen['depth']} was not trained; trained: {', '.join(map(str, trained))}")
    return classifier


def read_for(
    classifier: Classifier, data: str, text: list[str] | None, label: str | None, labels_required: bool = True
) -> Table:
    """Labelled texts, in the columns that the model was trained on unless others are named."""
    from offramp.data.sources import columns, read

    return read(data, **columns(classifier.config_.data, text, label), labels_required=labels_required)
