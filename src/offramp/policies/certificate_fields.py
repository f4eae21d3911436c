"""LOGITS SO FAR -> LEAVE OR STAY: what the fields of a certificate should be, alone and together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from offramp.policies.evidence import RISKS

if TYPE_CHECKING:
    from offramp.policies.certificate import Certificate

VERSION = 1
ENGINES = ("torch", "onnx", "onnx int8")


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _share(value: Any) -> bool:
    return _real(value) and 0 <= value <= 1


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _word(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


_SHARE = ("a number from 0 to 1", _share)
_COUNT = ("a whole number, 0 or more", _count)
_WORD = ("a text that is not empty", _word)
_MAYBE_SHARE = ("a number from 0 to 1, or nothing", lambda value: value is None or _share(value))

FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "version": (f"{VERSION}", lambda value: _count(value) and value == VERSION),
    "policy": _WORD,
    "settings": (
        "words and numbers by name",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(key, str) and (_real(v) or isinstance(v, str)) for key, v in value.items())
        ),
    ),
    "thresholds": (
        "finite numbers by depth",
        lambda value: isinstance(value, Mapping) and all(_count(k) and k and _real(v) for k, v in value.items()),
    ),
    "exits": (
        "depths, ascending",
        lambda value: (
            isinstance(value, tuple)
            and all(_count(depth) and depth for depth in value)
            and list(value) == sorted(set(value))
        ),
    ),
    "layers": ("a whole number above 0", lambda value: _count(value) and value > 0),
    "risk": (" or ".join(RISKS), lambda value: value in RISKS),
    "epsilon": (
        "between 0 and 1, both excluded, or nothing",
        lambda value: value is None or (_real(value) and 0 < value < 1),
    ),
    "confidence": ("between 0 and 1, both excluded", lambda value: _real(value) and 0 < value < 1),
    "tried": ("a whole number above 0", lambda value: _count(value) and value > 0),
    "budget": ("a number above 0, or nothing", lambda value: value is None or (_real(value) and value > 0)),
    "within_budget": ("true, false or nothing", lambda value: value is None or isinstance(value, bool)),
    "selection": _COUNT,
    "certification": ("a whole number above 0", lambda value: _count(value) and value > 0),
    "harms": _COUNT,
    "measured": _SHARE,
    "bound": _SHARE,
    "accuracy_full": _MAYBE_SHARE,
    "accuracy_early": _MAYBE_SHARE,
    "mean_depth": ("a number above 0", lambda value: _real(value) and value > 0),
    "cost": ("a number, 0 or more", lambda value: _real(value) and value >= 0),
    "method": _WORD,
    "engine": (" or ".join(ENGINES), lambda value: value in ENGINES),
    "fingerprint": _WORD,
    "data": _WORD,
    "sha256": (
        "64 digits from 0 to f",
        lambda value: isinstance(value, str) and len(value) == 64 and not value.strip("0123456789abcdef"),
    ),
}
"""What each field should be."""

TOGETHER: tuple[tuple[str, Callable[[Certificate], bool]], ...] = (
    ("`exits` should be below the last.", lambda c: all(depth < c.layers for depth in c.exits)),
    ("Every threshold should belong to an exit that is read.", lambda c: set(c.thresholds) <= set(c.exits)),
    ("A policy should have thresholds, and `never` none.", lambda c: (c.policy == "never") != bool(c.thresholds)),
    ("`mean_depth` should be at most `layers`.", lambda c: c.mean_depth <= c.layers + 1e-9),
    (
        "`measured` should be the share of `harms` in `certification`.",
        lambda c: c.harms <= c.certification and abs(c.measured - c.harms / c.certification) < 1e-9,
    ),
    ("`bound` should be `measured` or more.", lambda c: c.bound >= c.measured - 1e-9),
    ("A certified `bound` should be at most `epsilon`.", lambda c: c.epsilon is None or c.bound <= c.epsilon + 1e-9),
    ("There should be an `epsilon` or a `budget`.", lambda c: c.epsilon is not None or c.budget is not None),
    (
        "`within_budget` should be told where there is a budget.",
        lambda c: (c.budget is None) == (c.within_budget is None),
    ),
)
"""What fields should be together: a certificate that was changed by hand is likely to break one."""
