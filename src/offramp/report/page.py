"""DECISIONS -> NUMBERS, PICTURES: one HTML page that stands by itself: no script, nothing fetched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from offramp.config import AlignmentConfig
from offramp.errors import MissingExtra
from offramp.report import captions, figures
from offramp.report.canvas import need_matplotlib
from offramp.report.chance import in_words as accuracy_in_words
from offramp.report.curve import Curve, speed_quality
from offramp.report.curve import caption as curve_caption
from offramp.report.exit_map import MOST_CLOSE, ExitMap, draw_map
from offramp.report.history import History
from offramp.report.markup import details, figure, section, table, text
from offramp.report.metrics import NAMES, Evaluation, ExitScore
from offramp.report.set_metrics import SetEvaluation, SetExitScore
from offramp.report.style import CSS
from offramp.report.tag_metrics import Evaluated, TagEvaluation, TagExitScore

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
"""


def render(
    title: str,
    evaluation: Evaluated | None,
    history: History,
    config: Mapping[str, Any],
    facts: Mapping[str, str],
    seen: ExitMap | None = None,
    curve: Curve | None = None,
) -> str:
    """The report of a run: facts, headline numbers, exits, depths, confusions, speed, a map, training, configuration.

    What has no data is left out. Without matplotlib the page has the tables and the numbers, and says what is missing.
    """
    parts = [
        f"{HEAD}<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>",
        _header(title, facts, drawn=any((evaluation, seen, curve)) or history != History()),
        "" if evaluation is None else _evaluation(evaluation),
        "" if curve is None else _curve(curve),
        "" if seen is None else _map(seen),
        _training(history, config),
        _configuration(config),
        "<footer>Written by offramp.</footer>",
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _header(title: str, facts: Mapping[str, str], drawn: bool) -> str:
    rows = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items())
    listed = f'<dl class="facts">{rows}</dl>' if rows else ""
    return f"<header><h1>{text(title)}</h1>{listed}{_missing() if drawn else ''}</header>"


def _missing() -> str:
    """A sentence for a page without figures."""
    try:
        need_matplotlib()
    except MissingExtra as error:
        return f"<p>The figures are left out. {text(error)}</p>"
    return ""


def _evaluation(evaluation: Evaluated) -> str:
    depths, total, shown = evaluation.depths, evaluation.n, evaluation.shown
    every: Sequence[ExitScore | SetExitScore | TagExitScore] = evaluation.by_exit
    idle = [number for number, exit in enumerate(every) if not exit.trained]
    rows: list[tuple[object, ...]] = [
        (e.depth, *(f"{getattr(e, name):.3f}" for name in shown), "yes" if e.trained else "no") for e in every
    ]
    trained = [exit for exit in every if exit.trained]
    if len(trained) > 1:
        means = (sum(getattr(exit, name) for exit in trained) / len(trained) for name in shown)
        rows.append(("Mean", *(f"{mean:.3f}" for mean in means), len(trained)))
    exits = table(
        "Scores if every text left at this exit",
        ("Depth", *map(_heading, shown.values()), "Trained"),
        rows,
        "ln" + "n" * len(shown),
        idle,
    )
    left = table(
        "Texts by the depth at which they left",
        ("Depth", "Texts", "Share"),
        [(depth, f"{count:,}", f"{count / total:.1%}") for depth, count in depths.items()],
        "lnn",
    )
    by_depth = figure("Texts by depth", captions.depths(evaluation), lambda: figures.depth_histogram(evaluation))
    parts = [_headline(evaluation)]
    if evaluation.by_exit:
        curves = figure("Scores by depth", captions.exits(evaluation), lambda: figures.exit_scores(evaluation))
        parts.append(section("exits", "Score of each exit", curves, exits))
    parts.append(section("depths", "Where texts left", by_depth, left))
    if isinstance(evaluation, TagEvaluation):
        parts.append(_by_span(evaluation))
    else:
        parts.append(_confused(evaluation) if isinstance(evaluation, Evaluation) else _by_label(evaluation))
    return "\n".join(parts)


