"""The real small backbone learns real messages."""

from __future__ import annotations

import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from offramp import Classifier
from offramp.data.sampling import stratified_sample
from offramp.data.sources import read
from offramp.demo import data_file


@pytest.mark.slow
def test_minilm_learns_more_from_60_messages_than_a_linear_model_over_words() -> None:
    train, test = read(data_file("train")), read(data_file("test"))
    some = [train.examples[row] for row in stratified_sample(train.labels, 60, torch.Generator().manual_seed(0))]
    texts, labels = [e.text for e in some], [e.label for e in some if e.label is not None]
    asked = [e.text for e in test.examples]
    words = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10, max_iter=1000)).fit(texts, labels)
    few = {"optimise.epochs": 6, "optimise.batch_size": 8, "stage2.least_updates": 20}
    minilm = Classifier(settings=few).fit(texts, labels)
    assert minilm.score(asked, test.labels) > words.score(asked, test.labels) > 1 / len(set(test.labels))
