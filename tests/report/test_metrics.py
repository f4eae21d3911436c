"""Scores against scikit-learn and against arithmetic done by hand."""

import json
import math
import random

import pytest
from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef

from offramp.errors import ConfigError, DataError
from offramp.report.metrics import Evaluation, confusion, score_without_a_look, scores


def test_scores_equal_those_worked_out_by_hand():
    found = scores([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0], classes=3)
    assert found.n == 6
    assert found.accuracy == pytest.approx(4 / 6)
    # F1: class 0 has 2 right, 1 missed, 1 too many; class 1 has 2, 0, 1; class 2 has 0, 1, 0
    assert found.macro_f1 == pytest.approx((4 / 6 + 4 / 5 + 0) / 3)
    # (c s - sum p t) / sqrt((s^2 - sum p^2)(s^2 - sum t^2)) with t = (3, 2, 1), p = (3, 3, 0)
    assert found.mcc == pytest.approx((4 * 6 - 15) / math.sqrt((36 - 18) * (36 - 14)))


@pytest.mark.parametrize("classes", [2, 5, 77])
def test_scores_and_confusion_equal_scikit_learns(classes):
    chance = random.Random(classes)
    truth = [*range(classes), *(chance.randrange(classes) for _ in range(200))]
    predicted = [t if chance.random() < 0.6 else chance.randrange(classes) for t in truth]
    found = scores(truth, predicted, classes)
    assert found.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert found.mcc == pytest.approx(matthews_corrcoef(truth, predicted))
    expected = confusion_matrix(truth, predicted, labels=range(classes))
    assert confusion(truth, predicted, classes).tolist() == expected.tolist()


def test_a_class_that_never_occurs_does_not_lower_macro_f1():
    assert scores([0, 1], [0, 1], classes=50).macro_f1 == 1.0


def test_a_class_that_is_only_predicted_counts_in_macro_f1():
    assert scores([0, 0], [0, 3], classes=50).macro_f1 == pytest.approx((2 / 3 + 0) / 2)


def test_f1_is_that_of_the_second_of_two_classes():
    # 2 right, 1 missed, 2 too many
    found = scores([1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0, 0], classes=2)
    assert found.f1 == found.value("f1") == pytest.approx(2 * 2 / (2 * 2 + 1 + 2))
    swapped = scores([0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 0, 0, 1, 1], classes=2)
    assert swapped.f1 == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    assert (found.f1 + scores([0] * 7, [0] * 7, classes=2).f1) == found.f1  # nobody positive: 0


def test_f1_of_more_than_two_classes_is_refused_and_macro_f1_offered():
    found = scores([0, 1], [0, 1], classes=3)
    assert found.f1 is None
    with pytest.raises(DataError, match=r"two labels.*macro_f1"):
        found.value("f1")


@pytest.mark.parametrize(("truth", "predicted"), [([0, 0], [0, 0]), ([1, 1], [0, 1]), ([0, 1], [1, 1]), ([1], [0])])
def test_matthews_is_zero_where_it_is_undefined(truth, predicted):
    assert scores(truth, predicted, classes=2).mcc == 0.0


@pytest.mark.parametrize(
    ("name", "wanted"), [("accuracy", 0.8), ("f1", 1 / 3), ("macro_f1", 0.5 * 8 / 9), ("mcc", 0.0)]
)
def test_the_score_without_a_look_is_that_of_the_best_class_for_it(name, wanted):
    # All 0: 4 of 5 right, F1 of class 0 8/9; all 1: 1 of 5 right, F1 of class 1 2/6.
    assert score_without_a_look([0, 0, 0, 0, 1], 2, name) == pytest.approx(wanted)


def test_a_score_is_found_by_its_name_and_a_near_name_is_offered():
    found = scores([0, 1], [0, 0], classes=2)
    assert [found.value(name) for name in ("accuracy", "macro_f1", "mcc")] == [0.5, found.macro_f1, 0.0]
    with pytest.raises(ConfigError, match="'macro_f1'"):
        found.value("macro-f1")


@pytest.mark.parametrize(
    ("truth", "predicted", "message"),
    [
        ([], [], "at least one"),
        ([0, 1], [0], "each of 2 texts. Found 1"),
        ([0, 2], [0, 0], "between 0 and 1. Found 0 to 2"),
        ([0, 0], [0, -1], "Found -1 to 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(truth, predicted, message):
    with pytest.raises(DataError, match=message):
        scores(truth, predicted, classes=2)


def small_evaluation(**changes):
    given = {
        "truth": [0, 1, 1, 0],
        "predicted": [0, 1, 0, 0],
        "depths": [1, 3, 1, 3],
        "exit_predictions": {3: [0, 1, 1, 0], 1: [0, 0, 0, 0]},
        "trained": {3},
        "layers": 4,
        "labels": ["no", 7],
        "policy": {"name": "fixed", "depth": 3},
    }
    return Evaluation.of(**{**given, **changes})


def test_an_evaluation_counts_every_depth_and_orders_the_exits():
    found = small_evaluation()
    assert found.depths == {1: 2, 2: 0, 3: 2, 4: 0}
    assert (found.mean_depth, found.layers, found.n, found.accuracy) == (2.0, 4, 4, 0.75)
    assert [(e.depth, e.accuracy, e.trained) for e in found.by_exit] == [(1, 0.5, False), (3, 1.0, True)]
    assert found.confusion == [[2, 0], [1, 1]]


def test_an_evaluation_survives_json():
    found = small_evaluation().to_json()
    keys = "n accuracy macro_f1 mcc mean_depth depths by_exit confusion labels policy f1"
    assert list(found) == keys.split()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["depths"] == {"1": 2, "2": 0, "3": 2, "4": 0}
    assert found["labels"] == ["no", 7]
    assert set(found["by_exit"][0]) == {"depth", "accuracy", "macro_f1", "mcc", "trained", "f1"}


@pytest.mark.parametrize("depths", [[1, 2, 3], [0, 1, 1, 1], [1, 1, 1, 5]])
def test_depths_that_cannot_be_are_refused(depths):
    with pytest.raises(DataError, match="depth"):
        small_evaluation(depths=depths)


def test_confused_pairs_are_the_largest_counts_off_the_diagonal(make_evaluation):
    found = make_evaluation(classes=5)
    off = {(i, j): found.confusion[i][j] for i in range(5) for j in range(5) if i != j}
    pairs = found.confused_pairs(3)
    assert [pair.count for pair in pairs] == sorted(off.values(), reverse=True)[:3]
    for pair in pairs:
        row = found.labels.index(pair.truth)
        assert off[row, found.labels.index(pair.predicted)] == pair.count
        assert pair.share == pytest.approx(pair.count / sum(found.confusion[row]))


def test_a_perfect_evaluation_has_no_confused_pairs():
    assert small_evaluation(predicted=[0, 1, 1, 0]).confused_pairs() == []
