from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.data.labels import Labels, as_label
from offramp.errors import DataError


def test_numbers_are_sorted_as_numbers() -> None:
    assert Labels.of([10, 2, 2, -1]).names == (-1, 2, 10)


def test_words_are_sorted_as_words() -> None:
    assert Labels.of(["10", "2", "b", "a"]).names == ("10", "2", "a", "b")


def test_a_mixture_is_sorted_as_words() -> None:
    assert Labels.of([9, "a", 10]).names == (10, 9, "a")


def test_a_number_and_its_spelling_are_one_label() -> None:
    assert Labels.of(["3", 3, 4]).names == (3, 4)


@given(st.permutations([1, "1", 2, "b", "3", 3]))
def test_the_order_of_the_texts_does_not_change_the_classes(labels: list[str | int]) -> None:
    assert Labels.of(labels).names == (1, 2, 3, "b")


def test_numpy_values_become_plain_ones() -> None:
    names = Labels.of(list(np.array([1, 0, 1]))).names
    assert names == (0, 1)
    assert [type(name) for name in names] == [int, int]


def test_one_class_only_is_refused_and_named() -> None:
    with pytest.raises(DataError, match=r"at least two different labels.*[Ff]ound only `spam`"):
        Labels.of(["spam", "spam"])


def test_no_label_at_all_is_refused() -> None:
    with pytest.raises(DataError, match=r"at least two different labels.*Found none"):
        Labels.of([])


def test_a_label_from_csv_finds_the_number_from_parquet() -> None:
    labels = Labels.of([1, 3])
    assert labels.index("3") == labels.index(3) == 1


def test_an_unseen_label_gets_the_near_names() -> None:
    with pytest.raises(DataError, match=r"Found `positiv`\. Did you mean `positive`\?"):
        Labels.of(["positive", "negative"]).index("positiv")


def test_an_unseen_label_without_near_names_gets_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"Known: `negative`, `positive`\."):
        Labels.of(["positive", "negative"]).index("zzz")


def test_an_unseen_label_is_named_with_its_place() -> None:
    with pytest.raises(DataError, match=r"Found `c` in row 3 of test\.csv"):
        Labels.of(["a", "b"]).encode(["a", "b", "x", "c"][::3], lambda row: f"row {row + 2} of test.csv")


@given(st.lists(st.one_of(st.integers(), st.text(min_size=1).filter(str.strip)), min_size=2, unique_by=str))
def test_encoding_is_the_place_among_the_names(found: list[str | int]) -> None:
    labels = Labels.of(found)
    assert len(labels) == len(found)
    assert [labels.names[number] for number in labels.encode(found)] == found


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ("pos", "pos"),
        (3, 3),
        (True, "True"),
        (np.bool_(False), "False"),
        (2.0, 2),
        (np.float64(2.0), 2),
        (np.int64(5), 5),
        (2.5, None),
        (float("nan"), None),
        (float("inf"), None),
        ("", None),
        (" \t", None),
        (None, None),
        ([1], None),
    ],
)
def test_a_cell_is_a_word_a_whole_number_or_no_label(cell: object, label: object) -> None:
    found = as_label(cell)
    assert (found, type(found)) == (label, type(label))
