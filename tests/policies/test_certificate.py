"""A certificate says what it rests on, comes back as it was written, and nonsense is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.errors import ConfigError, ModelError
from offramp.policies.calibrate import Calibration, calibrate
from offramp.policies.certificate import Certificate
from offramp.policies.evidence import evidence
from offramp.policies.terms import Terms

ABOUT: dict[str, Any] = {
    "policy": "patience",
    "settings": {"patience": 2},
    "layers": 6,
    "risk": "accuracy drop",
    "engine": "torch",
    "fingerprint": "ab12",
    "data": "held-out.csv",
    "sha256": "0" * 64,
}
CALIBRATION = Calibration(
    thresholds={2: 0.875, 4: 0.75},
    exits=(1, 2, 4),
    terms=Terms(epsilon=0.02),
    tried=1,
    selection=150,
    certification=350,
    harms=2,
    bound=0.0179,
    cost=3.5,
    mean_depth=3.25,
    within_budget=None,
    accuracy_full=0.91,
    accuracy_early=0.908,
)


def certificate(**changed: Any) -> Certificate:
    """A certificate as `of` makes it, with some fields otherwise."""
    return dataclasses.replace(Certificate.of(CALIBRATION, **ABOUT), **changed)


def test_a_certificate_comes_back_as_it_was_written() -> None:
    written = certificate()
    again = Certificate.from_json(written.to_json())
    assert again == written
    assert again.to_json() == written.to_json()


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.integers(1, 11), st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
    st.text(min_size=1).filter(str.strip),
)
def test_thresholds_come_back_to_the_bit(thresholds: dict[int, float], data: str) -> None:
    exits = tuple(sorted(thresholds))
    written = certificate(thresholds=thresholds, exits=exits, layers=12, data=data)
    assert Certificate.from_json(written.to_json()) == written


def test_the_certificate_of_a_calibration_tells_what_was_found() -> None:
    draw = np.random.default_rng(0)
    right = draw.random((3, 800)) < np.array([[0.9], [0.93], [0.95]])
    harm = right[-1] & ~right[:-1]
    scores = np.where(harm, 0.0, 1.0) + 0.2 * draw.random((2, 800))
    found = calibrate(scores, evidence(harm, [1, 2], 3, right=right), Terms(epsilon=0.02, delta=0.1))
    made = Certificate.of(found, **{**ABOUT, "layers": 3, "policy": "confidence", "settings": {}})
    for name in ("thresholds", "exits", "harms", "measured", "bound", "mean_depth", "cost", "accuracy_early"):
        assert getattr(made, name) == getattr(found, name)
    assert (made.epsilon, made.confidence, made.policy) == (0.02, 0.9, "confidence")
    assert made.certified
    assert Certificate.from_json(made.to_json()) == made


def test_the_same_calibration_gives_the_same_bytes() -> None:
    assert certificate().to_json() == certificate().to_json()


def test_the_rule_has_a_threshold_for_each_exit_that_is_read() -> None:
    assert certificate().rule == {1: math.inf, 2: 0.875, 4: 0.75}


def test_a_calibration_without_thresholds_is_never() -> None:
    none = dataclasses.replace(CALIBRATION, thresholds={}, exits=(), harms=0, bound=0.0085, mean_depth=6.0, cost=6.0)
    made = Certificate.of(none, **ABOUT)
    assert (made.policy, made.settings, made.rule) == ("never", {}, {})


# --- what it promises


def test_it_promises_accuracy_in_points() -> None:
    assert certificate(epsilon=0.02).promises() == (
        "At most 2 points of accuracy are lost against the full model, with 95 % confidence, on texts like the 500 it "
        "was calibrated on, as long as this model runs with torch; measured: 2 of 350 texts harmed, 3.25 of 6 layers "
        "run, accuracy 0.9080 against 0.9100."
    )
    one = certificate(epsilon=0.01, harms=0, measured=0.0, bound=0.0085, confidence=0.9995)
    assert one.promises().startswith("At most 1 point of accuracy is lost against the full model, with 99.95 % conf")


def test_it_promises_agreement_in_percent() -> None:
    made = certificate(risk="disagreement", accuracy_full=None, accuracy_early=None, engine="onnx int8")
    assert made.promises() == (
        "At most 2 % of the answers differ from the full model's, with 95 % confidence, on texts like the 500 it was "
        "calibrated on, as long as this model runs with onnx int8; measured: 2 of 350 texts harmed, 3.25 of 6 layers "
        "run."
    )


def test_a_budget_alone_promises_nothing() -> None:
    made = certificate(epsilon=None, budget=3.5, within_budget=True)
    assert not made.certified
    assert made.promises() == (
        "No risk is promised, the thresholds are for a budget of 3.5; measured on other texts than they were chosen "
        "on: 2 of 350 texts harmed, 3.25 of 6 layers run, accuracy 0.9080 against 0.9100, cost 3.50 with the exits "
        "that were read; accuracy drop at most 1.8 % with 95 % confidence."
    )


def test_a_budget_that_was_not_kept_is_told() -> None:
    made = certificate(budget=3.0, within_budget=False)
    assert made.promises().endswith("; the budget of 3 is not kept.")


def test_that_nobody_leaves_is_told() -> None:
    made = certificate(policy="never", settings={}, thresholds={}, exits=(), harms=0, measured=0.0, mean_depth=6.0)
    assert made.promises() == (
        "At most 2 points of accuracy are lost against the full model, because no text leaves early: with 500 texts no "
        "thresholds could be certified to keep that with 95 % confidence."
    )


# --- nonsense

NONSENSE: list[tuple[str, Any]] = [
    ("version", 0),
    ("version", "1"),
    ("version", True),
    ("policy", ""),
    ("policy", 3),
    ("policy", "never"),
    ("settings", [1]),
    ("settings", {"patience": None}),
    ("thresholds", {"2": "0.9"}),
    ("thresholds", {"2": None}),
    ("thresholds", {"two": 0.9}),
    ("thresholds", {"02": 0.9}),
    ("thresholds", {"3": 0.9}),
    ("thresholds", {}),
    ("thresholds", [0.9]),
    ("exits", [4, 2, 1]),
    ("exits", [1, 2, 2, 4]),
    ("exits", [1, 2, 4, 6]),
    ("exits", [0, 2, 4]),
    ("exits", [[1], 2, 4]),
    ("exits", {"1": 2}),
    ("layers", 0),
    ("layers", 6.0),
    ("risk", "regret"),
    ("risk", ["accuracy drop"]),
    ("epsilon", 0),
    ("epsilon", 1.0),
    ("epsilon", "0.02"),
    ("epsilon", None),
    ("epsilon", 0.001),
    ("epsilon", 10**400),
    ("confidence", 95),
    ("tried", 0),
    ("budget", -1),
    ("budget", 3.0),
    ("within_budget", "yes"),
    ("within_budget", True),
    ("selection", -1),
    ("certification", 0),
    ("certification", 351),
    ("harms", 2.0),
    ("harms", 3),
    ("harms", True),
    ("measured", 0.5),
    ("bound", 0.001),
    ("bound", 1.2),
    ("bound", 0.03),
    ("accuracy_full", 91.0),
    ("accuracy_early", "high"),
    ("mean_depth", 0),
    ("mean_depth", 6.5),
    ("cost", -1.0),
    ("method", None),
    ("engine", "jax"),
    ("fingerprint", " "),
    ("data", None),
    ("sha256", "0" * 63),
    ("sha256", "G" * 64),
]


@pytest.mark.parametrize(("field", "value"), NONSENSE, ids=lambda value: str(value)[:20])
def test_a_field_that_makes_no_sense_is_refused(field: str, value: Any) -> None:
    record = json.loads(certificate().to_json()) | {field: value}
    with pytest.raises(ModelError, match=r"^The certificate cannot be read: .*Run `offramp calibrate` again\.$"):
        Certificate.from_json(json.dumps(record))


def test_a_bad_field_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^`engine` should be torch or onnx or onnx int8\. Found 'jax'\.$"):
        certificate(engine="jax")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Certificate)])
def test_a_missing_field_is_named(field: str) -> None:
    record = json.loads(certificate().to_json())
    del record[field]
    with pytest.raises(ModelError, match=f"Missing or unknown: `{field}`"):
        Certificate.from_json(json.dumps(record))


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ModelError, match="Missing or unknown: `mood`"):
        Certificate.from_json(json.dumps(json.loads(certificate().to_json()) | {"mood": "good"}))


def test_a_newer_certificate_asks_for_an_upgrade() -> None:
    with pytest.raises(ModelError, match=r"`version` should be at most 1\. Found 2, of a newer offramp: upgrade\."):
        Certificate.from_json(json.dumps({"version": 2}))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"certificate"', '{"version": NaN}', '{"a": 1, "a": 2}', "[" * 100_000]
)
def test_what_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="The certificate cannot be read"):
        Certificate.from_json(text)


def test_a_number_that_is_not_finite_is_refused() -> None:
    text = certificate().to_json()
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        with pytest.raises(ModelError):
            Certificate.from_json(text.replace("0.875", number))
