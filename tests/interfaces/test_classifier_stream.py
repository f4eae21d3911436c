"""A stream of texts is answered in order, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from offramp import Classifier
from offramp.data.tokens import TruncationWarning
from offramp.errors import ConfigError
from offramp.types import Example

Toy = Callable[..., tuple[list[str], list[str]]]


@pytest.mark.parametrize("chunk", [1, 7, 30, 1024])
def test_a_stream_gives_what_a_list_gives_in_order(fitted: Classifier, toy: Toy, chunk: int) -> None:
    texts, _ = toy(30, seed=9)
    streamed = list(fitted.stream((Example(text) for text in texts), chunk))
    listed = fitted.decide(texts)
    assert [(p.label, p.depth) for p in streamed] == [(p.label, p.depth) for p in listed]
    assert [p.probability for p in streamed] == pytest.approx([p.probability for p in listed], abs=1e-5)


def test_a_stream_reads_no_further_than_the_chunk_it_answers(fitted: Classifier, toy: Toy) -> None:
    texts, _ = toy(50, seed=9)
    read = 0

    def source() -> Iterator[Example]:
        nonlocal read
        for text in texts:
            read += 1
            yield Example(text)

    for given, _ in enumerate(fitted.stream(source(), chunk=8), 1):
        assert read == min(-(-given // 8) * 8, 50)
    assert read == given == 50


def test_a_stream_without_texts_has_no_answers(fitted: Classifier) -> None:
    assert list(fitted.stream(iter(()))) == []


def test_one_warning_at_the_end_counts_the_cut_texts_of_all_chunks(fitted: Classifier, toy: Toy) -> None:
    texts, _ = toy(30)
    for place in (0, 11, 12, 29):
        texts[place] = "good " * 80
    with pytest.warns(TruncationWarning) as caught:
        answers = list(fitted.stream((Example(text) for text in texts), chunk=10))
    assert len(answers) == 30
    assert [str(w.message) for w in caught] == ["4 of 30 texts are longer than 64 tokens and were cut."]


def test_a_chunk_of_nothing_is_refused(fitted: Classifier) -> None:
    with pytest.raises(ConfigError, match=r"`chunk` should be 1 or more\. Found 0"):
        next(fitted.stream([Example("good")], chunk=0))
