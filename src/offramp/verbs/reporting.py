"""The page with pictures that a verb writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import UserError

if TYPE_CHECKING:
    from offramp.classifier import Classifier
    from offramp.data.sources import Table
    from offramp.report.curve import Curve
    from offramp.report.exit_map import ExitMap
    from offramp.report.tag_metrics import Evaluated


def write_report(
    file: Path,
    title: str,
    classifier: Classifier,
    evaluation: Evaluated,
    model: Path,
    data: Table,
    map_depth: int | None = None,
    curve: Curve | None = None,
) -> None:
    """Write the page of an evaluation, with the training of the model that was evaluated."""
    from offramp.config import to_mapping
    from offramp.report.captions import policy as in_words
    from offramp.report.history import read_history
    from offramp.report.page import render

    config = classifier.config_
    facts = {
        "recipe": config.recipe,
        "backbone": config.encoder.backbone,
        "layers": str(classifier.engine_.depth),
        "labels": str(len(classifier.labels_)),
        "policy": in_words(evaluation.policy),
    }
    if classifier.certificate is not None:
        facts["certificate"] = classifier.certificate.promises()
    history = read_history(model / "training" / "log.jsonl")
    page = render(title, evaluation, history, to_mapping(config), facts, _map(classifier, data, map_depth), curve)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, "utf-8")
    except OSError as error:
        raise UserError(f"The report should go to a file that can be written. Found `{file}`: {error}.") from error


def check_map(classifier: Classifier, depth: int | None, report: Path | None) -> None:
    """Refuse a map of what cannot be mapped, or that nobody would see."""
    trained = classifier.engine_.trained
    if depth is not None and (classifier.sets_ or classifier.tags_):
        found = "sets" if classifier.sets_ else "tags"
        raise UserError(
            f"`--map` should be asked of a model that gives one label, which colours a text. Found {found}."
        )
    if depth is not None and depth not in trained:
        possible = ", ".join(map(str, trained)) or "none"
        raise UserError(f"`--map` should be the depth of an exit that was trained: {possible}. Found {depth}.")
    if depth is not None and report is None:
        raise UserError("`--map` should come with `--report FILE`: the map is a part of the page.")


def _map(classifier: Classifier, data: Table, depth: int | None) -> ExitMap | None:
    """A map of what the chosen exit sees; None where nobody chose one and there are too few texts for it."""
    from offramp.report.exit_map import LEAST, chosen_depth, lay_out

    trained = classifier.engine_.trained
    if depth is None and (len(data.examples) < LEAST or not trained or classifier.sets_ or classifier.tags_):
        return None
    chosen = depth or chosen_depth(list(trained))
    vectors, anchors = classifier.representations(data, chosen)
    names = [str(name) for name in classifier.labels_.names]
    return lay_out(chosen, vectors.numpy(), anchors.numpy(), classifier.truth(data), names)
