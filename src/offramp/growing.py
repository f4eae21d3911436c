"""Texts for a classifier that exists already: its labels are those of its folder, in its order."""

from __future__ import annotations

from dataclasses import replace

from offramp.config import Config
from offramp.data.sources import Table
from offramp.encoder.classifiers import classifier_labels
from offramp.errors import DataError
from offramp.types import Label


def with_its_labels(
    train: Table, validation: Table | None, config: Config
) -> tuple[Table, Table | None, tuple[Label, ...]]:
    """Tables whose labels are spelled as the classifier spells them, and all of its labels."""
    names = classifier_labels(config.encoder.backbone, config.encoder.revision)
    return spelled(train, names), None if validation is None else spelled(validation, names), names


def spelled(table: Table, names: tuple[Label, ...]) -> Table:
    """The table with labels as in `names`, where each may stand as the name or as the number of its class."""
    by_name = {str(name): name for name in names}
    by_number = {str(number): name for number, name in enumerate(names)}
    given = {str(label) for label in table.labels}
    known = by_name if given <= by_name.keys() else by_number
    both = sorted(text for text in given & by_name.keys() & by_number.keys() if by_name[text] != by_number[text])
    if known is by_number and both:
        raise DataError(
            f"A label should be one of the classifier's, or its number. Found `{both[0]}` in {table.name}, which is "
            "the name of one and the number of another. Write names only."
        )
    examples = []
    for row, example in enumerate(table.examples):
        if str(example.label) not in known:
            shown = ", ".join(f"`{name}`" for name in names[:10]) + (", ..." if len(names) > 10 else "")
            raise DataError(
                f"A label should be one of the classifier's ({shown}) or its number. Found `{example.label}` in "
                f"{table.where(row)}. Rename the labels, or name them in the classifier's `id2label`."
            )
        examples.append(replace(example, label=known[str(example.label)]))
    return replace(table, examples=examples, order=names)
