"""Batched early exit answers as each text alone would be answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.runtime import ruled
from tests.runtime.ruled import alone, fitted, pool, rule, slowly
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES, policy
from offramp.policies.confidence import Confidence
from offramp.policies.fixed import Fixed
from offramp.policies.never import Never
from offramp.policies.replay import depths, scores
from offramp.policies.scored import Scored
from offramp.runtime.torch_engine import decide
from offramp.types import Batch

LAYERS = 4
CLOSE = {"rtol": 0.0, "atol": 1e-5}  # DESIGN, invariant 2
MODELS = [(family, kind) for family in ("bert", "roberta", "modernbert", "deberta-v2") for kind in ("linear", "mha")]
MODELS += [("bert", kind) for kind in ("residual", "match", "fusion", "leam", "lsan")]
every_model = pytest.mark.parametrize("name", MODELS, ids="-".join)
shapes = st.fixed_dictionaries(
    {"lengths": st.lists(st.integers(1, 24), min_size=1, max_size=7), "seed": st.integers(0, 10**6)},
    optional={"spare": st.integers(0, 4)},
)
thresholds = st.floats(0.34, 0.99) | st.floats(0, 1)
few = settings(max_examples=12, deadline=None)
fewer = settings(max_examples=8, deadline=None)  # there are many policies

Make = Callable[[str, str], MultiExitModel]
Tokens = Callable[..., Batch]


def take(batch: Batch, rows: Sequence[int]) -> Batch:
    """These texts of a batch, in this order, padded as they were."""
    types = batch.token_types
    return Batch(batch.input_ids[rows], batch.mask[rows], None if types is None else types[rows])


@torch.no_grad()
def slow(model: MultiExitModel, batch: Batch, threshold: float, exits: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Text by text and exit by exit: the logits and the depth where its top probability reaches the threshold."""
    logits, depths = [], []
    for row in range(len(batch)):
        outputs = model.outputs(alone(batch, row))
        tops = {depth: output.logits[0].softmax(dim=0).max().item() for depth, output in outputs.items()}
        assume(all(abs(top - threshold) > 1e-5 for top in tops.values()))  # rounding may decide there
        depth = next((d for d in sorted(exits) if tops[d] >= threshold), LAYERS)
        logits.append(outputs[depth].logits[0])
        depths.append(depth)
    return torch.stack(logits), depths


@every_model
@few
@given(shape=shapes)
@torch.no_grad()
def test_never_gives_the_last_exits_logits_on_hugging_faces_own_states(
    model_of: Make, tokens_for: Tokens, name: tuple[str, str], shape: dict[str, Any]
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, **shape)
    types = {} if batch.token_types is None else {"token_type_ids": batch.token_types}
    states = model.encoder.backbone(batch.input_ids, attention_mask=batch.mask, **types).last_hidden_state
    found = decide(model, batch, Never())
    assert found.depth.tolist() == [LAYERS] * len(batch)
    torch.testing.assert_close(found.logits, model.exits[-1](states, batch.mask).logits, **CLOSE)


@every_model
@few
@given(shape=shapes, threshold=thresholds, exits=st.sets(st.integers(1, LAYERS)))
def test_a_text_leaves_where_and_with_what_it_would_alone(
    model_of: Make,
    tokens_for: Tokens,
    trained: Callable[..., Any],
    name: tuple[str, str],
    shape: dict[str, Any],
    threshold: float,
    exits: set[int],
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, **shape)
    logits, depths = slow(model, batch, threshold, sorted(exits) or range(1, LAYERS + 1))
    with trained(model, exits):
        found = decide(model, batch, Confidence(threshold))
    assert found.depth.tolist() == depths
    torch.testing.assert_close(found.logits, logits, **CLOSE)


