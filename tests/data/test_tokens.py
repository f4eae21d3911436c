from __future__ import annotations

import pickle
import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from offramp.data.tokens import CHUNK, Tokens, TruncationWarning, limit, tokenizer_digest
from offramp.errors import ConfigError, DataError, ModelError
from offramp.types import Example

Make = Callable[..., PreTrainedTokenizerFast]
TEXTS = ["the film was good", "bad", "the longest film was ungood . a b c", "[SEP] good"]
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
words = st.lists(st.sampled_from(["a", "b", "ungood", "longest", "[SEP]", "."]), max_size=14).map(" ".join)


def singles(texts: list[str]) -> list[Example]:
    return [Example(text) for text in texts]


@pytest.mark.parametrize("types", [True, False])
def test_a_batch_is_what_the_tokenizer_pads_itself(make_tokenizer: Make, types: bool) -> None:
    tokenizer = make_tokenizer(types=types, first=("x", "y"))
    assert tokenizer.pad_token_id == 2
    rows = [2, 0, 3]
    truth = tokenizer([TEXTS[row] for row in rows], padding=True, return_tensors="pt")
    batch = Tokens.of(tokenizer, singles(TEXTS), 64, [0, 1, 2, 3]).batch(rows)
    assert torch.equal(batch.input_ids, truth["input_ids"])
    assert torch.equal(batch.mask, truth["attention_mask"])
    assert (batch.token_types is not None) == types
    if types:
        assert torch.equal(batch.token_types, truth["token_type_ids"])
    assert batch.labels is not None
    assert batch.labels.tolist() == rows
    assert batch.rows is not None
    assert batch.rows.tolist() == rows
    assert {t.dtype for t in (batch.input_ids, batch.mask, batch.labels, batch.rows)} == {torch.int64}


