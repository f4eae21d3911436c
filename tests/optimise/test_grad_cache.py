"""A contrast batch that goes through the cache in micro-batches leaves the gradients of the batch taken whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.exits.model import MultiExitModel
from offramp.objectives import OBJECTIVES, objective
from offramp.optimise import grad_cache
from offramp.optimise.alignment import Rule
from offramp.optimise.grad_cache import CACHED
from offramp.optimise.gradients import SCOPES, Measured, Scene
from offramp.optimise.row_gradients import RowGradients
from offramp.optimise.strategies import Phase, groups, plan
from offramp.types import Batch, ExitOutput, Loss

WEIGHT, TEMPERATURE = 0.3, 0.5
TEXTS, MICRO = 17, 5  # 5, 5, 5 and 2 texts
TWO_VIEWS = Views(("dropout", "dropout"))


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    return make_model(layers=3).double()  # without dropout


@pytest.fixture
def lively(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    """With dropout in the backbone and in the exits."""
    model = make_model(layers=3, exit_dropout=0.2).double()
    model.train()
    return model


@pytest.fixture
def tokens(toy_tokens: Callable[..., Tokens]) -> Tokens:
    return toy_tokens(TEXTS)


def micro_batches(tokens: Tokens, size: int = MICRO) -> list[Batch]:
    return [tokens.batch(range(TEXTS)[start : start + size]) for start in range(0, TEXTS, size)]


def scene(model: MultiExitModel, name: str = "acl", depths: tuple[int, ...] = (3,), threshold: float = 90.0) -> Scene:
    hyper = {"temperature": TEMPERATURE, "weight": WEIGHT, "heads": 2}
    views = TWO_VIEWS if OBJECTIVES[name].views > 1 else None
    phase = plan("single", model)[0]
    if depths != (3,):
        phase = Phase("several", depths, tuple(model.parameters()), groups(model, model.parameters()))
    return Scene(model, objective(name, **hyper), phase, Rule(threshold), views=views)


def taken(model: MultiExitModel) -> dict[str, Tensor | None]:
    """The gradients that were left behind, by parameter and dense; they are taken away."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return {name: grad.to_dense() if grad is not None and grad.is_sparse else grad for name, grad in found.items()}


def assert_same(found: dict[str, Tensor | None], wanted: dict[str, Tensor | None]) -> None:
    assert sum(gradient is not None for gradient in wanted.values()) > 3
    for name, gradient in wanted.items():
        if gradient is None:
            assert found[name] is None, name
        else:
            torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)


def assert_measured_alike(found: Measured, wanted: Measured) -> None:
    assert found.loss == pytest.approx(wanted.loss, rel=1e-9)
    assert found.parts == pytest.approx(wanted.parts, rel=1e-9)
    assert (found.angle is None) == (wanted.angle is None)
    if found.angle is not None and wanted.angle is not None:
        assert found.angle.kept == wanted.angle.kept
        for name in ("degrees", "main_norm", "auxiliary_norm"):
            assert getattr(found.angle, name) == pytest.approx(getattr(wanted.angle, name), rel=1e-9)
        assert found.angle.cosines == pytest.approx(wanted.angle.cosines, rel=1e-8, nan_ok=True)


def words(model: MultiExitModel) -> Any:
    return model.encoder.family.word_embeddings(model.encoder.backbone)


