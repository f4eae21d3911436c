"""The policies that are fitted: they learn what there is to learn, and come back from disk as they were."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies import policy
from offramp.policies.learned import STRENGTH, Learned, features, fit_heads
from offramp.policies.prior import Prior, fit_prior
from offramp.policies.replay import Pooled, scores
from offramp.types import Batch, ExitOutput

LAYERS = 3


def answers(right: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
    """Logits (N, 3) of an exit that is right where it is said to be, and is equally sure either way."""
    given = torch.where(right, labels, (labels + 1) % 3)
    logits = torch.rand(len(labels), 3, generator=draw)
    return logits.scatter_add(1, given[:, None], torch.full((len(labels), 1), 2.0))


def told_by_the_representation(count: int, seed: int) -> tuple[Pooled, Tensor]:
    """Exits that are right where the first feature of their representation is large, and noise."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=draw)
    outputs = {}
    for depth in range(1, LAYERS + 1):
        vectors = torch.randn(count, 16, generator=draw) * torch.tensor([100.0, *[0.1] * 15]) + 7.0
        right = vectors[:, 0] + 30.0 * torch.randn(count, generator=draw) > 0
        outputs[depth] = ExitOutput(vectors, answers(right, labels, draw), torch.zeros(3, 16))
    mask = torch.ones(count, 2, dtype=torch.int64)
    return Pooled(Batch(mask * 5, mask), outputs), labels


