from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from offramp.data.sampling import (
    balanced_size,
    class_balanced,
    class_capped,
    length_buckets,
    sorted_batches,
    stratified_sample,
    stratified_split,
)
from offramp.errors import ConfigError, DataError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


lengths_ = st.lists(st.integers(1, 60), max_size=120)
labels_ = st.lists(st.integers(0, 5), min_size=1, max_size=120)


# Length buckets.


@given(lengths_, st.integers(1, 17), st.integers(1, 4), st.integers(0, 5))
def test_every_text_is_in_one_bucketed_batch(lengths: list[int], size: int, pool: int, seed: int) -> None:
    batches = length_buckets(lengths, size, seeded(seed), pool)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    full, rest = divmod(len(lengths), size)
    assert sorted(map(len, batches), reverse=True) == [size] * full + [rest] * bool(rest)


def test_buckets_pad_less_than_a_plain_shuffle() -> None:
    lengths = np.random.default_rng(0).integers(5, 200, 4000)

    def padded(batches: list[list[int]]) -> int:
        return sum(len(batch) * int(lengths[batch].max()) for batch in batches)

    plain = torch.randperm(4000, generator=seeded()).view(-1, 16).tolist()
    assert padded(length_buckets(lengths, 16, seeded())) < 1.1 * lengths.sum() < padded(plain)


def test_long_and_short_batches_come_mixed() -> None:
    lengths = list(range(1600))
    tops = [max(lengths[row] for row in batch) for batch in length_buckets(lengths, 16, seeded())]
    assert tops != sorted(tops)
    assert tops != sorted(tops, reverse=True)


def test_few_texts_meet_others_in_every_epoch() -> None:
    lengths, generator = list(range(100)), seeded()

    def met() -> set[tuple[int, int]]:
        batches = length_buckets(lengths, 16, generator)
        return {(a, b) for batch in batches for a in batch for b in batch if a < b}

    epochs = [met() for _ in range(6)]
    again = [len(one & other) / len(one) for one, other in pairwise(epochs)]
    assert max(again) < 0.3  # by chance 0.15
    assert len(set().union(*epochs)) > 0.5 * 100 * 99 / 2


def test_buckets_are_those_of_the_generator() -> None:
    lengths = list(range(100))
    assert length_buckets(lengths, 8, seeded(1)) == length_buckets(lengths, 8, seeded(1))
    assert length_buckets(lengths, 8, seeded(1)) != length_buckets(lengths, 8, seeded(2))
    generator = seeded(1)
    assert length_buckets(lengths, 8, generator) != length_buckets(lengths, 8, generator)


def test_a_batch_size_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`batch_size` should be 1 or more. Found 0"):
        length_buckets([1], 0, seeded())


# Sorted batches.


@given(lengths_, st.integers(1, 17))
def test_prediction_takes_the_longest_first(lengths: list[int], size: int) -> None:
    rows = [row for batch in sorted_batches(lengths, size) for row in batch]
    assert rows == sorted(range(len(lengths)), key=lambda row: -lengths[row])


# Class-balanced batches.


