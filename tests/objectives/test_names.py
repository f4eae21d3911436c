"""Objectives are found by name, and a wrong name or setting is answered with what would be right."""

from __future__ import annotations

import pytest
import torch

from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES, objective
from offramp.types import ExitOutput


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("slc", r"`slc` is not a known objective\. Did you mean 'scl'"),
        ("alc", r"Did you mean .*'acl'"),
        ("ACL", r"Known: acl, ce, scl\."),
        ("", r"Known: acl, ce, scl\."),
    ],
)
def test_an_unknown_name_is_answered_with_near_or_known_names(name: str, answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        objective(name)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_gives_its_own_objective(name: str) -> None:
    assert type(objective(name)) is OBJECTIVES[name]


def test_hyper_parameters_an_objective_does_not_have_are_left_aside() -> None:
    loss = objective("ce", temperature=0.1, weight=0.5, denominator="all", reduction="mean", label_smoothing=0.25)
    assert loss.label_smoothing == 0.25


@pytest.mark.parametrize("wrong", [{"denominator": "self"}, {"reduction": "max"}])
def test_a_wrong_setting_is_named(wrong: dict[str, str]) -> None:
    output = ExitOutput(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2))
    with pytest.raises(ConfigError, match=next(iter(wrong.values()))):
        objective("scl", **wrong)(output, torch.tensor([0, 0]))
