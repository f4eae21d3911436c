"""Any objective with a share of soft targets: its main term is shared, and the rest of it stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES, objective
from offramp.objectives.softened import Softened
from offramp.types import ExitOutput, Loss

LABELS = [0, 1, 2, 0, 1, 0, 0]
HYPER = {"temperature": 0.4, "weight": 0.3, "denominator": "others", "reduction": "sum"}
INNER = [name for name, kind in OBJECTIVES.items() if kind.views == 1]
CONTRASTS = ["scl", "acl", "acl-cl"]


@pytest.fixture
def batch(make_batch: Callable[..., Any]) -> tuple[ExitOutput, torch.Tensor, ExitOutput]:
    """A batch with a teacher, whoever the objective inside is."""
    made: tuple[ExitOutput, torch.Tensor, ExitOutput] = make_batch("distill", LABELS)
    return made


def lists(output: ExitOutput) -> tuple[Any, Any, Any]:
    return (output.representation.tolist(), output.logits.tolist(), output.label_embeddings.tolist())


def inner(name: str, **hyper: Any) -> Any:
    return objective(name, heads=2, **{**HYPER, **hyper})


@pytest.mark.parametrize("temperature", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", INNER)
def test_the_value_is_that_of_the_slow_loop(
    batch: Any, reference: ModuleType, name: str, share: float, temperature: float
) -> None:
    output, labels, teacher = batch
    hyper = {key: value for key, value in HYPER.items() if key != "weight"}
    terms = reference.parts(name, lists(output), LABELS, lists(teacher), heads=2, **hyper)
    soft = reference.soft_targets(output.logits.tolist(), teacher.logits.tolist(), temperature)
    loss = Softened(inner(name), share, temperature)(output, labels, teacher)
    wanted = reference.softened(terms, HYPER["weight"], share, soft)
    assert float(loss.total.detach()) == pytest.approx(wanted, rel=1e-12)
    assert {part: float(value) for part, value in loss.parts.items()} == pytest.approx(
        {**terms, "soft": soft}, rel=1e-12
    )
    assert not any(value.requires_grad for value in loss.parts.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", INNER)
def test_no_share_is_the_objective_itself_to_the_bit(
    make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str, dtype: torch.dtype
) -> None:
    output, labels, teacher = make_batch("distill", LABELS, dtype=dtype)
    found: Loss = Softened(inner(name), share=0.0)(output, labels, teacher)
    wanted: Loss = inner(name)(output, labels, teacher)
    assert torch.equal(found.total, wanted.total)
    gradients = [torch.autograd.grad(loss.total, leaves(output), allow_unused=True) for loss in (found, wanted)]
    for mine, theirs in zip(*gradients, strict=True):
        zero = torch.zeros((), dtype=dtype)
        assert torch.equal(*(zero if g is None or not g.any() else g for g in (mine, theirs)))


@pytest.mark.parametrize("name", CONTRASTS)
def test_the_contrast_and_both_weights_stay(batch: Any, leaves: Callable[..., Any], name: str) -> None:
    output, labels, teacher = batch
    found, wanted = Softened(inner(name), share=0.4)(*batch), inner(name)(*batch)
    assert found.auxiliary is not None
    assert torch.equal(found.auxiliary, wanted.auxiliary)
    assert (found.main_weight, found.auxiliary_weight) == (wanted.main_weight, wanted.auxiliary_weight) == (0.7, 0.3)
    mine, theirs = (torch.autograd.grad(loss.auxiliary, output.representation)[0] for loss in (found, wanted))
    assert torch.equal(mine, theirs)
    # Alignment holds the contrast against the hard and the soft answers together.
    (gradient,) = torch.autograd.grad(found.main, output.logits)
    wide, taught = (torch.softmax(logits / 2.0, dim=1) for logits in (output.logits, teacher.logits))
    hard = torch.softmax(output.logits, dim=1) - torch.nn.functional.one_hot(labels, 3)
    closed = (0.6 * hard + 0.4 * 2.0 * (wide - taught)) / len(LABELS)
    torch.testing.assert_close(gradient, closed, rtol=1e-12, atol=1e-12)


def test_around_cross_entropy_it_is_distillation(batch: Any) -> None:
    found = Softened(objective("ce"), share=0.3, temperature=2.0)(*batch)
    wanted = objective("distill", weight=0.3, temperature=2.0)(*batch)
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-12, atol=0.0)
    assert found.auxiliary is None


@pytest.mark.parametrize("labels", [LABELS, [1, 1, 1], [2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("name", INNER)
def test_gradients_are_the_finite_differences(
    make_batch: Callable[..., Any], leaves: Callable[..., Any], name: str, labels: list[int]
) -> None:
    output, truth, teacher = make_batch("distill", labels, size=4)
    loss = Softened(inner(name), share=0.4)
    assert torch.autograd.gradcheck(
        lambda *tensors: loss(ExitOutput(*tensors), truth, teacher).total, leaves(output), atol=1e-7, fast_mode=True
    )


@pytest.mark.parametrize("name", INNER)
def test_no_gradient_reaches_the_teacher(batch: Any, leaves: Callable[..., Any], name: str) -> None:
    output, _, teacher = batch
    Softened(inner(name), share=0.4)(*batch).total.backward()
    assert all(leaf.grad is None for leaf in leaves(teacher))
    assert output.logits.grad.abs().max() > 1e-3


def test_it_says_that_it_is_taught() -> None:
    assert Softened(objective("acl"), share=0.4).taught


@pytest.mark.parametrize("name", INNER)
def test_a_missing_teacher_is_an_error(batch: Any, name: str) -> None:
    output, labels, _ = batch
    whose = name if OBJECTIVES[name].taught else "softened"
    with pytest.raises(ConfigError, match=rf"`{whose}` should be given a teacher's output\. Found none\."):
        Softened(inner(name), share=0.4)(output, labels)


@pytest.mark.parametrize("shape", [(7, 2), (7, 1), (1, 3)])  # the last two would broadcast
def test_a_teacher_of_another_shape_is_an_error(batch: Any, shape: tuple[int, int]) -> None:
    output, labels, teacher = batch
    misfit = replace(teacher, logits=torch.ones(shape))
    with pytest.raises(ConfigError, match=r"`softened` .* `logits` has the student's shape"):
        Softened(inner("acl"), share=0.4)(output, labels, misfit)


def test_half_precision_is_widened(make_batch: Callable[..., Any]) -> None:
    output, labels, teacher = make_batch("distill", LABELS, dtype=torch.bfloat16)
    found = Softened(inner("acl"), share=0.4)(output, labels, teacher)
    wide = [
        ExitOutput(o.representation.float(), o.logits.float(), o.label_embeddings.float()) for o in (output, teacher)
    ]
    wanted = Softened(inner("acl"), share=0.4)(wide[0], labels, wide[1])
    assert found.total.dtype == torch.float32
    assert float(found.total.detach()) == pytest.approx(float(wanted.total.detach()), rel=1e-6)
