"""What is certified is what will run: scores, harms and depths of a model, replayed and in its engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from offramp.calibration import AUTO, FOLDS, REMEMBERING, SCORED, Request, certify, choose
from offramp.data.tokens import Tokens
from offramp.errors import ConfigError, DataError
from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES, policy
from offramp.policies.evidence import DISAGREEMENT, DROP
from offramp.policies.replay import Pooled, depths, scores
from offramp.policies.scored import Scored
from offramp.policies.terms import divide
from offramp.runtime.engine import pool, run
from offramp.runtime.torch_engine import TorchEngine
from offramp.types import Batch, ExitOutput

LAYERS = 4
BATCH = 32


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 30, 300)
    return Tokens(
        ids=draw.integers(5, 128, lengths.sum()).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        pad=0,
        types=np.zeros(lengths.sum(), np.int32),
    )


@pytest.fixture
def engine(make_model: Callable[..., MultiExitModel]) -> TorchEngine:
    """A random model whose exits resemble each other: each layer changes little."""
    model = make_model(LAYERS, exit_kind="linear")
    model.config.trained_exits = [1, 2, 3, 4]
    first = model.exits[0].state_dict()
    with torch.no_grad():
        for exit in model.exits:
            exit.load_state_dict(
                {name: tensor * (4.0 if "classifier" in name else 1.0) for name, tensor in first.items()}
            )
        for layer in model.encoder.backbone.encoder.layer:
            for part in (layer.attention.output.dense, layer.output.dense):
                part.weight.mul_(0.3)
    return TorchEngine(model)


def disagreement(policy: str = AUTO, most: float = 0.3) -> Request:
    return Request.of(None, most, 0.95, None, policy)


def answers(engine: TorchEngine, tokens: Tokens) -> dict[int, list[int]]:
    """What each exit answers to each text on its own."""
    found: dict[int, list[int]] = {}
    for row in range(len(tokens)):
        for depth, output in engine.outputs(tokens.batch([row])).items():
            found.setdefault(depth, []).append(int(output.logits.argmax()))
    return found


@pytest.mark.parametrize("name", SCORED)
def test_the_engine_leaves_where_the_replay_did(engine: TorchEngine, tokens: Tokens, name: str) -> None:
    certified = certify(engine, tokens, None, disagreement(name), "texts", BATCH, "ab")
    told, chosen = certified.certificate, certified.policy()
    decided = run(engine, tokens, chosen, BATCH)
    if told.thresholds:
        assert isinstance(chosen, Scored)
        thresholds = torch.tensor([told.rule[depth] for depth in told.exits])
        replayed = depths(scores(chosen, pool(engine, tokens, BATCH), told.exits), thresholds, told.exits, LAYERS)
        assert decided.depth.tolist() == replayed.tolist()
    each = answers(engine, tokens)
    _, rows = divide(len(tokens), disagreement(name).terms)
    left = decided.depth.tolist()
    assert told.harms == sum(each[left[row]][row] != each[LAYERS][row] for row in rows)
    assert told.mean_depth == pytest.approx(sum(left[row] for row in rows) / len(rows), abs=1e-12)


def test_some_policy_lets_texts_leave_here(engine: TorchEngine, tokens: Tokens) -> None:
    """Or the test above would compare nothing."""
    certified = certify(engine, tokens, None, disagreement(), "texts", BATCH, "ab")
    assert certified.certificate.thresholds
    assert certified.certificate.mean_depth < LAYERS
    assert certified.certificate.tried == 3


@pytest.mark.parametrize("name", REMEMBERING)
def test_an_exit_that_is_read_for_the_state_alone_is_read_by_the_engine(
    engine: TorchEngine, tokens: Tokens, name: str
) -> None:
    pooled = pool(engine, tokens, BATCH)
    limits = {1: math.inf, 2: 1.4 if name == "vote" else 0.4 if name == "patient-confidence" else 2.0, 3: math.inf}
    chosen = policy(name, limits)
    assert isinstance(chosen, Scored)
    replayed = depths(scores(chosen, pooled, (1, 2, 3)), torch.tensor(list(limits.values())), (1, 2, 3), LAYERS)
    decided = run(engine, tokens, chosen, BATCH)
    assert decided.depth.tolist() == replayed.tolist()
    assert set(decided.depth.tolist()) == {2, 4}
    without = policy(name, {2: limits[2]})
    assert run(engine, tokens, without, BATCH).depth.tolist() != replayed.tolist()


def test_only_policies_that_remember_depend_on_the_exits_that_are_read(engine: TorchEngine, tokens: Tokens) -> None:
    pooled = pool(engine, tokens, BATCH)
    for name in set(SCORED) - {"learned", "prior"}:
        chosen = policy(name, {})
        assert isinstance(chosen, Scored)
        whole, part = scores(chosen, pooled, (1, 2, 3)), scores(chosen, pooled, (1, 3))
        assert torch.equal(whole[[0, 2]], part) is (name not in REMEMBERING)


def test_what_is_fitted_is_fitted_to_the_selection_texts_only(
    engine: TorchEngine, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[Any]] = {}

    def spy(name: str, fit: Callable[..., Any]) -> Callable[..., Any]:
        def look(pooled: Any, *rest: Any) -> Any:
            seen.setdefault(name, []).append(pooled)
            return fit(pooled, *rest)

        return look

    from offramp import calibration

    for name in ("fit_heads", "fit_prior"):
        monkeypatch.setattr(calibration, name, spy(name, getattr(calibration, name)))
    certify(engine, tokens, None, disagreement(), "texts", BATCH, "ab")
    rows, _ = divide(len(tokens), disagreement().terms, 3)
    whole = pool(engine, tokens, BATCH)
    for kept, *crossed in seen.values():
        assert torch.equal(kept.batch.input_ids, whole.batch.input_ids[rows])
        assert torch.equal(kept.batch.mask, whole.batch.mask[rows])
        for depth in (1, 2, 3):
            assert torch.equal(kept.outputs[depth].logits, whole.outputs[depth].logits[rows])
        assert len(crossed) == FOLDS
        for fold, given in enumerate(crossed):
            others = rows[np.arange(len(rows)) % FOLDS != fold]
            assert sorted(map(tuple, given.batch.input_ids.tolist())) == sorted(
                map(tuple, whole.batch.input_ids[others].tolist())
            )
    assert set(seen) == {"fit_heads", "fit_prior"}


def test_a_certificate_does_not_depend_on_who_shares_a_batch(engine: TorchEngine, tokens: Tokens) -> None:
    whole = certify(engine, tokens, None, disagreement("confidence"), "texts", 300, "ab").certificate
    single = certify(engine, tokens, None, disagreement("confidence"), "texts", 1, "ab").certificate
    assert (single.exits, single.harms, single.mean_depth) == (whole.exits, whole.harms, whole.mean_depth)
    assert single.thresholds == pytest.approx(whole.thresholds, abs=1e-5)
    assert (single.sha256, single.fingerprint) == (whole.sha256, whole.fingerprint)


def test_pooled_outputs_are_in_the_order_of_the_texts_and_their_tokens_are_narrow(
    engine: TorchEngine, tokens: Tokens
) -> None:
    pooled = pool(engine, tokens, 7, [2, 4])
    assert set(pooled.outputs) == {2, 4}
    for row in (0, 17, 299):
        alone = engine.outputs(tokens.batch([row]))
        for depth in (2, 4):
            assert pooled.outputs[depth].logits[row] == pytest.approx(alone[depth].logits[0], abs=1e-5)
            assert pooled.outputs[depth].representation[row] == pytest.approx(alone[depth].representation[0], abs=1e-5)
    batch = tokens.batch(range(len(tokens)))
    assert torch.equal(pooled.batch.input_ids, batch.input_ids)
    assert torch.equal(pooled.batch.mask, batch.mask.bool())
    assert (pooled.batch.input_ids.dtype, pooled.batch.mask.dtype) == (torch.int32, torch.bool)
    assert not torch.is_inference_mode_enabled()


def test_more_texts_than_are_padded_at_once_are_all_there(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, tokens: Tokens
) -> None:
    whole = pool(engine, tokens, BATCH, [1]).batch
    monkeypatch.setattr("offramp.runtime.engine.CHUNK", 7)
    parts = pool(engine, tokens, BATCH, [1]).batch
    assert torch.equal(parts.input_ids, whole.input_ids)
    assert torch.equal(parts.mask, whole.mask)


def test_labels_change_what_the_data_is(engine: TorchEngine, tokens: Tokens) -> None:
    request = Request.of(0.5, None, 0.95, None, "confidence")
    marks = [certify(engine, tokens, [k] * 300, request, "texts", BATCH, "ab").certificate.sha256 for k in (0, 1)]
    bare = certify(engine, tokens, None, disagreement("confidence"), "texts", BATCH, "ab").certificate.sha256
    assert len({*marks, bare}) == 3


def test_every_scored_policy_can_be_asked_for_and_no_other() -> None:
    assert set(POLICIES) - set(SCORED) == {"never", "fixed"}
    for name in (AUTO, *SCORED):
        assert Request.of(None, None, 0.95, None, name).policy == name
    for name in ("never", "fixed", "", "confidense"):
        with pytest.raises(ConfigError, match="is not a known policy that can be calibrated"):
            Request.of(None, None, 0.95, None, name)


def test_with_nothing_asked_a_drop_of_one_point_is() -> None:
    request = Request.of(None, None, 0.95, None, AUTO)
    assert (request.risk, request.terms.epsilon, request.terms.budget) == (DROP, 0.01, None)
    assert request.terms.delta == pytest.approx(0.05, abs=1e-12)
    budget = Request.of(None, None, 0.95, 2.5, AUTO)
    assert (budget.terms.epsilon, budget.terms.budget) == (None, 2.5)
    both = Request.of(None, 0.05, 0.9, 2.5, AUTO)
    assert (both.risk, both.terms.epsilon, both.terms.budget, both.needs_labels) == (DISAGREEMENT, 0.05, 2.5, False)


def test_a_drop_cannot_be_measured_without_labels_or_with_too_few(engine: TorchEngine, tokens: Tokens) -> None:
    request = Request.of(0.3, None, 0.95, None, "confidence")
    with pytest.raises(ConfigError, match="should be measured on labelled texts"):
        certify(engine, tokens, None, request, "texts", BATCH, "ab")
    with pytest.raises(DataError, match="Found 10 labels of 300 texts"):
        certify(engine, tokens, [0] * 10, request, "texts", BATCH, "ab")


def sure_where_right(texts: int) -> tuple[Pooled, list[int]]:
    """Exits that are right the more often the surer they are; representations and tokens tell nothing."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(2, (texts,), generator=draw)
    sign = (2.0 * truth - 1)[:, None] * torch.tensor([-1.0, 1.0])  # (N, C)
    outputs = {}
    for depth in range(1, LAYERS + 1):
        strength = 0.5 * depth + 1.5 * torch.randn(texts, generator=draw)  # below 0 it is wrong
        noise = torch.randn(texts, 100, generator=draw)
        outputs[depth] = ExitOutput(noise, sign * strength[:, None], torch.zeros(2, 100))
    ids = torch.randint(5, 4000, (texts, 12), generator=draw)
    return Pooled(Batch(ids, torch.ones_like(ids)), outputs), truth.tolist()


def test_what_was_fitted_to_the_texts_that_choose_does_not_flatter_itself_on_them() -> None:
    """A head on a hundred features that tell nothing knows its own texts by heart."""
    pooled, truth = sure_where_right(400)

    def harm(name: str) -> float:
        return choose(pooled, truth, Request.of(None, None, 0.95, 2.5, name))[1].measured

    assert harm(AUTO) <= harm("confidence") + 0.02
    assert harm("learned") <= harm("confidence") + 0.05


def test_what_is_kept_of_a_fit_is_made_of_all_texts_that_choose() -> None:
    pooled, truth = sure_where_right(400)
    request = Request.of(None, None, 0.95, 3.0, "learned")
    chosen, calibration, tensors = choose(pooled, truth, request)
    made = policy(chosen, dict(calibration.thresholds), tensors=tensors)
    assert isinstance(made, Scored)
    _, certification = divide(400, request.terms)
    thresholds = torch.tensor([calibration.thresholds[depth] for depth in calibration.exits])
    left = depths(scores(made, pooled, calibration.exits), thresholds, calibration.exits, LAYERS)[certification]
    assert float(left.double().mean()) == pytest.approx(calibration.mean_depth)
