"""Scores of tags equal those of slow loops, and those that are counted by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import spans as reference

from offramp.errors import ConfigError, DataError
from offramp.report.history import History
from offramp.report.page import render
from offramp.report.tag_metrics import TagEvaluation, span_scores, tag_scores

TAGS = st.sampled_from(["O", "O", "B-x", "I-x", "B-y", "I-y", "z"])
TEXTS = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=7), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_the_scores_are_those_of_the_slow_loop(texts: list[list[tuple[str, str]]]) -> None:
    truth, told = ([[pair[side] for pair in text] for text in texts] for side in (0, 1))
    found = tag_scores(truth, told)
    wanted = reference.scores(truth, told)
    assert (found.accuracy, found.span_precision, found.span_recall, found.span_f1) == pytest.approx(wanted)
    assert found.words == sum(map(len, texts))
    # Of one label at a time, the others written as outside.
    for row in span_scores(truth, told):
        alone = [
            [[tag if reference.kind(tag) == row.label else "O" for tag in text] for text in side]
            for side in (truth, told)
        ]
        precision, recall, f1 = reference.scores(*alone)[1:]
        assert (row.precision, row.recall, row.f1) == pytest.approx((precision, recall, f1))


def test_an_example_as_it_is_counted_by_hand() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "I-ORG", "O"], ["B-LOC", "B-LOC"]]
    told = [["B-PER", "I-PER", "O", "O"], ["O", "B-ORG", "O", "O"], ["B-LOC", "I-LOC"]]
    # There are 5 spans; told were PER, ORG (too short) and one LOC over two words: one of 3 is right.
    found = tag_scores(truth, told)
    assert found.accuracy == pytest.approx(7 / 10)
    assert (found.span_precision, found.span_recall) == (pytest.approx(1 / 3), pytest.approx(1 / 5))
    assert found.span_f1 == pytest.approx(2 / 8)
    by_label = {row.label: (row.spans, row.given, row.f1) for row in span_scores(truth, told)}
    assert by_label == {"PER": (1, 1, 1.0), "ORG": (1, 1, 0.0), "LOC": (3, 1, 0.0)}


def test_a_word_that_was_not_read_is_wrong_and_in_no_span() -> None:
    found = tag_scores([["B-x", "O", "B-x"]], [["B-x", None, None]])
    assert (found.accuracy, found.span_precision, found.span_recall) == (pytest.approx(1 / 3), 1.0, 0.5)


def test_a_score_that_tags_do_not_have_is_refused() -> None:
    found = tag_scores([["O"]], [["O"]])
    assert (found.value("accuracy"), found.value("span_f1")) == (1.0, 0.0)
    with pytest.raises(ConfigError, match="`mcc` is not a known score of tags"):
        found.value("mcc")
    with pytest.raises(DataError, match="an answer for each word"):
        tag_scores([["O", "O"]], [["O"]])
    with pytest.raises(DataError, match="at least one word"):
        tag_scores([[]], [[]])


@pytest.fixture
def evaluation() -> TagEvaluation:
    truth = [["B-x", "I-x", "O"], ["O", "B-y"]]
    told: list[list[str | int | None]] = [["B-x", "I-x", "O"], ["B-y", None]]
    exits = {1: [["O", "O", "O"], ["O", None]], 2: told}
    return TagEvaluation.of(
        truth, told, [[1, 2, 1], [1, None]], exits, [1, 2], 2, ["B-x", "I-x", "B-y", "O"], {"name": "never"}
    )


def test_a_text_has_left_when_its_last_word_has(evaluation: TagEvaluation) -> None:
    assert (evaluation.depths, evaluation.mean_depth) == ({1: 1, 2: 1}, 1.5)
    assert (evaluation.word_depths, evaluation.mean_word_depth) == ({1: 3, 2: 1}, 1.25)
    assert (evaluation.n, evaluation.words, evaluation.unread) == (2, 5, 1)
    told = json.loads(json.dumps(evaluation.to_json()))
    assert told["word_depths"] == {"1": 3, "2": 1}
    assert told["by_exit"][1]["span_f1"] == evaluation.span_f1 == pytest.approx(0.5)


def test_the_page_shows_spans_and_words(evaluation: TagEvaluation) -> None:
    page = render("tags", evaluation, History(), {}, {})
    for said in ("Word accuracy", "Span F1", "How well the spans of each label were found", "Words by the depth"):
        assert said in page
    assert "Confusion" not in page
