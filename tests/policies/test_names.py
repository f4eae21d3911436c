from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies import POLICIES, policy
from offramp.types import Batch, ExitOutput

Fitted = Callable[..., dict[str, Tensor] | None]
Texts = Callable[..., Batch]


@pytest.mark.parametrize("name", POLICIES)
def test_a_name_makes_the_policy_of_the_table(fitted: Fitted, name: str) -> None:
    assert type(policy(name, 1.0, 1, 2, fitted(name))) is POLICIES[name]


def test_the_settings_arrive() -> None:
    assert vars(policy("confidence", 0.625, 3)) == {"thresholds": 0.625, "sets": False}
    assert vars(policy("margin", {1: 0.5, 2: 0.625}, 3)) == {"thresholds": {1: 0.5, 2: 0.625}, "sets": False}
    assert vars(policy("fixed", 0.625, 3)) == {"depth": 3}
    assert vars(policy("patient-confidence", 0.625, 3, 4)) == {"thresholds": 0.625, "patience": 4, "sets": False}
    assert vars(policy("patience", 2.0, sets=True)) == {"thresholds": 2.0, "sets": True}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("confidance", r"Did you mean 'confidence'"),
        ("fix", r"Did you mean 'fixed'"),
        ("nevr", r"Did you mean 'never'"),
        ("pationt", r"Did you mean 'patience'"),
        ("zzz", re.escape(f"Known: {', '.join(sorted(POLICIES))}.")),
    ],
)
def test_an_unknown_policy_gets_the_near_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"^`{name}` is not a known policy\. {hint}"):
        policy(name, 0.5, 1)


@pytest.mark.parametrize("name", ["learned", "prior"])
@pytest.mark.parametrize("tensors", [None, {}])
def test_a_policy_that_was_not_fitted_says_how_to(name: str, tensors: dict[str, Tensor] | None) -> None:
    with pytest.raises(ConfigError, match=rf"Run: offramp calibrate MODEL DATA --policy {name}$"):
        policy(name, 0.5, tensors=tensors)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("classes", [1, 2])
def test_every_policy_keeps_one_row_of_state_and_one_answer_per_text(
    says: Callable[..., ExitOutput], texts: Texts, fitted: Fitted, name: str, count: int, classes: int
) -> None:
    made = policy(name, 1.0, 2, 2, fitted(name, size=2))
    state = made.start(texts(count))
    for depth in (1, 2, 3):
        leaving, state = made.leave(depth, says(torch.ones(count, classes)), state)
        assert (leaving.shape, leaving.dtype) == ((count,), torch.bool)
        assert len(state) == count


def test_never_lets_nobody_leave_and_looks_at_no_exit(says: Callable[..., ExitOutput], texts: Texts) -> None:
    made = policy("never", 0.0, 1)
    assert not made.leave(1, says([[99.0, 0.0]] * 3), made.start(texts(3)))[0].any()
    assert not any(made.reads(depth) for depth in range(1, 13))


def test_fixed_looks_at_one_exit_and_lets_everybody_leave_there(says: Callable[..., ExitOutput], texts: Texts) -> None:
    made = policy("fixed", 0.0, 3)
    assert [depth for depth in range(1, 13) if made.reads(depth)] == [3]
    assert [made.leave(depth, says([[0.0, 0.0]] * 2), made.start(texts(2)))[0].all().item() for depth in (2, 3)] == [
        False,
        True,
    ]