@pytest.mark.parametrize("types", [True, False])
def test_a_batch_of_pairs_is_what_the_tokenizer_pads_itself(make_tokenizer: Make, types: bool) -> None:
    tokenizer = make_tokenizer(types=types)
    truth = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    examples = [Example(a, b) for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    batch = Tokens.of(tokenizer, examples, 64).batch(range(4))
    assert torch.equal(batch.input_ids, truth["input_ids"])
    assert torch.equal(batch.mask, truth["attention_mask"])
    if types:
        assert torch.equal(batch.token_types, truth["token_type_ids"])
    assert batch.labels is None


@SHARED
@given(st.lists(st.tuples(words, words), min_size=1, max_size=6), st.integers(6, 24), st.booleans(), st.booleans())
def test_the_cut_is_the_tokenizers_own_and_counted_exactly(
    make_tokenizer: Make, texts: list[tuple[str, str]], max_length: int, paired: bool, types: bool
) -> None:
    tokenizer = make_tokenizer(types=types)
    given_ = [list(column) for column in zip(*texts, strict=True)][: 2 if paired else 1]
    truth = tokenizer(*given_, truncation="longest_first", max_length=max_length)
    whole = tokenizer(*given_)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokens = Tokens.of(tokenizer, [Example(a, b if paired else None) for a, b in texts], max_length)
    for row, ids in enumerate(truth["input_ids"]):
        assert tokens.batch([row]).input_ids[0].tolist() == ids
        if types:
            assert tokens.batch([row]).token_types[0].tolist() == truth["token_type_ids"][row]
    cut = sum(len(ids) > max_length for ids in whole["input_ids"])
    assert tokens.truncated == cut
    assert len(caught) == bool(cut)


def test_one_warning_counts_the_texts_that_were_cut(tokenizer: PreTrainedTokenizerFast) -> None:
    examples = singles(["a b c", "a b c a", "a", "a b c a b c"])
    with pytest.warns(TruncationWarning, match=r"^2 of 4 texts are longer than 5 tokens and were cut\.$") as caught:
        tokens = Tokens.of(tokenizer, examples, 5)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert tokens.lengths.tolist() == [5, 5, 3, 5]


def test_a_long_pair_is_cut_in_memory_that_grows_with_its_length_only(tokenizer: PreTrainedTokenizerFast) -> None:
    long = "a " * 20_000  # the tokenizer's own truncation takes 4 GB and many seconds here
    with pytest.warns(TruncationWarning):
        tokens = Tokens.of(tokenizer, [Example(long, long)], 256)
    assert tokens.lengths.tolist() == [256]


def test_texts_of_several_chunks_keep_their_order(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = ["a " * (1 + row % 7) for row in range(2 * CHUNK + 3)]
    tokens = Tokens.of(tokenizer, singles(texts), 64)
    assert len(tokens) == len(texts)
    assert tokens.lengths.tolist() == [3 + row % 7 for row in range(len(texts))]
    assert tokens.lengths.dtype == np.int64
    assert tokens.ids.dtype == np.int32


def test_tokens_of_many_texts_take_little_more_than_their_ids(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(types=False)
    examples = singles(["a " * 30] * 20_000)  # 640 000 ids: 2.6 MB as int32, over 5 MB as lists before the ints
    Tokens.of(tokenizer, examples[:10], 64)
    tracemalloc.start()
    tokens = Tokens.of(tokenizer, examples, 64)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.5 * tokens.ids.nbytes
    assert peak < 3 * tokens.ids.nbytes


def test_mixed_pairs_and_single_texts_are_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(DataError, match=r"a single text in row 1 and a pair in row 3"):
        Tokens.of(tokenizer, [Example("a"), Example("b"), Example("a", "b")], 16)
    with pytest.raises(DataError, match=r"a pair in row 1 and a single text in row 2"):
        Tokens.of(tokenizer, [Example("a", "b"), Example("b")], 16)


def test_no_texts_give_no_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = Tokens.of(tokenizer, [], 16)
    assert len(tokens) == 0
    assert tokens.batch([]).input_ids.shape == (0, 0)


def test_a_max_length_without_room_for_text_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ConfigError, match=r"`max_length` should be at least 5.*Found 4"):
        Tokens.of(tokenizer, [Example("a", "b")], 4)


def test_a_tokenizer_without_padding_is_refused(make_tokenizer: Make) -> None:
    with pytest.raises(ModelError, match=r"padding token"):
        Tokens.of(make_tokenizer(pad_token=None), [Example("a")], 16)


def test_labels_come_one_per_text(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(DataError, match=r"Found 1 for 2 texts"):
        Tokens.of(tokenizer, singles(["a", "b"]), 16, [0])


def test_who_needs_labels_is_told_when_there_are_none(tokenizer: PreTrainedTokenizerFast) -> None:
    assert Tokens.of(tokenizer, singles(["a", "b"]), 16, [1, 0]).labels_or_raise() == [1, 0]
    with pytest.raises(DataError, match=r"should have a label"):
        Tokens.of(tokenizer, singles(["a", "b"]), 16).labels_or_raise()


def test_tokens_travel_to_other_processes(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = Tokens.of(tokenizer, singles(TEXTS), 64)
    assert torch.equal(pickle.loads(pickle.dumps(tokens)).batch([0, 2]).input_ids, tokens.batch([0, 2]).input_ids)


@pytest.mark.parametrize(
    ("own", "positions", "wanted", "usable"),
    [(None, None, 256, 256), (128, None, 256, 128), (None, 512, 1024, 512), (512, 512, 256, 256)],
)
def test_the_limit_is_the_smallest_of_the_three(
    make_tokenizer: Make, own: int | None, positions: int | None, wanted: int, usable: int
) -> None:
    tokenizer = make_tokenizer(**({"model_max_length": own} if own else {}))
    assert limit(tokenizer, positions, wanted) == usable


def test_tokenizers_are_told_apart_by_what_they_make_of_texts_and_not_by_how_they_were_called(
    make_tokenizer: Make,
) -> None:
    first, same, other = make_tokenizer(), make_tokenizer(), make_tokenizer(first=("x", "y"))
    same(TEXTS, padding=True, truncation=True, max_length=5)
    assert tokenizer_digest(first) == tokenizer_digest(same)
    assert tokenizer_digest(first) != tokenizer_digest(other)
