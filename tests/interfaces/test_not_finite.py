"""A loss that is no number stops the run; the texts of its batch are written down."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offramp import Classifier
from offramp.data.sources import Table, read
from offramp.errors import NotFinite
from offramp.objectives.ce import CrossEntropy
from offramp.optimise.saved_state import SavedState
from offramp.types import Loss

Toy = Callable[..., tuple[list[str], list[str]]]
FEW = {"optimise.epochs": 2, "optimise.batch_size": 6, "optimise.accumulation": 2, "optimise.checkpoint_steps": 1}


@pytest.fixture
def table(toy: Toy) -> Table:
    return read(list(zip(*toy(40), strict=True)))


@pytest.fixture(params=[math.nan, math.inf])
def spoilt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth loss is none: that of the second batch of the second update."""
    forward, calls = CrossEntropy.forward, iter(range(1000))

    def broken(*arguments: Any) -> Loss:
        found = forward(*arguments)
        return replace(found, main=found.main * request.param) if next(calls) == 3 else found

    monkeypatch.setattr(CrossEntropy, "forward", broken)


@pytest.mark.usefixtures("spoilt")
def test_the_texts_of_the_batch_are_kept_and_so_is_the_last_good_checkpoint(
    quick: Callable[..., Classifier], table: Table, tmp_path: Path
) -> None:
    with pytest.raises(NotFinite, match=r"at update 2\. .*checkpoint-1`.*The texts of that batch are in") as caught:
        quick(FEW).fit_table(table, folder=tmp_path / "out")
    file = tmp_path / "out" / "training" / "bad-batch.jsonl"
    assert str(file) in str(caught.value)
    kept = read(file).examples
    assert len(kept) == len(caught.value.rows) == 6  # of that batch, not of both
    assert set(kept) <= set(table.examples)
    assert SavedState(tmp_path / "out" / "training").read() is not None


@pytest.mark.usefixtures("spoilt")
def test_without_a_folder_nothing_is_written(quick: Callable[..., Classifier], table: Table) -> None:
    with pytest.raises(NotFinite, match=r"The loss became (nan|inf)"):
        quick(FEW).fit_table(table)
