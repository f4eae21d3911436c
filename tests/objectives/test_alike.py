"""At most so many of a label are contrasted: it is the contrast of those, and the cross entropy is that of all."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.objectives import objective
from offramp.objectives.contrast import spread
from offramp.types import ExitOutput

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(LABELS, st.integers(1, 6))
def test_of_each_label_as_many_stay_as_may_and_evenly(labels: list[int], most: int) -> None:
    rows = spread(torch.tensor(labels), most).tolist()
    assert rows == sorted(set(rows))
    counts, kept = Counter(labels), Counter(labels[row] for row in rows)
    assert kept == {label: min(count, most) for label, count in counts.items()}
    for label, count in counts.items():
        ranks = [number for number, row in enumerate(r for r, own in enumerate(labels) if own == label) if row in rows]
        gaps = {b - a for a, b in itertools.pairwise(ranks)}
        assert not gaps or max(gaps) <= -(-count // min(most, count))


def drawn(texts: int = 24, seed: int = 0) -> tuple[ExitOutput, ExitOutput, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    parts = [(texts, 6), (texts, 4), (4, 6)]
    student, teacher = (ExitOutput(*(torch.randn(*shape, generator=draw) for shape in parts)) for _ in range(2))
    return student, teacher, (torch.rand(texts, generator=draw) ** 3 * 4).long()


@pytest.mark.parametrize("name", ["scl", "acl", "acl-cl"])
def test_the_contrast_is_that_of_the_rows_that_stay(name: str) -> None:
    student, teacher, labels = drawn()
    rows = spread(labels, 3)
    assert len(rows) < len(labels)

    def few(output: ExitOutput) -> ExitOutput:
        return ExitOutput(output.representation[rows], output.logits[rows], output.label_embeddings)

    found = objective(name, weight=0.5, temperature=0.3, alike=3)(student, labels, teacher)
    whole = objective(name, weight=0.5, temperature=0.3)(student, labels, teacher)
    part = objective(name, weight=0.5, temperature=0.3)(few(student), labels[rows], few(teacher))
    assert torch.equal(found.main, whole.main)
    assert found.auxiliary is not None
    assert part.auxiliary is not None
    assert whole.auxiliary is not None
    torch.testing.assert_close(found.auxiliary, part.auxiliary)
    assert not torch.isclose(found.auxiliary, whole.auxiliary)


@pytest.mark.parametrize("name", ["scl", "acl", "acl-cl"])
def test_a_cap_that_nobody_reaches_changes_no_bit(name: str) -> None:
    student, teacher, labels = drawn()
    plain, capped = (objective(name, weight=0.5, alike=most)(student, labels, teacher).total for most in (0, 24))
    assert torch.equal(plain, capped)