@every_model
@few
@given(shape=shapes, threshold=thresholds)
def test_a_text_receives_the_logits_of_its_exit_in_the_pass_through_all_exits(
    model_of: Make, tokens_for: Tokens, name: tuple[str, str], shape: dict[str, Any], threshold: float
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, **shape)
    found = decide(model, batch, Confidence(threshold))
    with torch.no_grad():
        every = torch.stack([output.logits for output in model.outputs(batch).values()])  # (L, B, C)
    torch.testing.assert_close(found.logits, every[found.depth - 1, torch.arange(len(batch))], **CLOSE)


@every_model
@few
@given(shape=shapes, threshold=thresholds, chance=st.randoms(use_true_random=False))
def test_neither_order_nor_company_changes_an_answer(
    model_of: Make,
    tokens_for: Tokens,
    name: tuple[str, str],
    shape: dict[str, Any],
    threshold: float,
    chance: random.Random,
) -> None:
    model, policy = model_of(*name), Confidence(threshold)
    batch = tokens_for(model, **shape)
    _, depths = slow(model, batch, threshold, range(1, LAYERS + 1))  # only to stay clear of ties
    together = decide(model, batch, policy)
    order = chance.sample(range(len(batch)), len(batch))
    cut = chance.randint(0, len(batch))
    for rows in (order, *(part for part in (order[:cut], order[cut:]) if part), *([row] for row in order)):
        found = decide(model, take(batch, rows), policy)
        assert found.depth.tolist() == [depths[row] for row in rows]
        torch.testing.assert_close(found.logits, together.logits[rows], **CLOSE)


@every_model
@few
@given(shape=shapes, ladder=st.lists(thresholds, min_size=2, max_size=5).map(sorted))
def test_depth_never_falls_when_the_threshold_rises(
    model_of: Make, tokens_for: Tokens, name: tuple[str, str], shape: dict[str, Any], ladder: list[float]
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, **shape)
    depths = torch.stack([decide(model, batch, Confidence(threshold)).depth for threshold in ladder])  # (steps, B)
    assert (depths.diff(dim=0) >= 0).all()


@every_model
def test_thresholds_spread_the_texts_over_the_exits(model_of: Make, tokens_for: Tokens, name: tuple[str, str]) -> None:
    """Else the properties above would hold of nothing."""
    model = model_of(*name)
    # Random labels of an `lsan` exit say much the same of a text: it is less sure.
    threshold = 0.45 if name[1] == "lsan" else 0.8
    depths = decide(model, tokens_for(model, [1, 3, 5, 8, 13, 21] * 10, 7), Confidence(threshold)).depth
    assert depths.bincount(minlength=LAYERS + 1)[1:].min() >= 3


@every_model
@few
@given(shape=shapes, exits=st.sets(st.integers(1, LAYERS), min_size=1))
def test_at_threshold_0_everybody_leaves_at_the_first_trained_exit(
    model_of: Make,
    tokens_for: Tokens,
    trained: Callable[..., Any],
    name: tuple[str, str],
    shape: dict[str, Any],
    exits: set[int],
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, **shape)
    with trained(model, exits):
        found = decide(model, batch, Confidence(0.0))
    assert set(found.depth.tolist()) == {min(exits)}


@every_model
def test_at_threshold_1_an_unsure_text_goes_to_the_last_exit(
    model_of: Make, tokens_for: Tokens, name: tuple[str, str]
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, [2, 9, 17, 4], 1)
    found, last = decide(model, batch, Confidence(1.0)), decide(model, batch, Never())
    assert found.depth.tolist() == [LAYERS] * 4
    assert torch.equal(found.logits, last.logits)
    assert found.logits.isfinite().all()