def _confused(evaluation: Evaluation) -> str:
    pairs = evaluation.confused_pairs()
    confused = table(
        "Most confused pairs",
        ("True label", "Predicted label", "Texts", "Share of the true label"),
        [(pair.truth, pair.predicted, f"{pair.count:,}", f"{pair.share:.1%}") for pair in pairs],
        "llnn",
    )
    layout = "pair" if len(evaluation.labels) <= figures.MOST_COUNTED else "stack"
    matrix = figure("Confusion matrix", captions.confusion(evaluation), lambda: figures.confusion_matrix(evaluation))
    return section("confusion", "What was confused", matrix, confused if pairs else "", layout=layout)


def _by_label(evaluation: SetEvaluation) -> str:
    """A row for each label: a set has no one label that is taken for another."""
    rows: list[tuple[object, ...]] = []
    for each in evaluation.by_label:
        shares = (f"{share:.3f}" for share in (each.precision, each.recall, each.f1))
        rows.append((each.label, f"{each.texts:,}", f"{each.given:,}", *shares))
    head = ("Label", "Texts that have it", "Texts given it", "Precision", "Recall", "F1")
    return section("labels", "Each label", table("How well each label was told", head, rows, "lnnnnn"), layout="stack")


def _by_span(evaluation: TagEvaluation) -> str:
    """A row for each label of spans, and where words left: a text leaves with the last of its words."""
    rows: list[tuple[object, ...]] = []
    for each in evaluation.by_label:
        shares = (f"{share:.3f}" for share in (each.precision, each.recall, each.f1))
        rows.append((each.label, f"{each.spans:,}", f"{each.given:,}", *shares))
    head = ("Label", "Spans", "Spans told", "Precision", "Recall", "F1")
    found = table("How well the spans of each label were found", head, rows, "lnnnnn")
    read = max(1, evaluation.words - evaluation.unread)
    left = table(
        "Words by the depth at which they left",
        ("Depth", "Words", "Share"),
        [(depth, f"{count:,}", f"{count / read:.1%}") for depth, count in evaluation.word_depths.items()],
        "lnn",
    )
    return section("labels", "Spans and words", found, left, layout="stack")


def _curve(found: Curve) -> str:
    drawn = figure("Speed and quality", curve_caption(found), lambda: speed_quality(found))
    rows = list(found.rows())
    points = table(
        "Every point of the figure", ("Policy", "Threshold", "Accuracy", "Mean layers", "ms per text"), rows, "lnnnn"
    )
    judged = table(
        f"How often {found.policy} scores a right answer of the exit above a wrong one",
        ("Depth", "AUROC"),
        list(found.judged()),
        "ln",
    )
    folded = details(f"All {len(rows)} points as a table", points)
    return section("curve", "Speed and quality", f"<div>{drawn}{folded}</div>", judged, layout="stack")


def _map(found: ExitMap) -> str:
    drawn = figure(f"What the exit at depth {found.depth} sees", captions.exit_map(found), lambda: draw_map(found))
    nearest = table(
        "Texts whose nearest label embedding is that of their label",
        ("Label", "Texts", "Nearest", "Share"),
        [
            (name, f"{texts:,}", f"{near:,}", f"{near / texts:.1%}" if texts else "")
            for name, texts, near in zip(found.names, found.of_label, found.near_label, strict=True)
        ],
        "lnnn",
    )
    if len(found.names) <= MOST_CLOSE:
        return section("map", "Representations", drawn, nearest)
    folded = details(f"All {len(found.names):,} labels as a table", nearest)
    return section("map", "Representations", drawn, folded, layout="stack")


def _heading(name: str) -> str:
    return name[0].upper() + name[1:]


