"""The exported model answers as torch does, in onnxruntime."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.encoder.backbones import make_backbone, make_batch, take
from tests.runtime.ruled import levels, rule, slowly
from torch import Tensor

from offramp.errors import ConfigError
from offramp.exits.model import MultiExitModel, build
from offramp.policies import POLICIES
from offramp.policies.confidence import Confidence
from offramp.policies.fixed import Fixed
from offramp.policies.never import Never
from offramp.policies.patience import Patience
from offramp.policies.scored import Scored
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_export import export
from offramp.runtime.onnx_sessions import cores
from offramp.runtime.torch_engine import decide
from offramp.types import Batch, ExitOutput, Policy

LAYERS = 4
LABELS = ("a", 2, "c")
CLOSE = {"rtol": 0.0, "atol": 1e-5}
FAMILIES = ("bert", "roberta", "electra-narrow", "distilbert", "modernbert", "deberta-v3")
# Each export takes seconds: here every family and every exit once, the others when there is time.
MODELS = [("bert", "residual"), ("roberta", "linear"), ("electra-narrow", "mha"), ("distilbert", "linear")]
MODELS += [("modernbert", "mha"), ("deberta-v3", "linear")]
LONG = [(family, kind) for family in FAMILIES for kind in ("linear", "mha") if (family, kind) not in MODELS]
LONG += [("xlm-roberta", "linear"), ("deberta-conv", "mha"), ("deberta-relative", "linear")]
LONG += [("bert", kind) for kind in ("match", "fusion", "leam", "lsan")]
ALL = [*MODELS, *(pytest.param(*name, marks=pytest.mark.long) for name in LONG)]
every_model = pytest.mark.parametrize(("family", "kind"), ALL)
usual_models = pytest.mark.parametrize(("family", "kind"), MODELS)
lengths = st.lists(st.integers(1, 24), min_size=1, max_size=7)
seeds = st.integers(0, 10**6)
thresholds = st.floats(0.34, 0.8) | st.floats(0, 1)
few = settings(max_examples=10, deadline=None)

Both = tuple[MultiExitModel, OnnxEngine]
Get = Callable[[str, str], Both]


@torch.no_grad()
def sure_and_unsure(model: MultiExitModel) -> None:
    """Where an exit ends with a linear layer, its logits differ between texts by about 0.5.

    More would need larger weights, which enlarge the rounding too: in torch's float32 as in onnxruntime's.
    """
    outputs = model.outputs(pairs(model, [1, 3, 5, 8, 13, 21] * 10, seed=0))
    for depth, output in outputs.items():
        classifier: Any = getattr(model.exits[depth - 1], "classifier", None)
        if classifier is not None:
            scale = 0.5 / output.logits.std(dim=0)  # (C,)
            classifier.weight.mul_(scale[:, None])
            classifier.bias.sub_(output.logits.mean(dim=0)).mul_(scale)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[MultiExitModel, Path]]:
    made: dict[tuple[str, str], tuple[MultiExitModel, Path]] = {}

    def get(family: str, kind: str) -> tuple[MultiExitModel, Path]:
        if (family, kind) not in made:
            with torch.random.fork_rng():
                model = build(make_backbone(family), LABELS, exit_kind=kind, exit_size=16, exit_heads=2).train(False)
            sure_and_unsure(model)
            folder = tmp_path_factory.mktemp("onnx")
            model.config.trained_exits = [1, 2, 3, 4] if (family, kind) == ("bert", "mha") else [2, 4]
            export(model, folder)
            made[family, kind] = model, folder
        return made[family, kind]

    return get


@pytest.fixture(scope="module")
def both(folder_of: Callable[[str, str], tuple[MultiExitModel, Path]]) -> Get:
    """A model and its exported twin, made once."""
    engines: dict[tuple[str, str], OnnxEngine] = {}

    def get(family: str, kind: str) -> Both:
        model, folder = folder_of(family, kind)
        if (family, kind) not in engines:
            engines[family, kind] = OnnxEngine(folder, threads=1)
        return model, engines[family, kind]

    return get


def pairs(model: MultiExitModel, lengths: list[int], seed: int, spare: int = 0) -> Batch:
    """Random pairs of texts, of these lengths together, with `spare` columns of padding more than they need."""
    batch = make_batch(model.encoder.backbone, lengths, pairs=model.encoder.family.has_token_types, seed=seed)
    if not spare:
        return batch
    pad = model.encoder.backbone.config.pad_token_id
    wider = [
        None if part is None else torch.nn.functional.pad(part, (0, spare), value=value)
        for part, value in ((batch.input_ids, pad), (batch.mask, 0), (batch.token_types, 0))
    ]
    assert wider[0] is not None
    assert wider[1] is not None
    return Batch(wider[0], wider[1], wider[2])


def tops(model: MultiExitModel, batch: Batch) -> Tensor:
    """The top probability of each text at each exit, (L, B)."""
    with torch.no_grad():
        return torch.stack([output.logits.softmax(dim=1).amax(dim=1) for output in model.outputs(batch).values()])


def same(engine: OnnxEngine, model: MultiExitModel, batch: Batch, policy: Policy) -> None:
    found, truth = engine.decide(batch, policy), decide(model, batch, policy)
    assert found.depth.tolist() == truth.depth.tolist()
    torch.testing.assert_close(found.logits, truth.logits, **CLOSE)


@every_model
@few
@given(lengths=lengths, seed=seeds, spare=st.integers(0, 4), threshold=thresholds)
def test_every_text_leaves_where_and_with_what_torch_lets_it(
    both: Get, family: str, kind: str, lengths: list[int], seed: int, spare: int, threshold: float
) -> None:
    model, engine = both(family, kind)
    batch = pairs(model, lengths, seed, spare)
    assume(bool(((tops(model, batch) - threshold).abs() > 1e-5).all()))  # rounding may decide there
    same(engine, model, batch, Never())
    same(engine, model, batch, Confidence(threshold))
    same(engine, model, batch, Fixed(0))
    same(engine, model, batch, Fixed(2))


@usual_models
@few
@given(lengths=lengths, seed=seeds)
def test_every_exported_exit_says_what_it_says_in_torch(
    both: Get, family: str, kind: str, lengths: list[int], seed: int
) -> None:
    model, engine = both(family, kind)
    batch = pairs(model, lengths, seed)
    with torch.no_grad():
        truth = model.outputs(batch, engine.exits)
    found = engine.outputs(batch)
    assert list(found) == list(engine.exits) == sorted(model.config.trained_exits)
    for depth, output in truth.items():
        torch.testing.assert_close(found[depth].logits, output.logits, **CLOSE)
        torch.testing.assert_close(found[depth].representation, output.representation, **CLOSE)
        assert torch.equal(found[depth].label_embeddings, output.label_embeddings)


@usual_models
@few
@given(lengths=lengths, seed=seeds, threshold=thresholds, chance=st.randoms(use_true_random=False))
def test_neither_order_nor_company_changes_an_answer(
    both: Get, family: str, kind: str, lengths: list[int], seed: int, threshold: float, chance: random.Random
) -> None:
    model, engine = both(family, kind)
    batch, policy = pairs(model, lengths, seed), Confidence(threshold)
    assume(bool(((tops(model, batch) - threshold).abs() > 1e-5).all()))
    together = engine.decide(batch, policy)
    order = chance.sample(range(len(batch)), len(batch))
    cut = chance.randint(0, len(batch))
    for rows in (order, *(part for part in (order[:cut], order[cut:]) if part), *([row] for row in order)):
        found = engine.decide(take(batch, rows), policy)
        assert found.depth.tolist() == together.depth[rows].tolist()
        torch.testing.assert_close(found.logits, together.logits[rows], **CLOSE)


@usual_models
def test_texts_leave_at_every_exported_exit(both: Get, family: str, kind: str) -> None:
    """Else the properties above would hold of nothing."""
    model, engine = both(family, kind)
    depths = engine.decide(pairs(model, [1, 3, 5, 8, 13, 21] * 10, 7), Confidence(0.45)).depth
    assert set(depths.tolist()) == set(engine.exits)


@few
@given(lengths=lengths, seed=seeds, patience=st.integers(1, 4))
def test_what_a_policy_remembers_of_a_text_moves_along_with_it(
    both: Get, lengths: list[int], seed: int, patience: int
) -> None:
    model, engine = both("bert", "mha")
    batch = pairs(model, lengths, seed)
    with torch.no_grad():
        best = torch.stack([output.logits.topk(2).values for output in model.outputs(batch).values()])  # (L, B, 2)
    assume(bool((best[..., 0] - best[..., 1] > 1e-5).all()))
    same(engine, model, batch, Patience(patience))


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if issubclass(kind, Scored)])
@few
@given(
    lengths=lengths,
    seed=seeds,
    spare=st.integers(0, 4),
    exits=st.sets(st.integers(1, LAYERS), min_size=1).map(sorted),
    ladder=st.lists(st.lists(st.floats(0, 1), min_size=LAYERS, max_size=LAYERS), min_size=2, max_size=3),
    chance=st.randoms(use_true_random=False),
)
def test_under_every_policy_a_text_leaves_where_it_would_alone_and_no_earlier_when_thresholds_rise(
    both: Get,
    name: str,
    lengths: list[int],
    seed: int,
    spare: int,
    exits: list[int],
    ladder: list[list[float]],
    chance: random.Random,
) -> None:
    model, engine = both("bert", "mha")
    batch, many = pairs(model, lengths, seed, spare), pairs(model, [1, 3, 5, 8, 13, 21] * 10, 7)
    rising = [list(step) for step in zip(*(sorted(column) for column in zip(*ladder, strict=True)), strict=True)]
    depths = []
    for shares in rising:
        thresholds = levels(model, many, name, exits, shares)
        logits, left = slowly(model, batch, name, thresholds)
        made = rule(model, name, thresholds)
        order = chance.sample(range(len(batch)), len(batch))
        cut = chance.randint(0, len(batch))
        for rows in (range(len(batch)), *(part for part in (order, order[:cut], order[cut:]) if part)):
            found = engine.decide(take(batch, list(rows)), made)
            assert found.depth.tolist() == [left[row] for row in rows]
            torch.testing.assert_close(found.logits, logits[list(rows)], **CLOSE)
        depths.append(left)
    assert all(low <= high for one in zip(*depths, strict=True) for low, high in pairwise(one))


def test_texts_without_token_types_are_texts_of_type_0(both: Get) -> None:
    model, engine = both("bert", "mha")
    batch = make_batch(model.encoder.backbone, [4, 9], pairs=False)
    same(engine, model, batch, Never())
    zeros = Batch(batch.input_ids, batch.mask, torch.zeros_like(batch.mask))
    assert torch.equal(engine.decide(zeros, Never()).logits, engine.decide(batch, Never()).logits)


def test_an_exit_that_was_not_exported_is_passed_by(both: Get) -> None:
    model, engine = both("roberta", "linear")
    assert engine.exits == (2, 4)
    assert engine.decide(pairs(model, [3, 7], 0), Confidence(0.0)).depth.tolist() == [2, 2]


def test_a_depth_that_was_not_exported_cannot_be_asked_for(both: Get) -> None:
    model, engine = both("roberta", "linear")
    with pytest.raises(ConfigError, match=r"among those that were exported \(2, 4\)\. Found 3\."):
        engine.decide(pairs(model, [3, 7], 0), Fixed(3))


class Watch(Never):
    """Everybody may leave at the first exit; keeps what it was shown."""

    def reads(self, depth: int) -> bool:
        return True

    def leave(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        self.seen = depth, output
        return super().leave(depth, output, state)


def test_the_engine_knows_its_labels_and_its_depth_and_leaves_the_batch_as_it_was(both: Get) -> None:
    model, engine = both("bert", "mha")
    assert (engine.depth, engine.exits, engine.labels, engine.precision) == (4, (1, 2, 3, 4), LABELS, "float32")
    batch, again = (pairs(model, [5, 2, 8], 3) for _ in range(2))
    policy = Watch()
    engine.decide(batch, policy)
    engine.decide(batch, Confidence(0.5))
    assert torch.equal(batch.input_ids, again.input_ids)
    assert torch.equal(batch.mask, again.mask)
    depth, output = policy.seen
    assert depth == LAYERS
    assert torch.equal(output.label_embeddings, model.exits[-1].label_parameter)


def test_two_threads_give_the_same_answers(folder_of: Callable[[str, str], tuple[MultiExitModel, Path]]) -> None:
    model, folder = folder_of("bert", "mha")
    engine = OnnxEngine(folder, threads=2)
    assert engine.threads == 2
    same(engine, model, pairs(model, [5, 2, 8], 3), Never())


def test_threads_are_by_default_the_cores_that_the_process_may_use(
    folder_of: Callable[[str, str], tuple[MultiExitModel, Path]],
) -> None:
    _, folder = folder_of("bert", "mha")
    assert 1 <= cores() == OnnxEngine(folder).threads
    with pytest.raises(ConfigError, match=r"`threads` should be at least 1\. Found 0\."):
        OnnxEngine(folder, threads=0)