@every_model
@pytest.mark.parametrize("depth", range(1, LAYERS + 1))
@pytest.mark.parametrize("exits", [(), (LAYERS,)], ids=["none-trained", "last-trained"])
def test_a_fixed_depth_is_every_texts_depth_trained_or_not_and_no_deeper_layer_runs(
    model_of: Make,
    tokens_for: Tokens,
    witness: Callable[..., Any],
    trained: Callable[..., Any],
    name: tuple[str, str],
    depth: int,
    exits: tuple[int, ...],
) -> None:
    model = model_of(*name)
    batch = tokens_for(model, [3, 11, 7], 2, spare=2)
    with trained(model, exits), witness(model) as seen:
        found = decide(model, batch, Fixed(depth))
    assert found.depth.tolist() == [depth] * 3
    assert sorted(seen) == list(range(1, depth + 1))
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model.outputs(batch)[depth].logits, **CLOSE)


def test_fixed_at_0_is_the_last_depth(model_of: Make, tokens_for: Tokens) -> None:
    model = model_of("bert", "mha")
    assert decide(model, tokens_for(model, [3, 5], 0), Fixed(0)).depth.tolist() == [LAYERS, LAYERS]


# Every policy that scores, with a threshold per exit.

SCORED = [("bert", "mha", name) for name, kind in POLICIES.items() if issubclass(kind, Scored)]
SCORED += [("bert", "match", "anchor"), ("roberta", "linear", "prior"), ("modernbert", "mha", "vote")]
every_policy = pytest.mark.parametrize("name", SCORED, ids="-".join)
subsets = st.sets(st.integers(1, LAYERS), min_size=1).map(sorted)
shares = st.lists(st.floats(0, 1), min_size=LAYERS, max_size=LAYERS)


def levels(
    model: MultiExitModel, tokens_for: Tokens, name: str, exits: Sequence[int], shares: Sequence[float]
) -> dict[int, float]:
    return ruled.levels(model, tokens_for(model, [1, 3, 5, 8, 13, 21] * 10, 7), name, exits, shares)


@every_policy
@fewer
@given(shape=shapes, exits=subsets, shares=shares)
def test_under_every_policy_a_text_leaves_where_and_with_what_it_would_alone(
    model_of: Make,
    tokens_for: Tokens,
    name: tuple[str, str, str],
    shape: dict[str, Any],
    exits: list[int],
    shares: list[float],
) -> None:
    family, kind, chosen = name
    model = model_of(family, kind)
    batch = tokens_for(model, **shape)
    thresholds = levels(model, tokens_for, chosen, exits, shares)
    logits, left = slowly(model, batch, chosen, thresholds)
    found = decide(model, batch, rule(model, chosen, thresholds))
    assert found.depth.tolist() == left
    torch.testing.assert_close(found.logits, logits, **CLOSE)


@every_policy
@fewer
@given(shape=shapes, exits=subsets, shares=shares, chance=st.randoms(use_true_random=False))
def test_under_every_policy_neither_order_nor_company_nor_padding_changes_an_answer(
    model_of: Make,
    tokens_for: Tokens,
    name: tuple[str, str, str],
    shape: dict[str, Any],
    exits: list[int],
    shares: list[float],
    chance: random.Random,
) -> None:
    family, kind, chosen = name
    model = model_of(family, kind)
    batch = tokens_for(model, **shape)
    thresholds = levels(model, tokens_for, chosen, exits, shares)
    _, left = slowly(model, batch, chosen, thresholds)  # only to stay clear of ties
    made = rule(model, chosen, thresholds)
    together = decide(model, batch, made)
    order = chance.sample(range(len(batch)), len(batch))
    cut = chance.randint(0, len(batch))
    for rows in (order, *(part for part in (order[:cut], order[cut:]) if part), *([row] for row in order)):
        found = decide(model, take(batch, rows), made)
        assert found.depth.tolist() == [left[row] for row in rows]
        torch.testing.assert_close(found.logits, together.logits[rows], **CLOSE)


