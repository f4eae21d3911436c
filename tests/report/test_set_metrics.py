"""Scores of label sets equal those counted by hand, text by text and label by label."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.errors import ConfigError, DataError
from offramp.report.history import History
from offramp.report.page import render
from offramp.report.set_metrics import SetEvaluation, label_scores, set_scores

LABELS = ["app", "bill", "ship"]


def drawn(seed: int, texts: int = 40) -> tuple[list[list[int]], list[list[int]]]:
    draw = np.random.default_rng(seed)
    truth, given = ((draw.random((texts, 3)) < 0.4).astype(int).tolist() for _ in range(2))
    return truth, given


def counted(truth: list[list[int]], given: list[list[int]], label: int) -> tuple[int, int, int]:
    """Right, wrongly given and wrongly withheld."""
    pairs = [(row[label], answer[label]) for row, answer in zip(truth, given, strict=True)]
    return pairs.count((1, 1)), pairs.count((0, 1)), pairs.count((1, 0))


@pytest.mark.parametrize("seed", range(5))
def test_the_scores_are_those_that_are_counted(seed: int) -> None:
    truth, given = drawn(seed)
    found = set_scores(truth, given)
    each = [counted(truth, given, label) for label in range(3)]
    hits, extra, missed = (sum(column) for column in zip(*each, strict=True))
    assert found.accuracy == sum(a == b for a, b in zip(truth, given, strict=True)) / 40
    assert found.micro_f1 == pytest.approx(2 * hits / (2 * hits + extra + missed))
    assert found.macro_f1 == pytest.approx(sum(2 * h / (2 * h + e + m) for h, e, m in each) / 3)
    assert found.hamming_loss == pytest.approx((extra + missed) / 120)
    for row, (h, e, m) in zip(label_scores(truth, given, LABELS), each, strict=True):
        assert (row.texts, row.given) == (h + m, h + e)
        assert [row.precision, row.recall] == pytest.approx([h / (h + e), h / (h + m)])


def test_a_label_that_is_neither_there_nor_given_does_not_count() -> None:
    assert set_scores([[1, 0], [1, 0]], [[1, 0], [1, 0]]).macro_f1 == 1.0
    assert set_scores([[0, 0]], [[0, 0]]).micro_f1 == 0.0


def test_scores_that_sets_do_not_have_are_refused() -> None:
    scores = set_scores(*drawn(0))
    assert scores.value("micro_f1") == scores.micro_f1
    with pytest.raises(ConfigError, match="`mcc` is not a known score of label sets"):
        scores.value("mcc")
    with pytest.raises(DataError, match="Found the shapes"):
        set_scores([[1, 0]], [[1, 0], [0, 0]])


def test_the_page_has_a_row_for_each_label_and_the_scores_of_sets() -> None:
    truth, given = drawn(1)
    evaluation = SetEvaluation.of(
        truth, given, [1] * 30 + [2] * 10, {1: given, 2: truth}, (1, 2), 2, LABELS, {"name": "confidence"}
    )
    assert evaluation.mean_depth == 1.25
    assert [row.accuracy for row in evaluation.by_exit] == [evaluation.accuracy, 1.0]
    page = render("Sets", evaluation, History(), {}, {})
    for wanted in ("How well each label was told", "Hamming loss", "Micro-F1", "Subset accuracy", *LABELS):
        assert wanted in page
    assert "Confusion" not in page