# Without dropout: the plain step on the whole batch.


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("depths", [(3,), (3, 1)], ids=str)
@pytest.mark.parametrize("name", ["ce", "scl", "acl", "infonce", "lacon"])
@pytest.mark.parametrize("scope", CACHED)
def test_the_cached_step_is_the_plain_step(
    model: MultiExitModel, tokens: Tokens, scope: str, name: str, depths: tuple[int, ...], sparse: bool
) -> None:
    here = scene(model, name, depths)
    wanted_measure = SCOPES[scope](here, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    rows = RowGradients(words(model)) if sparse else None
    found_measure = CACHED[scope](here, micro_batches(tokens))
    gradient = words(model).weight.grad
    assert gradient is not None
    assert gradient.is_sparse == sparse
    assert_same(taken(model), wanted)
    assert_measured_alike(found_measure, wanted_measure)
    assert (found_measure.angle is not None) == (scope != "none" and name not in ("ce", "lacon"))
    if rows is not None:
        rows.close()


@pytest.mark.parametrize(("threshold", "aggregator"), [(0.0, None), (180.0, None), (90.0, lambda gramian: (0.7, 0.4))])
@pytest.mark.parametrize("scope", ["exact", "exit"])
def test_it_drops_keeps_and_combines_as_the_plain_step_does(
    model: MultiExitModel, tokens: Tokens, scope: str, threshold: float, aggregator: Any
) -> None:
    here = replace(scene(model), rule=Rule(threshold, aggregator))
    wanted_measure = SCOPES[scope](here, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    assert_measured_alike(CACHED[scope](here, micro_batches(tokens)), wanted_measure)
    assert_same(taken(model), wanted)


@pytest.mark.parametrize("size", [1, 16, 17, 40])
@pytest.mark.parametrize("scope", CACHED)
def test_the_size_of_the_micro_batches_does_not_matter(
    model: MultiExitModel, tokens: Tokens, scope: str, size: int
) -> None:
    SCOPES[scope](scene(model), tokens.batch(range(TEXTS)))
    wanted = taken(model)
    CACHED[scope](scene(model), micro_batches(tokens, size))
    assert_same(taken(model), wanted)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("scope", CACHED)
def test_an_update_over_several_contrast_batches_takes_their_mean(
    model: MultiExitModel, tokens: Tokens, scope: str, sparse: bool
) -> None:
    here = replace(scene(model), share=0.5)
    halves = [range(9), range(9, TEXTS)]
    for half in halves:
        SCOPES[scope](here, tokens.batch(half))
    wanted = taken(model)
    rows = RowGradients(words(model)) if sparse else None
    for half in halves:
        CACHED[scope](here, [tokens.batch(half[:4]), tokens.batch(half[4:])])
    assert_same(taken(model), wanted)
    if rows is not None:
        rows.close()


def test_texts_that_share_no_micro_batch_are_contrasted(model: MultiExitModel, tokens: Tokens) -> None:
    """Alone in its micro-batch, a text has no positive: the contrast would be 0."""
    measured = CACHED["none"](scene(model, "scl"), micro_batches(tokens, 1))
    assert measured.parts["contrast"] > 1.0


# With dropout: a slow reference that keeps every graph.


def reference(here: Scene, batches: Sequence[Batch], scope: str) -> tuple[Loss, float | None]:
    """Micro-batches one after the other, all graphs kept, one loss, and the angle by hand; for the last exit alone."""
    views = here.views or Views(("dropout",))
    states, outputs, labels = [], [], []
    for batch in batches:
        looked = views.batch(batch)
        *_, (_, read) = here.model.walk(looked, 3, views.erase)
        states.append(read.output)
        outputs.append(here.model.read(3, read))
        labels.append(looked.labels)

    def joined(parts: list[Any]) -> Tensor:
        texts = [part.reshape(len(views.names), -1, *part.shape[1:]) for part in parts]  # (V, B, ...)
        return torch.cat(texts, dim=1).flatten(0, 1)

    whole = ExitOutput(
        joined([o.representation for o in outputs]),
        joined([o.logits for o in outputs]),
        here.model.exits[2].classifier.weight,
    )
    loss = here.objective(whole, joined(labels))
    assert loss.auxiliary is not None
    if scope == "none":
        loss.total.backward()
        return loss, None
    exit = list(here.model.exits[2].parameters())
    over = [*exit, *states] if scope == "exit" else [*here.model.encoder.parameters(), *exit]
    flat = []
    for term in (loss.main, loss.auxiliary):
        found = torch.autograd.grad(term, over, retain_graph=True, allow_unused=True)
        filled = [torch.zeros_like(t) if g is None else g for t, g in zip(over, found, strict=True)]
        flat.append(torch.cat([g.flatten() for g in filled]))
    cosine = float(flat[0] @ flat[1] / (flat[0].norm() * flat[1].norm()))
    angle = math.degrees(math.acos(cosine))
    (loss.total if angle <= here.rule.threshold else loss.main_weight * loss.main).backward()
    return loss, angle


RANDOM_VIEWS = Views(("shuffle", "token-cutoff"), 0.3)


@pytest.mark.parametrize("threshold", [0.0, 180.0])
@pytest.mark.parametrize(("name", "views"), [("acl", None), ("infonce", TWO_VIEWS), ("infonce", RANDOM_VIEWS)])
@pytest.mark.parametrize("scope", CACHED)
def test_with_dropout_it_is_the_reference_that_keeps_all_graphs(
    lively: MultiExitModel, tokens: Tokens, scope: str, name: str, views: Views | None, threshold: float
) -> None:
    here = replace(scene(lively, name, threshold=threshold), views=views)
    torch.manual_seed(5)
    loss, angle = reference(here, micro_batches(tokens), scope)
    wanted, drawn = taken(lively), torch.get_rng_state()
    torch.manual_seed(5)
    measured = CACHED[scope](here, micro_batches(tokens))
    assert_same(taken(lively), wanted)
    assert measured.loss == pytest.approx(float(loss.total.detach()), rel=1e-9)
    assert (measured.angle and measured.angle.degrees) == (angle if angle is None else pytest.approx(angle, abs=1e-6))
    # The random numbers go on as if each text had been seen once.
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("scope", CACHED)
def test_a_generator_that_is_not_put_back_gives_other_gradients(
    lively: MultiExitModel, tokens: Tokens, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for forgetful in (False, True):
        if forgetful:
            monkeypatch.setattr(grad_cache, "put_back", lambda states: None)
        torch.manual_seed(5)
        CACHED[scope](scene(lively), micro_batches(tokens))
        found.append(taken(lively))
    with pytest.raises(AssertionError):
        assert_same(found[1], found[0])


@pytest.mark.parametrize("scope", CACHED)
def test_dropout_is_the_same_in_both_walks(lively: MultiExitModel, tokens: Tokens, scope: str) -> None:
    outputs: list[Tensor] = []
    last = lively.encoder.family.layers(lively.encoder.backbone)[2]
    last.register_forward_hook(lambda module, given, output: outputs.append(output.detach()))
    batch = micro_batches(tokens)[0]
    CACHED[scope](scene(lively), [batch, batch, batch])
    first, second = outputs[:3], outputs[3:]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])  # dropout is on


@pytest.mark.parametrize("name", ["acl", "infonce"])
@pytest.mark.parametrize("scope", CACHED)
def test_one_micro_batch_is_the_plain_step_with_dropout_too(
    lively: MultiExitModel, tokens: Tokens, scope: str, name: str
) -> None:
    whole = tokens.batch(range(TEXTS))
    torch.manual_seed(5)
    wanted_measure = SCOPES[scope](scene(lively, name), whole)
    wanted, drawn = taken(lively), torch.get_rng_state()
    torch.manual_seed(5)
    assert_measured_alike(CACHED[scope](scene(lively, name), [whole]), wanted_measure)
    assert_same(taken(lively), wanted)
    assert torch.equal(torch.get_rng_state(), drawn)


# What it costs.


@pytest.mark.parametrize(("scope", "backward"), [("none", 1), ("exact", 2), ("exit", 1)])
def test_never_a_pass_too_many_and_never_more_texts_than_a_micro_batch(
    model: MultiExitModel, tokens: Tokens, scope: str, backward: int
) -> None:
    passes = Counter[str]()
    layer = model.encoder.family.layers(model.encoder.backbone)[0]

    def forth(module: Any, given: Any, output: Tensor) -> None:
        passes.update(["with graph" if output.requires_grad else "without"])
        assert len(output) <= MICRO

    layer.register_forward_hook(forth)
    layer.register_full_backward_hook(lambda *_: passes.update(["back"]))
    CACHED[scope](scene(model), micro_batches(tokens))
    assert passes == {"without": 4, "with graph": 4, "back": 4 * backward}


@pytest.mark.parametrize("scope", CACHED)
def test_a_frozen_backbone_is_walked_once(model: MultiExitModel, tokens: Tokens, scope: str) -> None:
    model.encoder.requires_grad_(False)
    learning = tuple(model.exits.parameters())
    here = replace(scene(model), phase=Phase("exits", (1, 3), learning, groups(model, learning)))
    wanted_measure = SCOPES[scope](here, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    walks = Counter[str]()
    model.encoder.family.layers(model.encoder.backbone)[0].register_forward_hook(lambda *_: walks.update(["walk"]))
    assert_measured_alike(CACHED[scope](here, micro_batches(tokens)), wanted_measure)
    assert_same(taken(model), wanted)
    assert walks["walk"] == 4


@pytest.mark.parametrize("scope", CACHED)
def test_layers_that_do_not_learn_get_no_gradient(model: MultiExitModel, tokens: Tokens, scope: str) -> None:
    """The states that the first exit reads have no gradient to send anywhere; those of the last have."""
    last = model.encoder.family.layers(model.encoder.backbone)[2]
    learning = (*last.parameters(), *model.exits[0].parameters(), *model.exits[2].parameters())
    model.requires_grad_(False)
    for parameter in learning:
        parameter.requires_grad_(True)
    here = replace(scene(model), phase=Phase("top", (1, 3), learning, groups(model, learning)))
    wanted_measure = SCOPES[scope](here, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    assert_measured_alike(CACHED[scope](here, micro_batches(tokens)), wanted_measure)
    assert_same(taken(model), wanted)
    assert {name for name, gradient in wanted.items() if gradient is None} >= {
        name for name, parameter in model.named_parameters() if not parameter.requires_grad
    }


# Mixed precision.


@pytest.mark.parametrize("scope", CACHED)
def test_in_bfloat16_it_is_the_plain_step_within_rounding(
    make_model: Callable[..., MultiExitModel], tokens: Tokens, scope: str
) -> None:
    model = make_model(layers=3)
    kinds = set()
    inner = objective("acl", temperature=TEMPERATURE, weight=WEIGHT)

    class Watched:
        views, taught = 1, False

        def __call__(
            self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
        ) -> Loss:
            kinds.add(output.logits.dtype)
            return inner(output, labels, teacher)

    here = replace(
        scene(model), objective=Watched(), autocast=lambda: torch.autocast("cpu", torch.bfloat16), rule=Rule(180.0)
    )
    SCOPES[scope](here, tokens.batch(range(TEXTS)))
    wanted = taken(model)
    CACHED[scope](here, micro_batches(tokens))
    found = taken(model)
    assert kinds == {torch.bfloat16}
    flat = [
        torch.cat([g.flatten() for g in gradients.values() if g is not None]).double() for gradients in (found, wanted)
    ]
    assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 0.03  # bfloat16 has 8 bits