@every_policy
@fewer
@given(shape=shapes, exits=subsets, ladder=st.lists(shares, min_size=2, max_size=4))
def test_under_every_policy_depth_never_falls_when_thresholds_rise(
    model_of: Make,
    tokens_for: Tokens,
    name: tuple[str, str, str],
    shape: dict[str, Any],
    exits: list[int],
    ladder: list[list[float]],
) -> None:
    family, kind, chosen = name
    model = model_of(family, kind)
    batch = tokens_for(model, **shape)
    rising = [list(step) for step in zip(*(sorted(column) for column in zip(*ladder, strict=True)), strict=True)]
    found = torch.stack(
        [decide(model, batch, rule(model, chosen, levels(model, tokens_for, chosen, exits, s))).depth for s in rising]
    )  # (steps, B)
    assert (found.diff(dim=0) >= 0).all()


@every_policy
@fewer
@given(shape=shapes, exits=subsets, shares=shares, trained_exits=subsets)
def test_a_replay_of_what_all_exits_said_gives_the_depths_of_the_engine(
    model_of: Make,
    tokens_for: Tokens,
    trained: Callable[..., Any],
    name: tuple[str, str, str],
    shape: dict[str, Any],
    exits: list[int],
    shares: list[float],
    trained_exits: list[int],
) -> None:
    family, kind, chosen = name
    model = model_of(family, kind)
    batch = tokens_for(model, **shape)
    read = [depth for depth in exits if depth in trained_exits]
    # Of an exit that was not trained nothing is read, whatever its threshold.
    thresholds = levels(model, tokens_for, chosen, read, shares)
    everywhere = {**dict.fromkeys(exits, max(0.0, POLICIES[chosen].range[0])), **thresholds}  # type: ignore[attr-defined]
    slowly(model, batch, chosen, thresholds)  # only to stay clear of ties
    with trained(model, trained_exits):
        found = decide(model, batch, rule(model, chosen, everywhere))
    pooled = pool(model, batch)
    again = scores(rule(model, chosen, everywhere), pooled, read)
    left = depths(again, torch.tensor(list(thresholds.values())), read, LAYERS)
    assert left.tolist() == found.depth.tolist()


@every_policy
def test_under_every_policy_thresholds_spread_the_texts_over_the_exits(
    model_of: Make, tokens_for: Tokens, name: tuple[str, str, str]
) -> None:
    """Else the properties above would hold of nothing."""
    family, kind, chosen = name
    model = model_of(family, kind)
    batch = tokens_for(model, [1, 3, 5, 8, 13, 21] * 10, 7)
    some = [levels(model, tokens_for, chosen, [1, 2, 3], [share] * 3) for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]
    assert max(len(decide(model, batch, rule(model, chosen, one)).depth.unique()) for one in some) >= 3


@every_policy
def test_an_exit_that_is_not_read_is_not_run(model_of: Make, tokens_for: Tokens, name: tuple[str, str, str]) -> None:
    family, kind, chosen = name
    model = model_of(family, kind)
    made = rule(model, chosen, levels(model, tokens_for, chosen, [2], [1.0]))
    ran: list[int] = []
    hooks = [
        exit.register_forward_pre_hook(lambda *_, depth=depth: ran.append(depth))
        for depth, exit in enumerate(model.exits, 1)
    ]
    try:
        decide(model, tokens_for(model, [2, 9, 4], 0), made)
    finally:
        for hook in hooks:
            hook.remove()
    assert set(ran) <= {2, LAYERS}


@torch.no_grad()
def test_a_prior_decides_on_the_text_alone(model_of: Make, tokens_for: Tokens) -> None:
    """The same texts leave at the same depths in a model with other weights."""
    batch = tokens_for(model_of("bert", "mha"), [1, 3, 5, 8, 13, 21] * 5, 3)
    tensors = fitted(model_of("bert", "mha"), "prior")
    chosen = policy("prior", 0.8, tensors=tensors)
    one, other = (decide(model_of("bert", kind), batch, chosen).depth for kind in ("mha", "linear"))
    assert len(one.unique()) > 1
    assert torch.equal(one, other)
