"""Thresholds: one for all exits or one per depth, each within the policy's own range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies import POLICIES, policy
from offramp.policies.confidence import Confidence
from offramp.policies.replay import Pooled, depths, scores
from offramp.policies.scored import Scored
from offramp.types import ExitOutput

SCORED = [name for name, kind in POLICIES.items() if issubclass(kind, Scored)]
RANGES = {
    **dict.fromkeys(("confidence", "entropy", "margin", "patient-confidence", "learned", "prior"), (0, 1)),
    "energy": (-math.inf, math.inf),
    "anchor": (0, 2),
    "patience": (1, math.inf),
    "vote": (0, math.inf),
}

Says = Callable[..., ExitOutput]
Fitted = Callable[..., dict[str, Tensor] | None]


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9, 0.95])
def test_a_score_that_is_the_threshold_is_enough_in_a_policy_and_in_a_replay(
    pooled: Callable[..., Pooled], threshold: float
) -> None:
    """Also where the threshold is no float32 number."""

    class Certain(Scored):
        def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tensor([threshold]), state

    drawn, rule = pooled(1, 3), Certain(threshold)
    assert rule.leave(1, drawn.outputs[1], rule.start(drawn.batch))[0].tolist() == [True]
    assert depths(scores(rule, drawn, [1]), torch.tensor([threshold], dtype=torch.float64), [1], 4).tolist() == [1]


def test_nobody_leaves_where_there_is_no_threshold_or_an_infinite_one(says: Says) -> None:
    made = Confidence({2: 0.5, 4: 0.9, 5: math.inf})
    assert [depth for depth in range(1, 7) if made.reads(depth)] == [2, 4, 5]
    sure = says([[0.0, 1.0]])  # a top probability of 0.73
    assert [made.leave(depth, sure, torch.empty(1, 0))[0].item() for depth in range(1, 6)] == [
        False,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("name", ["patience", "patient-confidence", "vote"])
def test_an_exit_that_is_not_read_leaves_no_trace(pooled: Callable[..., Pooled], name: str) -> None:
    drawn = pooled(3, 2)
    made = policy(name, {1: 1.0}, patience=3)
    _, state = made.leave(1, drawn.outputs[1], made.start(drawn.batch))
    _, after = made.leave(2, drawn.outputs[2], state)
    assert torch.equal(after, state)


@pytest.mark.parametrize("name", ["patience", "patient-confidence", "vote"])
def test_an_exit_with_an_infinite_threshold_is_remembered(pooled: Callable[..., Pooled], name: str) -> None:
    drawn = pooled(3, 2)
    made, bold = policy(name, {1: 1.0, 2: math.inf}, patience=3), policy(name, {1: 1.0, 2: 1.0}, patience=3)
    _, state = made.leave(1, drawn.outputs[1], made.start(drawn.batch))
    leaving, after = made.leave(2, drawn.outputs[2], state)
    assert not leaving.any()
    assert torch.equal(after, bold.leave(2, drawn.outputs[2], state)[1])
    assert not torch.equal(after, state)


@pytest.mark.parametrize("name", SCORED)
def test_the_range_is_what_a_score_can_reach(fitted: Fitted, name: str) -> None:
    low, high = RANGES[name]
    made = [policy(name, bound, tensors=fitted(name)) for bound in (low, high)]
    assert [cast(Scored, one).threshold(3) for one in made] == [low, high]
    assert cast(Scored, policy(name, {1: low, 3: math.inf}, tensors=fitted(name))).thresholds == {1: low, 3: math.inf}
    words = (
        f"between {low} and {high}" if math.isfinite(high) else f"{low} or more" if math.isfinite(low) else "a number"
    )
    for wrong in (low - 1, high + 1, math.nan):
        if low <= wrong <= high:
            continue
        with pytest.raises(ConfigError) as caught:
            policy(name, wrong, tensors=fitted(name))
        assert str(caught.value) == f"`threshold` should be {words}. Found {wrong:g}."
        if wrong == math.inf:
            continue
        with pytest.raises(ConfigError) as caught:
            policy(name, {1: low, 2: wrong}, tensors=fitted(name))
        assert str(caught.value) == f"`threshold` of depth 2 should be {words}. Found {wrong:g}."


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("classes", [1, 2, 77])
def test_scores_stay_within_the_range(pooled: Callable[..., Pooled], fitted: Fitted, name: str, classes: int) -> None:
    made = cast(Scored, policy(name, 1.0, tensors=fitted(name)))
    found = scores(made, pooled(200, classes), [1, 2, 3, 4])
    if name == "patient-confidence":
        assert found[0].isneginf().all()  # two exits have not been read yet
        found = found[1:]
    low, high = RANGES[name]
    assert low <= found.min()
    assert found.max() <= high


@pytest.mark.parametrize("patience", [0, -1])
def test_a_patience_below_1_is_named(patience: int) -> None:
    with pytest.raises(ConfigError, match=rf"^`patience` should be 1 or more\. Found {patience}\.$"):
        policy("patient-confidence", 0.5, patience=patience)


def test_patient_confidence_with_a_patience_of_1_is_confidence(pooled: Callable[..., Pooled]) -> None:
    drawn = pooled(50, 3)
    one, other = (cast(Scored, policy(name, 0.5, patience=1)) for name in ("patient-confidence", "confidence"))
    assert torch.equal(scores(one, drawn, [1, 2, 3]), scores(other, drawn, [1, 2, 3]))


def test_of_two_classes_the_margin_is_twice_the_confidence_less_1(pooled: Callable[..., Pooled]) -> None:
    drawn = pooled(50, 2)
    margin, confidence = (scores(cast(Scored, policy(name, 0.5)), drawn, [1]) for name in ("margin", "confidence"))
    torch.testing.assert_close(margin, 2 * confidence - 1, rtol=0.0, atol=1e-6)


def test_the_surest_texts_have_a_finite_entropy(says: Says) -> None:
    made = cast(Scored, policy("entropy", 1.0))
    sure = says([[200.0, 0.0, 0.0], [3e38, -3e38, 0.0]])
    assert made.leave(1, sure, torch.empty(2, 0))[0].tolist() == [True, True]


@pytest.mark.parametrize(
    ("agreeing", "counter"), [(1, 0), (2, 1), (3, 2)], ids=["one exit", "two exits", "three exits"]
)
def test_a_threshold_of_k_is_a_patience_of_k_less_1_in_pabee(says: Says, agreeing: int, counter: int) -> None:
    answers = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    count, before, left = 0, None, 0
    for depth, logits in enumerate(answers, 1):  # PABEE's counter: 0 at a new answer, one more at the same
        count = count + 1 if logits == before else 0
        before = logits
        if count == counter:
            left = depth
            break
    made, state = policy("patience", float(agreeing)), torch.tensor([[-1, 0]])
    for depth, logits in enumerate(answers, 1):
        leaving, state = made.leave(depth, says([logits]), state)
        if leaving.item():
            assert depth == left
            return
    pytest.fail("nobody left")