@given(labels_, st.integers(1, 4), st.integers(2, 24), st.integers(0, 5))
def test_a_balanced_batch_holds_per_class_texts_of_each_class(
    labels: list[int], per_class: int, size: int, seed: int
) -> None:
    assume(size >= 2 * per_class)
    batches = class_balanced(labels, per_class, size, seeded(seed))
    in_all = Counter(labels)
    assert len(batches) == math.ceil(len(labels) / balanced_size(labels, per_class, size))
    for batch in batches:
        assert len(batch) == balanced_size(labels, per_class, size)
        held = Counter(labels[row] for row in batch)
        assert set(held.values()) == {per_class}
        assert len(held) == min(len(in_all), size // per_class)
        for label, rows in in_all.items():
            own = [row for row in batch if labels[row] == label]
            assert len(set(own)) == min(len(own), rows)


@given(labels_, st.integers(1, 3), st.integers(0, 5))
def test_classes_appear_evenly(labels: list[int], per_class: int, seed: int) -> None:
    batches = class_balanced(labels, per_class, 2 * per_class, seeded(seed))
    seen = Counter(dict.fromkeys(set(labels), 0))
    for batch in batches:
        seen.update({labels[row] for row in batch})
        assert max(seen.values()) - min(seen.values()) <= 1


def test_a_small_class_starts_again_only_when_all_its_texts_were_drawn() -> None:
    labels = [0] * 3 + [1] * 97
    batches = class_balanced(labels, 2, 4, seeded())
    small = [row for batch in batches for row in batch if labels[row] == 0]
    seen = Counter({0: 0, 1: 0, 2: 0})
    for row in small:
        seen[row] += 1
        assert max(seen.values()) - min(seen.values()) <= 1
    large = [row for batch in batches for row in batch if labels[row] == 1]
    assert len(set(large)) == len(large)


def test_an_epoch_of_two_labels_deals_every_text() -> None:
    labels = [0, 1] * 500
    batches = class_balanced(labels, 4, 32, seeded())
    assert sorted(row for batch in batches for row in batch) == list(range(1000))


def test_balanced_batches_are_those_of_the_generator() -> None:
    labels = [0, 1, 2] * 30
    assert class_balanced(labels, 2, 4, seeded(1)) == class_balanced(labels, 2, 4, seeded(1))
    assert class_balanced(labels, 2, 4, seeded(1)) != class_balanced(labels, 2, 4, seeded(2))


def test_a_batch_too_small_for_two_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least twice `per_class`.*`batch_size` 7 and `per_class` 4"):
        class_balanced([0, 1], 4, 7, seeded())


# Samples and splits.


@given(labels_, st.data())
def test_a_sample_keeps_the_shares_to_within_the_texts_that_guarantee_every_label(
    labels: list[int], data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(labels)))
    rows = stratified_sample(labels, n, seeded())
    counts, drawn = Counter(labels), Counter(labels[row] for row in rows)
    assert len(rows) == len(set(rows)) == n
    assert rows == sorted(rows)
    if n >= len(counts):
        assert set(drawn) == set(counts)
    rare = sum(n * count < len(labels) for count in counts.values())
    for label, count in counts.items():
        assert abs(drawn[label] - n * count / len(labels)) <= 1 + rare


def test_a_sample_of_even_shares_is_exact() -> None:
    labels = ["a"] * 600 + ["b"] * 300 + ["c"] * 100
    rows = stratified_sample(labels, 50, seeded())
    assert Counter(labels[row] for row in rows) == {"a": 30, "b": 15, "c": 5}


def test_every_text_is_drawn_about_equally_often() -> None:
    labels = [0] * 10 + [1] * 10
    generator = seeded()
    drawn = Counter(row for _ in range(2000) for row in stratified_sample(labels, 4, generator))
    assert min(drawn.values()) > 320  # 400 expected, standard deviation 18
    assert max(drawn.values()) < 480


def test_a_sample_larger_than_the_data_is_refused() -> None:
    with pytest.raises(DataError, match=r"between 0 and 2 texts.*Found 3"):
        stratified_sample([0, 1], 3, seeded())


@given(labels_, st.floats(0.01, 0.9))
def test_a_split_parts_the_texts_and_leaves_every_label_in_train(labels: list[int], fraction: float) -> None:
    counts = Counter(labels)
    assume(len(counts) < len(labels))
    train, held = stratified_split(labels, fraction, seeded())
    assert sorted(train + held) == list(range(len(labels)))
    assert held
    assert {labels[row] for row in train} == set(labels)
    spare = len(labels) - len(counts)
    assert len(held) == min(max(round(fraction * len(labels)), 1), spare)


def test_a_split_keeps_the_shares() -> None:
    labels = [0] * 80 + [1] * 20
    _, held = stratified_split(labels, 0.1, seeded())
    assert Counter(labels[row] for row in held) == {0: 8, 1: 2}


def test_a_split_that_can_hold_nothing_out_asks_for_a_validation_file() -> None:
    with pytest.raises(DataError, match=r"Give a validation file"):
        stratified_split([0, 1, 2], 0.5, seeded())


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match=r"between 0 and 1"):
        stratified_split([0, 0], fraction, seeded())


@given(labels_, st.integers(1, 20), st.integers(0, 5))
def test_a_cap_per_label_leaves_as_many_of_each_as_it_may(labels: list[int], most: int, seed: int) -> None:
    rows = class_capped(labels, most, seeded(seed))
    assert rows == sorted(set(rows))
    assert Counter(labels[row] for row in rows) == {label: min(most, n) for label, n in Counter(labels).items()}


def test_a_cap_per_label_draws_by_the_generator() -> None:
    labels = [0] * 50 + [1] * 50
    assert (
        class_capped(labels, 5, seeded(1)) == class_capped(labels, 5, seeded(1)) != class_capped(labels, 5, seeded(2))
    )
