"""The recipe for tags learns the built-in messages on the real backbone, and words leave early."""

from __future__ import annotations

from collections import Counter

import pytest

from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file
from offramp.report.tag_metrics import TagEvaluation


@pytest.mark.long
def test_the_recipe_finds_spans_in_sentences_it_has_not_seen() -> None:
    train, validation, calibration, test = (
        read(data_file(part, "tagged_desk"), tags=True) for part in ("train", "validation", "calibration", "test")
    )
    settings = {"optimise.epochs": 2, "stage2.least_updates": 0, "optimise.track": []}
    classifier = Classifier("acl-tags", settings=settings)
    classifier.fit_table(train, validation)
    evaluation = classifier.evaluate(test)
    assert isinstance(evaluation, TagEvaluation)
    outside = Counter(test.labels)["O"] / len(test.labels)
    assert evaluation.accuracy > outside + 0.1
    assert evaluation.span_f1 > 0.7
    first, last = evaluation.by_exit[0], evaluation.by_exit[-1]
    assert last.span_f1 > first.span_f1, "what a word is called is told by its neighbours"
    certificate = classifier.calibrate(calibration, max_drop=0.05)
    assert certificate.thresholds
    early = classifier.evaluate(test)
    assert isinstance(early, TagEvaluation)
    assert early.mean_word_depth < early.mean_depth < 6
    # At most one text in twenty has a word that is told worse, and a text has some eighteen.
    assert early.accuracy > evaluation.accuracy - 0.02