def _headline(evaluation: Evaluated) -> str:
    scores = evaluation.shown | ({"mcc": NAMES["mcc"]} if isinstance(evaluation, Evaluation) else {})
    notes = {"accuracy": accuracy_in_words(evaluation)}
    cards = (
        *(
            (_heading(heading), f"{getattr(evaluation, name):.3f}", notes.get(name, ""))
            for name, heading in scores.items()
        ),
        ("Mean depth", f"{evaluation.mean_depth:.2f}", f"of {evaluation.layers} layers"),
        *(
            [("Mean depth of words", f"{evaluation.mean_word_depth:.2f}", f"{evaluation.words:,} words")]
            if isinstance(evaluation, TagEvaluation)
            else []
        ),
        ("Texts", f"{evaluation.n:,}", f"{len(evaluation.labels):,} labels"),
    )
    listed = "".join(
        f'<div class="card"><dt>{name}</dt><dd>{value}{f"<small>{note}</small>" if note else ""}</dd></div>'
        for name, value, note in cards
    )
    return f'<section class="headline" aria-label="Headline numbers"><dl class="cards">{listed}</dl></section>'


PHASES = {"exits": "Training of the exits below the last"}
"""Headings of phases beside the first, which is the training."""


def _training(history: History, config: Mapping[str, Any]) -> str:
    return "\n".join(
        section(f"training-{number}" if number else "training", PHASES.get(name, "Training"), *_phase(part, config))
        for number, (name, part) in enumerate(history.phases.items())
    )


def _phase(history: History, config: Mapping[str, Any]) -> list[str]:
    parts = []
    if any(math.isfinite(record.loss) for record in history.full_steps):
        parts.append(figure("Loss by update", captions.loss(history), lambda: figures.loss_curve(history)))
    if any(record.angle is not None and math.isfinite(record.angle) for record in history.steps):
        alignment = config.get("alignment")
        settings = alignment if isinstance(alignment, Mapping) else {}
        dropping = settings.get("aggregator", AlignmentConfig.aggregator) == "drop"
        threshold = float(settings.get("threshold", AlignmentConfig.threshold)) if dropping else None
        caption = captions.angles(history, threshold)
        parts.append(figure("Gradient angles", caption, lambda: figures.angle_curve(history, threshold)))
    if history.cosines:
        caption = captions.cosines(history)
        parts.append(figure("Gradient cosines", caption, lambda: figures.cosine_strips(history)))
    if any(math.isfinite(record.score) for record in history.epochs):
        caption = captions.validation(history)
        drawn = figure("Validation by epoch", caption, lambda: figures.validation_curve(history))
        parts.append(f"<div>{drawn}{details(f'All {len(history.epochs):,} epochs as a table', _epochs(history))}</div>")
    return parts


def _epochs(history: History) -> str:
    """A row for each epoch; where several exits were scored, with the score of each beside their mean."""
    metric = NAMES.get(history.epochs[0].metric, history.epochs[0].metric)
    depths = list(dict.fromkeys(depth for record in history.epochs for depth in record.by_exit))
    depths = depths if len(depths) > 1 else []
    head = ("Epoch", "Update", f"Mean {metric}" if depths else metric, *(f"Depth {depth}" for depth in depths))
    rows = [
        (
            record.epoch,
            record.step,
            f"{record.score:.3f}",
            *(f"{record.by_exit.get(depth, math.nan):.3f}" for depth in depths),
            f"{record.loss:.3f}",
        )
        for record in history.epochs
    ]
    return table("Validation by epoch", (*head, "Training loss"), rows, "lnnn" + "n" * len(depths))


def _configuration(config: Mapping[str, Any]) -> str:
    rows = list(_flat(config))
    if not rows:
        return ""
    fields = table("Every field of this run", ("Field", "Value"), rows, "ll")
    return section("configuration", "Configuration", details(f"All {len(rows)} fields", fields), layout="stack")


def _flat(tree: Mapping[str, Any], stem: str = "") -> Iterator[tuple[str, str]]:
    """Every field with its dotted name."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{stem}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{stem}{name}", ", ".join(map(str, value))
        else:
            yield f"{stem}{name}", str(value)
