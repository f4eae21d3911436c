"""The recipe for label sets learns the built-in messages on the real backbone."""

from __future__ import annotations

from collections import Counter

import pytest

from offramp import Classifier
from offramp.data.sources import read
from offramp.demo import data_file
from offramp.report.set_metrics import SetEvaluation


@pytest.mark.long
def test_the_recipe_beats_the_best_constant_answer_by_far_on_sentences_it_has_not_seen() -> None:
    train, test = (read(data_file(part, "mixed_desk"), separator="|") for part in ("train", "test"))
    settings = {"optimise.epochs": 4, "stage2.least_updates": 60, "optimise.track": []}
    classifier = Classifier("acl-multi-label", settings=settings)
    classifier.fit_table(train)
    evaluation = classifier.evaluate(test)
    assert isinstance(evaluation, SetEvaluation)
    constant = Counter(test.label_sets()).most_common(1)[0][1] / evaluation.n
    assert evaluation.accuracy > constant + 0.3
    given = len(test.labels) / (evaluation.n * len(evaluation.labels))  # of all decisions, the share that are yes
    everything = 2 * given / (1 + given)  # micro-F1 of giving every label to every text
    assert evaluation.micro_f1 > everything + 0.3
    assert all(exit.micro_f1 > everything for exit in evaluation.by_exit)
