"""Words that leave one by one: whoever shares a batch, a word gets the logits of its exit in the pass through all."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.ruled import LAYERS, fitted, rule
from torch import Tensor

from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES, check_words
from offramp.policies.fixed import Fixed
from offramp.policies.never import Never
from offramp.policies.replay import Pooled, scores
from offramp.policies.scored import Scored
from offramp.runtime.torch_engine import TorchEngine, decide
from offramp.types import Batch, Decision, Policy

CLOSE = {"rtol": 0.0, "atol": 1e-5}  # DESIGN, invariant 2
NAMES = [name for name, kind in POLICIES.items() if kind.takes_words and issubclass(kind, Scored)]
each = pytest.mark.parametrize("name", NAMES)
models = pytest.mark.parametrize(("family", "kind"), [("bert", "linear"), ("bert", "mha"), ("roberta", "residual")])
lengths = st.lists(st.integers(1, 24), min_size=1, max_size=6)
seeds = st.integers(0, 10**6)
few = settings(max_examples=12, deadline=None)

Make = Callable[[str, str], MultiExitModel]
Tokens = Callable[..., Batch]
Decide = Callable[[Batch, Policy], Decision]


def marked(batch: Batch, seed: int, share: float = 0.6) -> Batch:
    """A batch with marks at some of its tokens; some texts may have none."""
    draw = torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(seed))
    return replace(batch, words=(draw < share).long() * batch.mask)


def words_of(batch: Batch) -> Tensor:
    assert batch.words is not None
    return batch.words


def alone(batch: Batch, row: int, place: int) -> Batch:
    """One word of one text, without padding."""
    n = int(batch.mask[row].sum())
    types = None if batch.token_types is None else batch.token_types[row : row + 1, :n]
    word = torch.zeros(1, n, dtype=torch.int64)
    word[0, place] = 1
    return Batch(batch.input_ids[row : row + 1, :n], batch.mask[row : row + 1, :n], types, words=word)


@torch.no_grad()
def limit(model: MultiExitModel, batch: Batch, name: str, share: float) -> float:
    """A threshold that this share of the words does not reach at the first exit that tells them apart."""
    known = Pooled(batch, model.outputs(batch))
    low, high = POLICIES[name].range  # type: ignore[attr-defined]
    judge = rule(model, name, max(low, 0.0))
    rows = [row[row.isfinite()].unique() for row in scores(judge, known, range(1, LAYERS))]
    ranked = next((row for row in rows if len(row) > 1), None)
    if ranked is None:
        return max(low, 0.0)
    at = min(int(share * (len(ranked) - 1)), len(ranked) - 2)
    return float(min(high, max(low, (ranked[at] + ranked[at + 1]).item() / 2)))


@torch.no_grad()
def check(model: MultiExitModel, batch: Batch, run: Decide, name: str, threshold: float, tolerance: float) -> Decision:
    """The invariants of one batch under one policy."""
    policy = rule(model, name, threshold)
    found = run(batch, policy)
    every = torch.stack([output.logits for output in model.outputs(batch).values()])  # (L, W, C)
    close = {"rtol": 0.0, "atol": tolerance}
    wanted = every[found.depth - 1, torch.arange(batch.answers)].float()
    torch.testing.assert_close(found.logits, wanted, **close)
    known = Pooled(batch, model.outputs(batch))
    told = scores(policy, known, range(1, LAYERS))  # (E, W)
    near = ((told - threshold).abs() < 1e-4).any(dim=0)  # rounding may decide there
    first = [next((d for d in range(1, LAYERS) if told[d - 1, w] >= threshold), LAYERS) for w in range(batch.answers)]
    for word, depth in enumerate(first):
        assert near[word] or found.depth[word] == depth
    return found


@models
@torch.no_grad()
def test_never_gives_the_last_exits_logits(model_of: Make, tokens_for: Tokens, family: str, kind: str) -> None:
    model = model_of(family, kind)
    batch = marked(tokens_for(model, lengths=[3, 17, 9, 1, 24], seed=3), 0)
    found = decide(model, batch, Never())
    torch.testing.assert_close(found.logits, model.outputs(batch, [LAYERS])[LAYERS].logits, **CLOSE)
    assert found.depth.tolist() == [LAYERS] * batch.answers


@each
@models
@few
@given(sizes=lengths, seed=seeds, share=st.floats(0.05, 0.95), spare=st.integers(0, 4))
def test_a_word_receives_the_logits_of_its_exit_and_leaves_where_its_score_says(
    model_of: Make,
    tokens_for: Tokens,
    family: str,
    kind: str,
    name: str,
    sizes: list[int],
    seed: int,
    share: float,
    spare: int,
) -> None:
    model = deepcopy(model_of(family, kind)).double()  # of the two, only what is told is rounded
    batch = marked(tokens_for(model, lengths=sizes, seed=seed, spare=spare), seed)
    check(model, batch, lambda b, p: decide(model, b, p), name, limit(model, batch, name, share), 1e-5)


@each
@pytest.mark.parametrize(
    ("precision", "close"),
    # A word's logits are larger than 1 here, and the width of a batch moves them by some of their last bits.
    [(torch.float32, {"rtol": 1e-5, "atol": 1e-5}), (torch.float64, {"rtol": 0.0, "atol": 1e-6})],
    ids=["single", "double"],
)
@torch.no_grad()
def test_a_word_alone_leaves_where_it_leaves_among_others(
    model_of: Make, tokens_for: Tokens, name: str, precision: torch.dtype, close: dict[str, float]
) -> None:
    model = deepcopy(model_of("bert", "mha")).to(precision)
    batch = marked(tokens_for(model, lengths=[3, 17, 9, 1], seed=5), 5)
    policy = rule(model, name, limit(model, batch, name, 0.6))
    found = decide(model, batch, policy)
    assert len(set(found.depth.tolist())) > 1, "all leave together: nothing was put to the test"
    for number, (row, place) in enumerate(words_of(batch).nonzero().tolist()):
        single = decide(model, alone(batch, row, place), policy)
        assert single.depth.item() == found.depth[number].item()
        torch.testing.assert_close(single.logits[0], found.logits[number], **close)


@each
@torch.no_grad()
def test_a_depth_never_falls_when_the_threshold_rises(model_of: Make, tokens_for: Tokens, name: str) -> None:
    model = model_of("bert", "linear")
    batch = marked(tokens_for(model, lengths=[3, 17, 9, 1, 24, 6], seed=7), 7)
    limits = [1.0, 1.3, 2.0, 3.0]  # of a count
    if name not in ("patience", "vote"):
        limits = sorted(limit(model, batch, name, share) for share in (0.1, 0.4, 0.7, 0.95))
    depths = [decide(model, batch, rule(model, name, each)).depth for each in limits]
    assert all((low <= high).all() for low, high in pairwise(depths))
    assert depths[0].sum() < depths[-1].sum(), "the thresholds make no difference: nothing was put to the test"


def test_a_text_is_compacted_out_when_its_last_word_has_left_and_not_before(
    model_of: Make, tokens_for: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("bert", "linear")
    batch = marked(tokens_for(model, lengths=[12, 4, 20, 9], seed=11), 11)
    policy = rule(model, "confidence", limit(model, batch, "confidence", 0.5))
    found = decide(model, batch, policy)
    rows = words_of(batch).nonzero()[:, 0]
    last = [int(found.depth[rows == row].max()) for row in range(4)]  # of each text
    seen: list[tuple[int, int]] = []
    step = model.encoder.step
    monkeypatch.setattr(
        model.encoder, "step", lambda depth, states: seen.append(tuple(states.mask.shape)) or step(depth, states)
    )
    decide(model, batch, policy)
    sizes = [12, 4, 20, 9]
    for depth, shape in enumerate(seen, 1):
        here = [sizes[row] for row in range(4) if last[row] >= depth]
        assert shape == (len(here), max(here))
    assert len(seen) == max(last)


def test_texts_without_words_ask_for_nothing(model_of: Make, tokens_for: Tokens) -> None:
    model = model_of("bert", "mha")
    batch = tokens_for(model, lengths=[3, 5], seed=2)
    none = replace(batch, words=torch.zeros_like(batch.mask))
    for policy in (Never(), Fixed(2), rule(model, "patience", 2.0)):
        assert decide(model, none, policy).logits.shape == (0, 3)


def test_the_prior_knows_no_words(model_of: Make) -> None:
    from offramp.errors import ConfigError

    with pytest.raises(ConfigError, match=r"one for words: never, fixed, confidence.*Found `prior`"):
        check_words("prior")
    assert fitted(model_of("bert", "mha"), "prior")


def test_a_model_of_tags_is_another_model_to_a_certificate(make_model: Callable[..., MultiExitModel]) -> None:
    one, tags = make_model(), make_model(tags=True)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), tags.state_dict().values(), strict=True))
    assert TorchEngine(one).fingerprint() != TorchEngine(tags).fingerprint()
    assert "tags" not in one.config.to_dict()
    assert tags.config.to_dict()["tags"] is True


# --- exported


@pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.long), "mha"])
def test_an_exported_model_lets_words_leave_as_torch_does(
    model_of: Make, tokens_for: Tokens, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("onnxruntime")
    from offramp.runtime.onnx_engine import OnnxEngine
    from offramp.runtime.onnx_export import export

    model = model_of("bert", kind)
    model.config.tags, model.config.trained_exits = True, [1, 2, 3, 4]
    try:
        export(model, tmp_path / "whole")
        engine = OnnxEngine(tmp_path / "whole", threads=1)
        for seed in range(3):
            batch = marked(tokens_for(model, lengths=[3, 17, 9, 1, 24], seed=seed), seed)
            for name in NAMES:
                for share in (0.3, 0.8):
                    threshold = limit(model, batch, name, share)
                    found = check(model, batch, engine.decide, name, threshold, 1e-4)
                    ours = decide(model, batch, rule(model, name, threshold))
                    assert (found.depth == ours.depth).float().mean() > 0.95
            for depth, output in engine.outputs(batch).items():
                torch.testing.assert_close(
                    output.logits, model.outputs(batch, [depth])[depth].logits, rtol=0.0, atol=1e-4
                )
    finally:
        model.config.tags, model.config.trained_exits = False, []


@pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.long), "mha"])
def test_an_int8_model_tags_a_word_alike_whoever_shares_its_batch(
    model_of: Make, tokens_for: Tokens, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("onnxruntime")
    from offramp.runtime.onnx_engine import OnnxEngine
    from offramp.runtime.onnx_export import export
    from offramp.runtime.quantise import quantise

    model = model_of("bert", kind)
    model.config.tags = True
    try:
        export(model, tmp_path / "whole")
        quantise(tmp_path / "whole", tmp_path / "small")
    finally:
        model.config.tags = False
    engine = OnnxEngine(tmp_path / "small", threads=1)
    batch = marked(tokens_for(model, lengths=[3, 17, 9], seed=1), 1)
    together = engine.decide(batch, Never())
    for number, (row, place) in enumerate(words_of(batch).nonzero().tolist()):
        torch.testing.assert_close(
            engine.decide(alone(batch, row, place), Never()).logits[0], together.logits[number], **CLOSE
        )
