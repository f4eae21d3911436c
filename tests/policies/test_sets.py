"""Policies of label sets: their definition text by text, and who is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.reference import set_policies as reference

from offramp.errors import ConfigError
from offramp.policies import POLICIES, policy
from offramp.policies.replay import Pooled, scores
from offramp.policies.scored import Scored
from offramp.reading import alike, answers, probabilities, questions
from offramp.types import ExitOutput

TAKING = [name for name, kind in POLICIES.items() if kind.takes_sets and issubclass(kind, Scored)]


@pytest.mark.parametrize("classes", [1, 2, 5, 40])
@pytest.mark.parametrize("exits", [(1, 2, 3, 4), (2, 4)])
@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("name", TAKING)
def test_scores_of_sets_equal_the_definition(
    pooled: Callable[..., Pooled], name: str, classes: int, exits: tuple[int, ...], patience: int
) -> None:
    drawn = pooled(9, classes)
    made = policy(name, 1.0, patience=patience, sets=True)
    assert isinstance(made, Scored)
    found = scores(made, drawn, exits)  # (E, N)
    for text in range(9):
        wanted = reference.scores(name, [drawn.outputs[depth].logits[text].tolist() for depth in exits], patience)
        assert found[:, text].tolist() == pytest.approx(wanted, rel=1e-5, abs=2e-6)


def test_the_policies_for_sets_are_those_that_can_be_told() -> None:
    assert TAKING == ["confidence", "entropy", "margin", "patience", "patient-confidence"]
    assert all(POLICIES[name].takes_sets for name in ("never", "fixed"))


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if not kind.takes_sets])
def test_other_policies_are_refused_with_those_that_can_be(name: str) -> None:
    with pytest.raises(ConfigError, match=f"never, fixed, confidence, .*patient-confidence. Found `{name}`"):
        policy(name, 1.0, sets=True)


def test_the_surest_texts_have_a_score_that_is_a_number() -> None:
    logits = torch.tensor([[200.0, -200.0, 90.0], [0.0, 0.0, 0.0]])
    output = ExitOutput(torch.zeros(2, 1), logits, torch.zeros(3, 1))
    for name in ("confidence", "entropy", "margin"):
        made = policy(name, 1.0, sets=True)
        assert isinstance(made, Scored)
        score, _ = made.score(1, output, torch.empty(2, 0))
        assert score.tolist() == pytest.approx([1.0, 0.5 if name == "confidence" else 0.0], abs=1e-6)


def test_patience_starts_again_when_one_label_changes() -> None:
    made = policy("patience", 2.0, sets=True)
    assert isinstance(made, Scored)
    state, held = torch.zeros(1, 1, dtype=torch.int64), []
    for row in ([1.0, -1.0, 1.0], [2.0, -2.0, 3.0], [2.0, 2.0, 3.0], [1.0, 1.0, 1.0]):
        output = ExitOutput(torch.zeros(1, 1), torch.tensor([row]), torch.zeros(3, 1))
        score, state = made.score(1, output, state)
        held.append(score.item())
    assert held == [1.0, 2.0, 1.0, 2.0]


def test_a_set_is_read_as_one_question_for_each_label() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    yes = questions(logits, sets=True).softmax(dim=2)[..., 1]
    torch.testing.assert_close(yes, probabilities(logits, sets=True))
    assert torch.equal(answers(logits, sets=True), (logits >= 0).long())
    assert alike(torch.tensor([[1, 0], [1, 1]]), torch.tensor([[1, 0], [1, 0]])).tolist() == [True, False]


def test_a_probability_of_one_half_gives_the_label() -> None:
    assert answers(torch.tensor([[0.0, -1e-3]]), sets=True).tolist() == [[1, 0]]
