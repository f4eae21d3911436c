"""Training sets made smaller, lopsided or wrong: sizes by arithmetic, who is who by counting."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.data.protocols import imbalanced, mislabelled
from offramp.data.splits import as_many_again, scl_split
from offramp.errors import ConfigError, DataError

label_lists = st.lists(st.integers(0, 4), min_size=12, max_size=80)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Imbalance.


@pytest.mark.parametrize("rho", [1, 3, 5, 10, 20])
def test_the_majority_of_two_labels_has_rho_times_the_32_texts_of_the_minority(rho: int) -> None:
    labels = [0] * 700 + [1] * 900  # the larger label stays the larger one
    counts = Counter(labels[row] for row in imbalanced(labels, rho, 32, seeded()))
    assert counts == {0: 32, 1: 32 * rho}


def test_of_two_labels_of_one_size_the_second_is_the_minority() -> None:
    labels = [0, 1] * 100
    assert Counter(labels[row] for row in imbalanced(labels, 2, 10, seeded())) == {0: 20, 1: 10}


def test_the_sizes_of_many_labels_fall_by_equal_factors() -> None:
    labels = [k for k in range(5) for _ in range(1000 - k)]
    counts = Counter(labels[row] for row in imbalanced(labels, 81, 10, seeded()))
    assert [counts[k] for k in range(5)] == [810, 270, 90, 30, 10]


def test_an_imbalanced_set_is_drawn_at_random_without_repeats() -> None:
    labels = [0] * 100 + [1] * 100
    one, same, other = (imbalanced(labels, 4, 8, seeded(seed)) for seed in (0, 0, 1))
    assert one == same != other
    assert one == sorted(set(one))


def test_too_few_texts_for_an_imbalance_are_told() -> None:
    with pytest.raises(DataError, match=r"Label number 0 should have 40 training texts.*Found 30"):
        imbalanced([0] * 30 + [1] * 20, 4, 10, seeded())
    with pytest.raises(ConfigError, match=r"should be 1 or more, or 0.*Found 0\.5"):
        imbalanced([0, 1], 0.5, 1, seeded())


# Label noise.


@given(label_lists, st.floats(0, 1), st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_exactly_the_asked_share_of_the_labels_is_wrong(labels: list[int], share: float, seed: int) -> None:
    noisy = mislabelled(labels, share, 5, seeded(seed))
    assert sum(a != b for a, b in zip(labels, noisy, strict=True)) == round(share * len(labels))
    assert all(0 <= label < 5 for label in noisy)


def test_wrong_labels_are_spread_evenly_over_the_other_labels() -> None:
    noisy = Counter(mislabelled([2] * 30_000, 1.0, 4, seeded()))
    assert set(noisy) == {0, 1, 3}
    # 10 000 of each are expected, with a standard deviation of 82
    assert all(abs(count - 10_000) < 400 for count in noisy.values())


def test_no_noise_is_no_change() -> None:
    assert mislabelled([0, 1, 2], 0.0, 3, seeded()) == [0, 1, 2]


# SCL's split.


@given(label_lists)
@settings(deadline=None, max_examples=60)
def test_scls_halves_are_apart_and_keep_the_shares_of_the_labels(labels: list[int]) -> None:
    validation, test = scl_split(labels)
    assert not set(validation) & set(test)
    assert len(test) == len(labels) // 2
    assert len(validation) == len(labels) - len(test)  # fewer than 500 are left
    for label, count in Counter(labels).items():
        # A rare label that every part must have moves the others' shares by at most one text each.
        assert abs(sum(labels[row] == label for row in test) - count / 2) <= 3


def test_scls_validation_has_500_texts_of_a_large_set() -> None:
    labels = [0] * 3000 + [1] * 1000
    validation, test = scl_split(labels)
    assert Counter(labels[row] for row in test) == {0: 1500, 1: 500}
    assert Counter(labels[row] for row in validation) == {0: 375, 1: 125}


def test_scls_split_is_the_same_every_time() -> None:
    assert scl_split([0, 1] * 50) == scl_split([0, 1] * 50)


def test_one_text_cannot_be_divided() -> None:
    with pytest.raises(DataError, match=r"at least two validation texts.*Found 1"):
        scl_split([0])


# LaCon's few-shot split.


def test_as_many_are_held_out_as_are_learnt_from_of_each_label() -> None:
    labels = [0] * 50 + [1] * 50 + [2] * 50
    taken = [*range(10), *range(50, 70), *range(100, 105)]
    again = as_many_again(labels, taken, seeded())
    assert Counter(labels[row] for row in again) == {0: 10, 1: 20, 2: 5}
    assert not set(again) & set(taken)
    assert again == sorted(again)


def test_where_too_few_are_left_all_of_them_are_held_out() -> None:
    labels = [0] * 10 + [1] * 6
    again = as_many_again(labels, [0, 1, 2, 10, 11, 12, 13], seeded())
    assert Counter(labels[row] for row in again) == {0: 3, 1: 2}
    with pytest.raises(DataError, match=r"texts left to validate on. Found that all 4 are learnt from"):
        as_many_again([0, 0, 1, 1], [0, 1, 2, 3], seeded())
