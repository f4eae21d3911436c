"""Batched early exit of label sets: who shares a batch with a text changes neither its depth nor its logits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES, policy
from offramp.policies.never import Never
from offramp.policies.scored import Scored
from offramp.runtime.torch_engine import TorchEngine, decide
from offramp.types import Batch

LAYERS = 4
CLOSE = {"rtol": 0.0, "atol": 1e-5}  # DESIGN, invariant 2
THRESHOLDS = {"confidence": (0.5, 0.6, 0.75), "entropy": (0.05, 0.2, 0.4), "margin": (0.0, 0.2, 0.5)}
THRESHOLDS |= {"patience": (1.0, 2.0, 3.0), "patient-confidence": (0.5, 0.55, 0.7)}
each = pytest.mark.parametrize("name", [n for n, k in POLICIES.items() if k.takes_sets and issubclass(k, Scored)])
kinds = pytest.mark.parametrize("kind", ["linear", "mha", "residual", "match", "fusion", "leam", "lsan"])

Make = Callable[[str, str], MultiExitModel]
Tokens = Callable[..., Batch]


def drawn(tokens_for: Tokens, model: MultiExitModel, seed: int = 3) -> Batch:
    return tokens_for(model, lengths=[3, 17, 9, 1, 24, 6, 12, 2], seed=seed)


@kinds
@torch.no_grad()
def test_never_gives_the_last_exits_logits(model_of: Make, tokens_for: Tokens, kind: str) -> None:
    model = model_of("bert", kind)
    batch = drawn(tokens_for, model)
    found = decide(model, batch, Never())
    torch.testing.assert_close(found.logits, model.outputs(batch, [LAYERS])[LAYERS].logits, **CLOSE)


@each
@kinds
@torch.no_grad()
def test_a_text_receives_the_logits_of_its_exit_and_leaves_where_it_would_alone(
    model_of: Make, tokens_for: Tokens, kind: str, name: str
) -> None:
    model = model_of("bert", kind)
    batch = drawn(tokens_for, model)
    every = torch.stack([output.logits for output in model.outputs(batch).values()])  # (L, B, C)
    for threshold in THRESHOLDS[name]:
        rule = policy(name, threshold, sets=True)
        found = decide(model, batch, rule)
        torch.testing.assert_close(found.logits, every[found.depth - 1, torch.arange(len(batch))], **CLOSE)
        for row in range(len(batch)):
            length = int(batch.mask[row].sum())
            types = None if batch.token_types is None else batch.token_types[row : row + 1, :length]
            single = Batch(batch.input_ids[row : row + 1, :length], batch.mask[row : row + 1, :length], types)
            assert decide(model, single, rule).depth.item() == found.depth[row].item()


@each
@torch.no_grad()
def test_a_depth_never_falls_when_the_threshold_rises(model_of: Make, tokens_for: Tokens, name: str) -> None:
    model = model_of("bert", "mha")
    batch = drawn(tokens_for, model)
    depths = [decide(model, batch, policy(name, t, sets=True)).depth for t in THRESHOLDS[name]]
    assert all((low <= high).all() for low, high in pairwise(depths))
    assert depths[0].sum() < depths[-1].sum(), "the thresholds make no difference: nothing was put to the test"


def test_a_model_of_sets_is_another_model_to_a_certificate(make_model: Callable[..., MultiExitModel]) -> None:
    one, sets = make_model(), make_model(sets=True)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), sets.state_dict().values(), strict=True))
    assert TorchEngine(one).fingerprint() != TorchEngine(sets).fingerprint()
