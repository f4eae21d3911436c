from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from offramp.errors import ConfigError
from offramp.policies import POLICIES, policy
from offramp.types import ExitOutput


@pytest.mark.parametrize("name", POLICIES)
def test_a_name_makes_the_policy_of_the_table(name: str) -> None:
    assert type(policy(name, 0.5, 1)) is POLICIES[name]


def test_the_settings_arrive() -> None:
    assert vars(policy("confidence", 0.625, 3)) == {"threshold": 0.625}
    assert vars(policy("fixed", 0.625, 3)) == {"depth": 3}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("confidance", r"Did you mean 'confidence'\?"),
        ("fix", r"Did you mean 'fixed'\?"),
        ("nevr", r"Did you mean 'never'\?"),
        ("zzz", r"Known: confidence, fixed, never\."),
    ],
)
def test_an_unknown_policy_gets_the_near_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"^`{name}` is not a known policy\. {hint}$"):
        policy(name, 0.5, 1)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("texts", [0, 1, 5])
def test_every_policy_keeps_one_row_of_state_and_one_answer_per_text(
    says: Callable[..., ExitOutput], name: str, texts: int
) -> None:
    made = policy(name, 0.5, 2)
    state = made.start(texts)
    for depth in (1, 2, 3):
        leaving, state = made.leave(depth, says([[1.0, 2.0]] * texts if texts else state.new_zeros(0, 2)), state)
        assert (leaving.shape, leaving.dtype) == ((texts,), torch.bool)
        assert len(state) == texts


def test_never_lets_nobody_leave_and_looks_at_no_exit(says: Callable[..., ExitOutput]) -> None:
    made = policy("never", 0.0, 1)
    assert not made.leave(1, says([[99.0, 0.0]] * 3), made.start(3))[0].any()
    assert not any(made.reads(depth) for depth in range(1, 13))


def test_fixed_looks_at_one_exit_and_lets_everybody_leave_there(says: Callable[..., ExitOutput]) -> None:
    made = policy("fixed", 0.0, 3)
    assert [depth for depth in range(1, 13) if made.reads(depth)] == [3]
    assert [made.leave(depth, says([[0.0, 0.0]] * 2), made.start(2))[0].all().item() for depth in (2, 3)] == [
        False,
        True,
    ]
