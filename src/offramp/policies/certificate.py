"""LOGITS SO FAR -> LEAVE OR STAY: what a calibrated policy promises, on paper: a frozen record, JSON in and out.

It holds for one model, one engine and one policy with its thresholds: `fingerprint` and `engine` say which. There is no
date in it, so that the same texts give the same certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from offramp.errors import ConfigError, ModelError
from offramp.policies.calibrate import Calibration
from offramp.policies.certificate_fields import FIELDS, TOGETHER, VERSION
from offramp.policies.evidence import DROP, LABEL_DROP, WORD_DISAGREEMENT, WORD_DROP

METHOD = "learn-then-test, fixed sequence, exact binomial"
MEASURED = "measured, not certified"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A policy with its thresholds, what is promised of it, and what that rests on."""

    policy: str  # `never` where nothing else could be certified
    settings: Mapping[str, int | float | str]  # of the policy, as its patience
    thresholds: Mapping[int, float]  # by depth
    exits: tuple[int, ...]  # that are read; one without a threshold lets nobody leave
    layers: int
    risk: str  # what is kept low
    epsilon: float | None  # to at most this; None: nothing was promised
    confidence: float
    tried: int  # policies that shared 1 - confidence
    budget: float | None
    within_budget: bool | None
    selection: int  # texts that the thresholds were chosen on
    certification: int  # texts that they were certified on; all that follows was measured there
    harms: int
    measured: float
    bound: float  # Clopper-Pearson, at level (1 - confidence) / tried
    accuracy_full: float | None
    accuracy_early: float | None
    mean_depth: float
    cost: float
    method: str
    engine: str
    fingerprint: str  # of the model
    data: str
    sha256: str  # of the data
    version: int = VERSION

    def __post_init__(self) -> None:
        for name, (wanted, holds) in FIELDS.items():
            if not holds(getattr(self, name)):
                raise ConfigError(f"`{name}` should be {wanted}. Found {getattr(self, name)!r}.")
        for wanted, holds_for in TOGETHER:
            if not holds_for(self):
                raise ConfigError(f"{wanted} Found something else.")

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        *,
        policy: str,
        layers: int,
        risk: str,
        engine: str,
        fingerprint: str,
        data: str,
        sha256: str,
        settings: Mapping[str, int | float | str] | None = None,
    ) -> Certificate:
        """The certificate of a calibration; where nobody leaves, the policy is `never`."""
        terms, leaves = calibration.terms, bool(calibration.thresholds)
        shared = {field.name for field in fields(cls)} & {*calibration.__slots__, "measured"}
        return cls(
            policy=policy if leaves else "never",
            settings=dict(settings or {}) if leaves else {},
            layers=layers,
            risk=risk,
            epsilon=terms.epsilon,
            confidence=1 - terms.delta,
            budget=terms.budget,
            method=METHOD if calibration.certified else MEASURED,
            engine=engine,
            fingerprint=fingerprint,
            data=data,
            sha256=sha256,
            **{name: getattr(calibration, name) for name in shared},
        )

    @property
    def certified(self) -> bool:
        """Whether a risk is promised."""
        return self.epsilon is not None

    @property
    def rule(self) -> dict[int, float]:
        """The threshold of every exit that is read; infinite where the exit is read for the policy's state alone."""
        return {depth: self.thresholds.get(depth, math.inf) for depth in self.exits}

    def promises(self) -> str:
        """What it says, in one sentence for people."""
        texts, sure = self.selection + self.certification, f"{_number(100 * self.confidence)} % confidence"
        measured = self.measurement(self.harms, self.mean_depth, self.accuracy_early)
        if self.budget is not None:
            measured += f", cost {self.cost:.2f} with the exits that were read"
        if self.epsilon is None:
            most = _number(math.ceil(1000 * self.bound) / 10)
            return (
                f"No risk is promised, the thresholds are for a budget of {_number(self.budget or 0)}; measured on "
                f"other texts than they were chosen on: {measured}; {self.risk} at most {most} % with {sure}."
            )
        limit = _number(100 * self.epsilon)
        if self.risk == DROP:
            lost = "point of accuracy is lost" if limit == "1" else "points of accuracy are lost"
            kept = f"At most {limit} {lost} against the full model"
        elif self.risk == LABEL_DROP:
            kept = (
                f"For every label, leaving early makes a right decision about it wrong for at most {limit} % of the "
                "texts, against the full model"
            )
        elif self.risk == WORD_DROP:
            kept = (
                f"At most {limit} % of the texts have a word that the full model tags rightly and leaving early wrongly"
            )
        elif self.risk == WORD_DISAGREEMENT:
            kept = f"At most {limit} % of the texts have a word that is not tagged as the full model tags it"
        else:
            kept = f"At most {limit} % of the answers differ from the full model's"
        if not self.thresholds:
            return (
                f"{kept}, because no text leaves early: with {texts} texts no thresholds could be certified to keep "
                f"that with {sure}."
            )
        missed = "" if self.within_budget is not False else f"; the budget of {_number(self.budget or 0)} is not kept"
        return (
            f"{kept}, with {sure}, on texts like the {texts} it was calibrated on, as long as this model runs with "
            f"{self.engine}; measured: {measured}{missed}."
        )

    def measurement(self, harms: int, mean_depth: float, accuracy: float | None) -> str:
        """What the certification texts met, in words."""
        worst = " at the worst label" if self.risk == LABEL_DROP else ""
        told = f"{harms} of {self.certification} texts harmed{worst}, {mean_depth:.2f} of {self.layers} layers run"
        if self.accuracy_full is None or accuracy is None:
            return told
        whole = " of whole sets" if self.risk == LABEL_DROP else ""
        whole = " of words" if self.risk in (WORD_DROP, WORD_DISAGREEMENT) else whole
        return f"{told}, accuracy{whole} {accuracy:.4f} against {self.accuracy_full:.4f}"

    def to_json(self) -> str:
        """The record as JSON, one field per line."""
        record = asdict(self) | {"thresholds": {str(depth): t for depth, t in self.thresholds.items()}}
        return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """The certificate that was written; whatever is not one is refused."""
        try:
            record = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
            if not isinstance(record, dict):
                raise ValueError(f"it should be a record. Found {str(record)[:60]!r}.")
            if isinstance(record.get("version"), int) and record["version"] > VERSION:
                raise ValueError(
                    f"`version` should be at most {VERSION}. Found {record['version']}, of a newer offramp: upgrade."
                )
            names = {field.name for field in fields(cls)}
            if set(record) != names:
                odd = ", ".join(f"`{name}`" for name in sorted(set(record) ^ names))
                raise ValueError(f"it should have the fields of version {VERSION}. Missing or unknown: {odd}.")
            if not isinstance(record["thresholds"], dict) or not isinstance(record["exits"], list):
                raise ValueError("`thresholds` should be a record by depth and `exits` a list.")
            thresholds = {_depth(depth): threshold for depth, threshold in record["thresholds"].items()}
            return cls(**record | {"thresholds": thresholds, "exits": tuple(record["exits"])})
        except (ValueError, ConfigError, RecursionError, OverflowError) as error:
            said = str(error).rstrip(".")
            raise ModelError(f"The certificate cannot be read: {said}. Run `offramp calibrate` again.") from error


def _number(value: float) -> str:
    return f"{round(value, 6):g}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("every field should stand in it once. Found one twice.")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"every number should be finite. Found {constant}.")


def _depth(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or text.startswith("0"):
        raise ValueError(f"a depth should be a whole number above 0. Found {text!r}.")
    return int(text)
