"""How much each training text counts: scikit-learn's sample weights and class weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from offramp.config import Config
from offramp.data.sources import Table
from offramp.errors import ConfigError, DataError
from offramp.optimise.coherence import without_cross_entropy
from offramp.types import Example, Label

ClassWeight = str | Mapping[Label, float] | None
"""`balanced`, a weight for each label (1 for one that is not named), or None."""


def weighted(table: Table, sample_weight: Sequence[float] | None, class_weight: ClassWeight) -> Table:
    """The table with a weight for each text: its own times its label's. A text of weight 0 is left out."""
    texts = len(table.examples)
    if any(example.tags is not None for example in table.examples):
        if sample_weight is not None or isinstance(class_weight, Mapping):
            raise ConfigError("Texts should have no weights where words have tags. Found some: leave them out.")
        return table
    weights = np.ones(texts) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if weights.shape != (texts,):
        raise DataError(f"There should be one weight for each of the {texts} texts. Found the shape {weights.shape}.")
    if isinstance(class_weight, Mapping):
        if any(example.labels is not None for example in table.examples):
            raise ConfigError("`class_weight` should be None where texts have sets of labels. Found a mapping.")
        weights = weights * _of_labels(table, class_weight)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"A weight should be 0 or more, and finite. Found {weights[wrong[0]]} in {table.where(int(wrong[0]))}."
        )
    rows = np.flatnonzero(weights)
    if not len(rows):
        raise DataError("Some text should have a weight above 0. Found none.")
    kept = table.keep(rows.tolist()) if len(rows) < texts else table
    found = zip(kept.examples, weights[rows].tolist(), strict=True)
    return replace(kept, examples=[replace(example, weight=weight) for example, weight in found])


def check_class_weight(class_weight: ClassWeight) -> None:
    """Refuse a word that is not known."""
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise ConfigError(f"`class_weight` should be balanced, a mapping or None. Found `{class_weight}`.")


def check_objective(config: Config, learn: Sequence[Example]) -> None:
    """Refuse weights where nothing would read them."""
    deaf = without_cross_entropy(config)
    if deaf and any(example.weight != 1.0 for example in learn):
        raise ConfigError(
            f"All texts should weigh the same with {deaf}, which has no cross entropy. "
            "Found weights: leave them out, or choose another recipe."
        )


def _of_labels(table: Table, class_weight: Mapping[Label, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    by_name = {str(label): weight for label, weight in class_weight.items()}
    unknown = sorted(by_name.keys() - {str(label) for label in table.labels})
    if unknown:
        raise DataError(f"`class_weight` should name labels of the texts. Found `{unknown[0]}`, which none has.")
    return np.array([by_name.get(str(label), 1.0) for label in table.labels])
