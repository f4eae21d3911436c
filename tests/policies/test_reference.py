"""Every policy's scores equal its definition, computed text by text in Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies import POLICIES, policy
from offramp.policies.replay import Pooled, depths, scores
from offramp.policies.scored import Scored
from offramp.types import ExitOutput

SCORED = [name for name, kind in POLICIES.items() if issubclass(kind, Scored)]
NEAR = {"rel": 1e-5, "abs": 2e-6}  # float32 against float64
few = settings(max_examples=40, deadline=None)
each = pytest.mark.parametrize("name", SCORED)

Draw = Callable[..., Pooled]
Fitted = Callable[..., dict[str, Tensor] | None]


def made(name: str, tensors: dict[str, Tensor] | None, patience: int = 2, threshold: Any = None) -> Scored:
    found = policy(name, POLICIES[name].range[0] if threshold is None else threshold, 0, patience, tensors)  # type: ignore[attr-defined]
    return cast(Scored, found)


def slow(
    reference: ModuleType,
    name: str,
    pooled: Pooled,
    exits: Sequence[int],
    tensors: dict[str, Tensor] | None,
    patience: int = 2,
) -> list[list[float]]:
    """The scores, (E, N), by the slow loops."""
    given: dict[str, Any] = {"patience": patience}
    if name == "learned" and tensors:
        given["heads"] = [(tensors[f"{d}.weight"].tolist(), tensors[f"{d}.bias"].item()) for d in exits]
    if name == "prior" and tensors:
        given["priors"] = [
            (tensors["weight"][:, d - 1].tolist(), tensors["length"][d - 1].item(), tensors["bias"][d - 1].item())
            for d in exits
        ]
    rows = []
    for row in range(len(pooled.batch)):
        tokens = pooled.batch.input_ids[row, : int(pooled.batch.mask[row].sum())].tolist()
        said = [
            (o.representation[row].tolist(), o.logits[row].tolist(), o.label_embeddings.tolist())
            for o in (pooled.outputs[d] for d in exits)
        ]
        rows.append(reference.scores(name, said, tokens=tokens, **given))
    return [list(column) for column in zip(*rows, strict=True)]


@each
@pytest.mark.parametrize("classes", [1, 2, 3, 77])
@few
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 6),
    patience=st.integers(1, 4),
    exits=st.sets(st.integers(1, 4), min_size=1).map(sorted),
)
def test_scores_equal_the_definition(
    reference: ModuleType,
    pooled: Draw,
    fitted: Fitted,
    name: str,
    classes: int,
    seed: int,
    count: int,
    patience: int,
    exits: list[int],
) -> None:
    drawn, tensors = pooled(count, classes, seed=seed), fitted(name, seed=seed)
    found = scores(made(name, tensors, patience), drawn, exits)
    assert found.dtype == torch.float32
    wanted = slow(reference, name, drawn, exits, tensors, patience)
    for here, truth in zip(found.tolist(), wanted, strict=True):
        assert here == pytest.approx(truth, **NEAR)


def odd(logits: list[list[float]], representation: list[list[float]], labels: list[list[float]]) -> list[ExitOutput]:
    """Two exits that say odd things: these, and the same in another order."""
    turned = [row[::-1] for row in logits]
    return [ExitOutput(*(torch.tensor(x) for x in (representation, said, labels))) for said in (logits, turned)]


ODD = {
    "ties": odd(
        [[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], [[1.0, 0.0, 0.0]] * 2, [[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0] * 3]
    ),
    "identical logits": odd([[3.0] * 3] * 2, [[1.0, 2.0, 3.0]] * 2, [[1.0, 2.0, 3.0]] * 3),
    "huge logits": odd([[3e38, -3e38, 0.0], [3e38, 3e38, 3e38]], [[1.0, 0.0, 0.0]] * 2, [[1.0, 0.0, 0.0]] * 3),
    "small logits": odd([[-3e38] * 3, [-1e4, -2e4, -3e4]], [[1.0, 0.0, 0.0]] * 2, [[1.0, 0.0, 0.0]] * 3),
    "zero vectors": odd([[0.0] * 3] * 2, [[0.0] * 3, [1.0, 0.0, 0.0]], [[0.0] * 3, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "one class": odd([[0.0], [3e38]], [[0.0] * 3, [1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]),
}


@each
@pytest.mark.parametrize("case", ODD.values(), ids=ODD.keys())
def test_odd_outputs_are_no_exception(
    reference: ModuleType, pooled: Draw, fitted: Fitted, name: str, case: list[ExitOutput]
) -> None:
    drawn = replace(pooled(2, 3), outputs=dict(enumerate(case, 1)))
    tensors = fitted(name)
    found = scores(made(name, tensors), drawn, [1, 2])
    assert not found.isnan().any()
    for here, truth in zip(found.tolist(), slow(reference, name, drawn, [1, 2], tensors), strict=True):
        assert here == pytest.approx(truth, **NEAR)


@each
@few
@given(seed=st.integers(0, 10**6), classes=st.sampled_from([1, 2, 77]))
def test_bfloat16_outputs_are_judged_in_float32(
    reference: ModuleType, pooled: Draw, fitted: Fitted, name: str, seed: int, classes: int
) -> None:
    drawn, tensors = pooled(5, classes, seed=seed), fitted(name)
    half = {
        depth: ExitOutput(*(x.bfloat16() for x in (o.representation, o.logits, o.label_embeddings)))
        for depth, o in drawn.outputs.items()
    }
    drawn = replace(drawn, outputs=half)
    exits = [1, 2, 3, 4]
    found = scores(made(name, tensors), drawn, exits)
    assert found.dtype == torch.float32
    for here, truth in zip(found.tolist(), slow(reference, name, drawn, exits, tensors), strict=True):
        assert here == pytest.approx(truth, **NEAR)


@each
def test_autocast_does_not_round_a_score(pooled: Draw, fitted: Fitted, name: str) -> None:
    drawn, rule = pooled(9, 3), made(name, fitted(name))
    plain = scores(rule, drawn, [1, 2, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(scores(rule, drawn, [1, 2, 3]), plain)


@each
@few
@given(
    seed=st.integers(0, 10**6),
    exits=st.sets(st.integers(1, 4)).map(sorted),
    quantiles=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_a_text_leaves_at_the_first_exit_whose_score_reaches_its_threshold(
    reference: ModuleType,
    pooled: Draw,
    fitted: Fitted,
    name: str,
    seed: int,
    exits: list[int],
    quantiles: list[float],
) -> None:
    drawn, tensors = pooled(8, 3, seed=seed), fitted(name)
    found = scores(made(name, tensors), drawn, exits)  # (E, N)
    thresholds = torch.tensor(
        [row[round(q * 7)].item() for row, q in zip(found.sort(dim=1).values, quantiles, strict=False)]
    )
    wanted = [reference.depth(found[:, row].tolist(), thresholds.tolist(), exits, 4) for row in range(found.shape[1])]
    assert depths(found, thresholds, exits, 4).tolist() == wanted


@each
@few
@given(seed=st.integers(0, 10**6), quantiles=st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_depth_never_falls_when_a_threshold_rises(
    pooled: Draw, fitted: Fitted, name: str, seed: int, quantiles: list[float]
) -> None:
    found = scores(made(name, fitted(name)), pooled(20, 3, seed=seed), [1, 2, 3])
    low, high = (found.quantile(q, dim=1, interpolation="nearest") for q in sorted(quantiles))  # (E,)
    assert (depths(found, low, [1, 2, 3], 4) <= depths(found, high, [1, 2, 3], 4)).all()


@each
@few
@given(seed=st.integers(0, 10**6), chance=st.randoms(use_true_random=False))
def test_the_scores_of_texts_in_another_order_are_theirs(
    pooled: Draw, fitted: Fitted, name: str, seed: int, chance: Any
) -> None:
    drawn, rule = pooled(6, 3, seed=seed), made(name, fitted(name))
    order = chance.sample(range(6), 6)
    moved = Pooled(
        replace(drawn.batch, input_ids=drawn.batch.input_ids[order], mask=drawn.batch.mask[order]),
        {
            depth: replace(o, representation=o.representation[order], logits=o.logits[order])
            for depth, o in drawn.outputs.items()
        },
    )
    torch.testing.assert_close(
        scores(rule, moved, [1, 2, 3, 4]), scores(rule, drawn, [1, 2, 3, 4])[:, order], rtol=0.0, atol=1e-6
    )


def test_no_exits_send_everybody_to_the_last(pooled: Draw) -> None:
    found = scores(made("confidence", None), pooled(3, 2), [])
    assert found.shape == (0, 3)
    assert depths(found, torch.empty(0), [], 4).tolist() == [4, 4, 4]


def test_a_text_that_is_not_a_number_does_not_leave() -> None:
    found = torch.tensor([[math.nan, 0.5], [0.9, math.nan]])
    assert depths(found, torch.tensor([0.0, 0.0]), [1, 2], 4).tolist() == [2, 1]


@pytest.mark.parametrize("exits", [[2, 1], [1, 1]])
def test_exits_out_of_order_are_refused(pooled: Draw, exits: list[int]) -> None:
    with pytest.raises(
        ConfigError, match=r"^Exits should be given once each, from the shallowest to the deepest\. Found"
    ):
        scores(made("confidence", None), pooled(3, 2), exits)