def told_by_the_text(count: int, seed: int) -> tuple[Pooled, Tensor]:
    """Exits that are right of short texts and of texts with the token 77, mostly."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=draw)
    lengths = torch.randint(2, 20, (count,), generator=draw)
    mask = (torch.arange(20) < lengths[:, None]).long()
    ids = torch.randint(100, 9000, (count, 20), generator=draw) * mask
    known = torch.rand(count, generator=draw) < 0.5
    ids[known, 1] = 77
    outputs = {}
    for depth in range(1, LAYERS + 1):
        easy = 6.0 * known + (10.0 - lengths) / 3 + torch.randn(count, generator=draw)
        outputs[depth] = ExitOutput(torch.zeros(count, 2), answers(easy > 3, labels, draw), torch.zeros(3, 2))
    return Pooled(Batch(ids, mask), outputs), labels


def right(pooled: Pooled, labels: Tensor, depth: int) -> Tensor:
    return pooled.outputs[depth].logits.argmax(dim=1) == labels


def test_a_head_tells_where_its_exit_is_right_on_texts_it_has_not_seen() -> None:
    rule = Learned(0.5, fit_heads(*told_by_the_representation(400, seed=0), range(1, LAYERS + 1)))
    pooled, labels = told_by_the_representation(400, seed=1)
    found = scores(rule, pooled, [1, 2, 3])
    for depth, score in zip((1, 2, 3), found, strict=True):
        assert roc_auc_score(right(pooled, labels, depth), score) > 0.8


def test_a_prior_tells_where_an_exit_will_be_right_on_texts_it_has_not_seen() -> None:
    rule = Prior(0.5, fit_prior(*told_by_the_text(400, seed=0), range(1, LAYERS + 1)))
    pooled, labels = told_by_the_text(400, seed=1)
    found = scores(rule, pooled, [1, 2, 3])
    for depth, score in zip((1, 2, 3), found, strict=True):
        assert roc_auc_score(right(pooled, labels, depth), score) > 0.8


def test_a_head_has_the_probabilities_of_scikit_learn_on_standardised_features() -> None:
    pooled, labels = told_by_the_representation(200, seed=0)
    given = features(pooled.outputs[1]).double().numpy()
    scaler = StandardScaler().fit(given)
    model = LogisticRegression(C=STRENGTH, max_iter=10_000)
    model.fit(scaler.transform(given), right(pooled, labels, 1).numpy())
    truth = torch.from_numpy(model.predict_proba(scaler.transform(given))[:, 1]).float()
    found = scores(Learned(0.5, fit_heads(pooled, labels, [1])), pooled, [1])[0]
    torch.testing.assert_close(found, truth, rtol=0.0, atol=1e-4)


def test_fitting_twice_gives_the_same_bits() -> None:
    by_vector, by_text = told_by_the_representation(100, seed=3), told_by_the_text(100, seed=3)
    one, other = (Learned(0.5, fit_heads(*by_vector, [1, 3])).state() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    first, second = (fit_prior(*by_text, [1, 3]) for _ in range(2))
    assert all(torch.equal(first[name].nan_to_num(), second[name].nan_to_num()) for name in first)


@pytest.mark.parametrize(("always", "odds"), [(True, 101.0), (False, 1 / 101)])
def test_an_exit_that_is_always_right_or_always_wrong_gets_a_constant(always: bool, odds: float) -> None:
    pooled, _ = told_by_the_text(100, seed=0)
    labels = pooled.outputs[1].logits.argmax(dim=1) if always else pooled.outputs[1].logits.argmin(dim=1)
    learned, prior = Learned(0.5, fit_heads(pooled, labels, [1])), Prior(0.5, fit_prior(pooled, labels, [1]))
    for rule in (learned, prior):
        found = scores(rule, pooled, [1])[0]
        torch.testing.assert_close(found, torch.full((100,), odds / (1 + odds)), rtol=1e-5, atol=0.0)


def test_texts_of_one_length_and_constant_features_are_no_exception() -> None:
    pooled, labels = told_by_the_representation(60, seed=0)  # every text is twice the same token
    found = scores(Prior(0.5, fit_prior(pooled, labels, [1])), pooled, [1])
    assert found.isfinite().all()
    share = right(pooled, labels, 1).float().mean().item()
    assert found.mean().item() == pytest.approx(share, abs=1e-3)  # nothing to tell the texts apart by
    flat, labels = told_by_the_text(60, seed=0)  # representations of zeros
    assert scores(Learned(0.5, fit_heads(flat, labels, [1])), flat, [1]).isfinite().all()


def test_padding_tells_nothing() -> None:
    pooled, labels = told_by_the_text(100, seed=0)
    batch = pooled.batch
    noise = torch.randint(0, 9000, batch.input_ids.shape, generator=torch.Generator().manual_seed(0))
    noisy = Pooled(Batch(batch.input_ids.where(batch.mask == 1, noise), batch.mask), pooled.outputs)
    clean = fit_prior(pooled, labels, [1, 2])
    assert all(
        torch.equal(clean[key].nan_to_num(), found.nan_to_num())
        for key, found in fit_prior(noisy, labels, [1, 2]).items()
    )
    wide = Batch(*(torch.nn.functional.pad(part, (0, 7)) for part in (noisy.batch.input_ids, batch.mask)))
    rule = Prior(0.5, clean)
    torch.testing.assert_close(rule.start(wide), rule.start(batch), rtol=0.0, atol=1e-6, equal_nan=True)


def test_texts_without_tokens_have_a_score() -> None:
    rule = Prior(0.5, {"weight": torch.ones(4, 1), "length": torch.ones(1), "bias": torch.zeros(1)})
    empty = torch.zeros(2, 3, dtype=torch.int64)
    assert rule.start(Batch(empty, empty)).tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize("name", ["learned", "prior"])
def test_what_was_fitted_comes_back_from_a_file_of_tensors(tmp_path: Path, name: str) -> None:
    pooled, labels = told_by_the_text(80, seed=0)
    fitted = (
        Learned(0.5, fit_heads(pooled, labels, [1, 3]))
        if name == "learned"
        else Prior(0.5, fit_prior(pooled, labels, [1, 3]))
    )
    save_file(fitted.state(), tmp_path / "policy.safetensors")
    back = policy(name, {1: 0.4, 3: 0.6}, tensors=load_file(tmp_path / "policy.safetensors"))
    assert isinstance(back, Learned | Prior)
    assert torch.equal(scores(back, pooled, [1, 3]), scores(fitted, pooled, [1, 3]))
    assert [depth for depth in range(1, 5) if back.reads(depth)] == [1, 3]
    assert [depth for depth in range(1, 5) if fitted.reads(depth)] == [1, 3]


@pytest.mark.parametrize("name", ["learned", "prior"])
def test_a_threshold_of_an_exit_that_was_not_fitted_is_named(name: str) -> None:
    pooled, labels = told_by_the_text(80, seed=0)
    fitted = (
        Learned(0.5, fit_heads(pooled, labels, [1, 3]))
        if name == "learned"
        else Prior(0.5, fit_prior(pooled, labels, [1, 3]))
    )
    with pytest.raises(
        ConfigError, match=r"should have thresholds for exits it was fitted to, \[1, 3\]\. Found depth 2\.$"
    ):
        policy(name, {1: 0.5, 2: 0.5}, tensors=fitted.state())


def test_tensors_of_another_policy_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"should be named DEPTH\.weight and DEPTH\.bias\. Found bias, weight\."):
        policy("learned", 0.5, tensors={"weight": torch.zeros(1), "bias": torch.zeros(1)})
    with pytest.raises(ConfigError, match=r"should be weight, length and bias\. Found 1\.bias, 1\.weight\."):
        policy("prior", 0.5, tensors={"1.weight": torch.zeros(1), "1.bias": torch.zeros(())})


def test_a_head_of_another_width_is_refused(pooled: Callable[..., Pooled]) -> None:
    drawn = pooled(2, 3, size=5)
    rule = Learned(0.5, {1: (torch.zeros(7), torch.tensor(0.0))})
    with pytest.raises(
        ConfigError, match=r"a head of 8 weights for depth 1\. Found one of 7\. Fit it to this model\.$"
    ):
        rule.leave(1, drawn.outputs[1], torch.empty(2, 0))
    with pytest.raises(ConfigError, match=r"a head of 8 weights for depth 2\. Found none\."):
        scores(rule, drawn, [2])


def test_the_slow_logistic_is_the_closed_form(reference: ModuleType) -> None:
    assert [reference.logistic(x) for x in (-800.0, 0.0, 800.0)] == [0.0, 0.5, 1.0]
    assert reference.logistic(2.0) == pytest.approx(math.exp(2) / (1 + math.exp(2)))
