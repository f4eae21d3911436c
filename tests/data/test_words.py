"""Words and their tags: what files and lists may hold, what is said of what they may not, and where words begin."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference import spans as reference
from transformers import PreTrainedTokenizerFast

from offramp.config import DataConfig
from offramp.data.seen import digests, unseen
from offramp.data.sources import columns, read, stream
from offramp.data.tokens import Tokens, TruncationWarning
from offramp.data.words import offsets, spans, split, words_of
from offramp.demo import data_file
from offramp.errors import DataError
from offramp.types import Example

ROWS: list[tuple[list[str], list[str]]] = [
    (["my", "Ember", "Mini", "is", "late"], ["O", "B-product", "I-product", "O", "O"]),
    (["May", "called"], ["B-person", "O"]),
    (["?"], ["O"]),
]
SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, kind: str) -> Path:
    path = folder / f"texts.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps({"tokens": w, "tags": t}) for w, t in ROWS), "utf-8")
    elif kind == "parquet":
        pd.DataFrame(ROWS, columns=["tokens", "tags"]).to_parquet(path)
    else:
        between = "\t" if kind == "conll" else " NN "
        path = path.with_suffix(".conll")
        texts = ["\n".join(f"{w}{between}{t}" for w, t in zip(*row, strict=True)) for row in ROWS]
        path.write_text("-DOCSTART- -X- O\n\n" + "\n\n".join(texts) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "conll", "conll with blanks"])
def test_a_file_gives_the_words_and_tags_that_were_written(tmp_path: Path, kind: str) -> None:
    table = read(write(tmp_path, kind), **columns(DataConfig(labels="tags")))
    assert [(e.words, e.tags) for e in table.examples] == [(tuple(w), tuple(t)) for w, t in ROWS]
    assert [e.text for e in table.examples] == [" ".join(words) for words, _ in ROWS]
    assert Counter(table.labels) == {"O": 5, "B-product": 1, "I-product": 1, "B-person": 1}
    assert all(example.label is None for example in table.examples)


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        [{"tokens": w, "tags": t} for w, t in ROWS],
        [{"words": w, "tags": t} for w, t in ROWS],
        [{"text": " ".join(w), "tags": t} for w, t in ROWS],
        [Example(" ".join(w), words=tuple(w), tags=tuple(t)) for w, t in ROWS],
        pd.DataFrame(ROWS, columns=["tokens", "tags"]),
        pd.DataFrame([(np.array(w), np.array(t)) for w, t in ROWS], columns=["tokens", "tags"]),
    ],
    ids=["lists", "mappings", "other name", "strings", "examples", "frame", "frame of arrays"],
)
def test_lists_and_frames_hold_words_and_tags(given: Any) -> None:
    found = read(given, tags=True).examples
    assert [(e.words, e.tags) for e in found] == [(tuple(w), tuple(t)) for w, t in ROWS]


def test_a_conll_text_stands_where_its_first_word_does(tmp_path: Path) -> None:
    table = read(write(tmp_path, "conll"), tags=True)
    assert [table.where(row) for row in range(3)] == [f"texts.conll, line {n}" for n in (3, 9, 12)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "as many tags as words. Found 1 tags for 2 words in the list, row 2"),
        ({"tokens": ["a", " "], "tags": ["O", "O"]}, "A text should not be empty.*in the list, row 2, word 2"),
        ({"tokens": ["a", 3], "tags": ["O", "O"]}, r"should be a string. Found 3 \(int\) in the list, row 2, word 2"),
        ({"tokens": [], "tags": []}, "Found one without words in the list, row 2"),
        ({"tokens": ["a", "b"], "tags": ["O", None]}, "A tag should not be empty.*in the list, row 2, word 2"),
        ({"tokens": ["a", "b"], "tags": ["O", ["x"]]}, "A label should be a word.*in the list, row 2, word 2"),
        ({"tokens": ["a", "b"], "tags": "O O"}, "The tags of a text should be a list"),
        ({"tokens": ["a", "b"], "tags": None}, "The tags of a text should be a list"),
        ({"tokens": {"a": 1}, "tags": ["O"]}, "A text should be a string"),
        ({"tokens": ["a\ud800"], "tags": ["O"]}, "half a character"),
    ],
)
def test_what_is_no_tagged_text_is_named_with_its_place(row: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read([{"tokens": ["a"], "tags": ["O"]}, row], tags=True)


def test_a_line_of_conll_without_a_tag_is_refused_where_tags_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("a O\nb\n", "utf-8")
    with pytest.raises(DataError, match=r"A tag should not be empty.*x\.conll, line 1, word 2"):
        read(path, tags=True)
    assert [example.words for example in stream(path, tags=True)] == [("a", "b")]


def test_columns_of_pairs_are_refused() -> None:
    with pytest.raises(DataError, match="One column should hold the text where words have tags"):
        read([{"a": "x", "b": "y", "tags": ["O"]}], text=("a", "b"), tags=True)


BYTES = st.binary(max_size=60) | st.lists(
    st.sampled_from(
        ["a", "b-", " O", "\tB-x", "\n", "\n\n", "\r", "-DOCSTART-", "\ufeff", "\0", "\x1c", "é", "\u2028"]
    ),
    max_size=20,
).map(lambda parts: "".join(parts).encode())
LINE = st.sampled_from(['{"tokens": ', '["a", "b"]', "[]", ', "tags": ', '["O", 1]', '"x"', "null", "}", "\n", '["O"]'])


@pytest.mark.parametrize("suffix", [".conll", ".jsonl", ".parquet"])
@SOME
@given(BYTES | st.lists(LINE, max_size=10).map(lambda parts: "".join(parts).encode()))
def test_a_file_of_any_bytes_gives_tagged_texts_or_an_error_of_ours(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    file = tmp_path / f"data{suffix}"
    file.write_bytes(content)
    for required in (True, False):
        try:
            examples = read(file, labels_required=required, tags=True).examples
        except DataError:
            continue
        assert examples
        for example in examples:
            assert example.words
            assert all(word.strip() for word in example.words)
            assert example.tags is None or len(example.tags) == len(example.words)
            assert len(offsets(example.text, example.words)) == len(example.words)


@SOME
@given(st.text(max_size=60))
def test_words_and_what_is_between_them_are_the_text(text: str) -> None:
    words = split(text)
    end = 0
    for word, (start, stop) in zip(words, offsets(text, words), strict=True):
        assert text[start:stop] == word
        assert not text[end:start].strip()
        end = stop
    assert not text[end:].strip()
    assert "".join(words) == "".join(text.split())


TAGS = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y", "z", "B-", "I-", "B", "-x", "x-y"])


@SOME
@given(st.lists(TAGS, max_size=12))
def test_spans_are_those_of_the_slow_loop(tags: list[str]) -> None:
    assert {(s.label, s.first, s.stop) for s in spans(tags)} == reference.spans(tags)


def test_a_word_that_was_not_read_ends_a_span() -> None:
    assert [(s.label, s.first, s.stop) for s in spans(["B-x", None, "I-x"])] == [("x", 0, 1), ("x", 2, 3)]


# --- tokens


def tokenised(tokenizer: PreTrainedTokenizerFast, texts: list[list[str]], most: int = 64, **how: Any) -> Tokens:
    return Tokens.of(tokenizer, [Example(" ".join(w), words=tuple(w)) for w in texts], most, tags=True, **how)


@SOME
@given(st.lists(st.lists(st.text("abz the.-'é", min_size=1, max_size=6).filter(str.strip), min_size=1), min_size=1))
def test_the_marks_are_where_the_tokenizer_says_that_words_begin(
    tokenizer: PreTrainedTokenizerFast, texts: list[list[str]]
) -> None:
    texts = [own[:8] for own in texts[:4]]
    tokens = tokenised(tokenizer, texts, most=600)
    batch = tokens.batch(range(len(texts)))
    assert tokens.words is not None
    assert batch.words is not None
    for row, words in enumerate(texts):
        known = tokenizer(words, is_split_into_words=True)
        own = known.word_ids()
        first = [place for place, word in enumerate(own) if word is not None and word not in own[:place]]
        assert batch.input_ids[row][batch.mask[row] == 1].tolist() == known["input_ids"]
        assert batch.words[row].nonzero()[:, 0].tolist() == first
        low, high = tokens.words.offsets[row : row + 2]
        assert tokens.words.places[low:high].tolist() == [own[place] for place in first]


def test_a_string_is_read_as_the_words_it_is_divided_into(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "The film-plot, wasn't bad?"
    whole = Tokens.of(tokenizer, [Example(text)], 64, tags=True)
    listed = tokenised(tokenizer, [list(split(text))])
    assert whole.ids.tolist() == listed.ids.tolist()
    assert whole.words is not None
    assert listed.words is not None
    assert whole.words.marks.tolist() == listed.words.marks.tolist()
    assert words_of(Example(text)) == split(text)


def test_words_behind_the_cut_are_counted_and_have_no_label(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [["the", "film", "was", "slow", "quick"], ["plot"]]
    with pytest.warns(TruncationWarning, match=r"1 of 2 texts .* were cut\. 2 of their words are not read\."):
        tokens = tokenised(tokenizer, texts, most=5, labels=[[0, 1, 2, 3, 4], [5]])
    assert tokens.words is not None
    assert tokens.labels is not None
    assert tokens.labels.tolist() == [0, 1, 2, 5]
    assert (tokens.words.unread, tokens.words.counts.tolist(), tokens.answers) == (2, [5, 1], 4)
    assert tokens.words.whole([7, 8, 9, 6], absent=-1) == [[7, 8, 9, -1, -1], [6]]
    assert tokens.words.read([[0, 1, 2, 3, 4], [5]]) == [0, 1, 2, 5]
    assert tokens.words.deepest(np.array([2, 4, 1, 3])).tolist() == [4, 3]
    batch = tokens.batch([1, 0])
    assert batch.labels is not None
    assert batch.labels.tolist() == [5, 0, 1, 2]
    assert batch.answers == 4


def test_a_word_of_which_nothing_is_left_is_not_read(tokenizer: PreTrainedTokenizerFast) -> None:
    from tokenizers import normalizers

    inner = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    inner.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    try:
        tokens = tokenised(inner, [["a", "\u200b\x07", "b"], ["\x07"]])
    finally:
        inner.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert tokens.words is not None
    assert tokens.words.places.tolist() == [0, 2]
    assert tokens.words.offsets.tolist() == [0, 2, 2]


def test_texts_are_the_same_to_a_certificate_however_their_words_came() -> None:
    listed = read([(["LK", "-", "1", "late"], ["O"] * 4)], tags=True).examples
    plain = list(read([Example("LK-1 late")], tags=True, labels_required=False).examples)
    assert plain[0].text == "LK-1 late"
    assert unseen(digests(listed), plain)[1] == 1


# --- the built-in messages


def test_the_built_in_messages_are_whole_and_share_nothing() -> None:
    parts = {
        part: read(data_file(part, "tagged_desk"), tags=True) for part in ("train", "validation", "calibration", "test")
    }
    counts = {part: len(table.examples) for part, table in parts.items()}
    assert counts == {"train": 700, "validation": 150, "calibration": 600, "test": 400}
    labels = {"date", "order", "person", "place", "product"}
    for table in parts.values():
        for example in table.examples:
            assert example.words == split(example.text)
            assert example.tags is not None
            assert {span.label for span in spans(example.tags)} <= labels
            # Strictly B-I-O: an I- goes on with what stands before it.
            for before, tag in zip(("O", *example.tags), example.tags, strict=False):
                assert not str(tag).startswith("I-") or str(before)[2:] == str(tag)[2:]
        assert {span.label for e in table.examples for span in spans(e.tags or ())} == labels
    texts = [example.text.lower() for table in parts.values() for example in table.examples]
    assert len(texts) == len(set(texts))


def test_many_words_of_the_built_in_messages_have_several_tags() -> None:
    found: dict[str, set[str]] = {}
    for example in read(data_file("test", "tagged_desk"), tags=True).examples:
        for word, tag in zip(example.words or (), example.tags or (), strict=True):
            found.setdefault(word.lower(), set()).add(str(tag))
    assert sum(len(tags) > 1 for tags in found.values()) > 20
