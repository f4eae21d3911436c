"""What a verb prints: results on standard output, words about them on standard error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from offramp.report.curve import Curve
    from offramp.report.tag_metrics import Evaluated


def print_json(value: Any) -> None:
    """A result for machines, on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def say(text: str) -> None:
    """A word to who sits there."""
    typer.echo(text, err=True)


def console() -> Console:
    """Where progress is shown."""
    from rich.console import Console

    return Console(stderr=True)


def print_evaluation(evaluation: Evaluated) -> None:
    """Scores, and a table with a row for each exit."""
    from rich.console import Console
    from rich.table import Table as RichTable

    from offramp.report.chance import in_words
    from offramp.report.tag_metrics import TagEvaluation

    shown = evaluation.shown
    typer.echo("  ".join(f"{heading} {getattr(evaluation, name):.4f}" for name, heading in shown.items()))
    typer.echo(f"{evaluation.n} texts, mean depth {evaluation.mean_depth:.2f} of {len(evaluation.depths)}")
    if likely := in_words(evaluation):
        typer.echo(f"{shown['accuracy']} on all such texts: {likely}")
    words = evaluation.word_depths if isinstance(evaluation, TagEvaluation) else {}
    if isinstance(evaluation, TagEvaluation):
        unread = f", {evaluation.unread} of them not read" if evaluation.unread else ""
        typer.echo(f"{evaluation.words} words{unread}, mean depth {evaluation.mean_word_depth:.2f}")
    columns = {name: shown[name] for name in ("accuracy", "span_f1")} if words else shown
    left = ["words that left", "texts that left"] if words else ["texts that left here"]
    table = RichTable("depth", *columns.values(), *left)
    for row in evaluation.by_exit:
        cells = [f"{getattr(row, name):.4f}" if row.trained else "untrained" for name in columns]
        cells += [str(words[row.depth])] if words else []
        table.add_row(str(row.depth), *cells, str(evaluation.depths[row.depth]))
    Console(highlight=False).print(table)
    if isinstance(evaluation, TagEvaluation):
        spans = RichTable("spans", "there are", "told", "precision", "recall", "F1")
        for each in evaluation.by_label:
            shares = (f"{share:.4f}" for share in (each.precision, each.recall, each.f1))
            spans.add_row(each.label, str(each.spans), str(each.given), *shares)
        Console(highlight=False).print(spans)


def print_curve(curve: Curve) -> None:
    """Accuracy, layers and time at each threshold."""
    from rich.console import Console
    from rich.table import Table as RichTable

    from offramp.report.curve import conditions, found

    points, judged = RichTable("policy", "threshold", "accuracy", "layers", "ms per text"), RichTable("depth", "AUROC")
    for point in curve.rows():
        points.add_row(*point)
    for exit in curve.judged():
        judged.add_row(*exit)
    typer.echo("")
    Console(highlight=False).print(points)
    typer.echo(f"{found(curve)}\n{conditions(curve)}\n\nHow well {curve.policy} tells right answers from wrong ones:")
    Console(highlight=False).print(judged)
