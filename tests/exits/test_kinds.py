"""What holds for the exits of every kind: only a text's own tokens count, and nothing breaks down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.exits.drawn import HIDDEN, LENGTHS, make_exit, make_states, new_exit

from offramp.exits.kinds import EXITS

FIRST_ONLY = ("linear", "match")
"""The kinds that read the first token and no other."""

each_kind = pytest.mark.parametrize("kind", EXITS)


@each_kind
@pytest.mark.parametrize("classes", [2, 5])
def test_the_output_has_one_vector_per_text_and_per_label_and_a_logit_for_both(kind: str, classes: int) -> None:
    exit = make_exit(kind, classes)
    found = exit(*make_states())
    assert found.logits.shape == (3, classes)
    assert found.label_embeddings.shape == (classes, found.representation.shape[1])
    assert found.representation.shape == (3, 8 if kind == "mha" else HIDDEN)
    assert found.label_embeddings is exit.label_parameter
    assert exit.label_parameter in set(exit.parameters())


@each_kind
@pytest.mark.parametrize("training", [False, True])
def test_what_stands_in_the_padding_never_changes_the_output(kind: str, training: bool) -> None:
    exit = make_exit(kind).train(training)
    states, mask = make_states()
    wanted = exit(states, mask)
    for filler in (0.0, 1e3, -1e3):
        found = exit(states.masked_fill(mask[:, :, None] == 0, filler), mask)
        torch.testing.assert_close(found.logits, wanted.logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(found.representation, wanted.representation, atol=1e-5, rtol=0)


@each_kind
def test_a_text_gets_the_same_output_alone_and_among_longer_ones(kind: str) -> None:
    exit = make_exit(kind)
    states, mask = make_states()
    together = exit(states, mask)
    for text, length in enumerate(LENGTHS):
        alone = exit(states[text : text + 1, :length], mask[text : text + 1, :length])
        torch.testing.assert_close(together.logits[text], alone.logits[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(together.representation[text], alone.representation[0], atol=1e-5, rtol=0)


@each_kind
def test_no_gradient_reaches_the_padding(kind: str) -> None:
    states, mask = make_states()
    states.requires_grad_()
    make_exit(kind)(states, mask).logits.square().sum().backward()
    assert states.grad is not None
    assert not states.grad[mask == 0].any()
    assert (states.grad[:, 0].abs().amax(dim=1) > 0).all()


@each_kind
def test_a_kind_reads_every_token_or_only_the_first(kind: str) -> None:
    exit = make_exit(kind)
    states, mask = make_states((7,))
    wanted = exit(states, mask).representation
    for place in range(7):
        other = states.clone()
        other[:, place] += torch.randn(HIDDEN, generator=torch.Generator().manual_seed(place))
        moved = (exit(other, mask).representation - wanted).abs().max()
        assert moved > 1e-3 if place == 0 or kind not in FIRST_ONLY else moved == 0, place


@pytest.mark.parametrize("kind", FIRST_ONLY)
def test_an_exit_of_one_vector_may_read_the_mean_of_all(kind: str) -> None:
    """It says of a text what it says of one whose only token is that mean, centred and of length sqrt(H)."""
    exit, by_first = make_exit(kind, exit_reads="mean"), make_exit(kind)
    states, mask = make_states()
    found = exit(states, mask)
    for text, length in enumerate(LENGTHS):
        mean = states[text, :length].mean(dim=0)
        centred = mean - mean.mean()
        alone = (centred / centred.square().mean().add(1e-5).sqrt())[None, None]
        wanted = by_first(alone, torch.ones(1, 1, dtype=torch.int64))
        torch.testing.assert_close(found.representation[text], wanted.representation[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.logits[text], wanted.logits[0], atol=1e-5, rtol=0)


@each_kind
@pytest.mark.parametrize("classes", [2, 20])
@pytest.mark.parametrize("seed", range(5))
def test_every_weight_of_a_new_exit_learns(kind: str, classes: int, seed: int) -> None:
    torch.manual_seed(seed)
    exit = new_exit(kind, classes)
    # Many tokens, because a bias of the label attention counts only where another label wins elsewhere in the text.
    exit(*make_states((30,) * 8)).logits.square().sum().backward()
    for name, parameter in exit.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@each_kind
@pytest.mark.parametrize("zero", ["states", "weights", "both"])
def test_zeros_give_finite_logits_and_gradients(kind: str, zero: str) -> None:
    exit = make_exit(kind)
    states, mask = make_states()
    with torch.no_grad():
        if zero != "weights":
            states.zero_()
        if zero != "states":
            for parameter in exit.parameters():
                parameter.zero_()
    states.requires_grad_()
    found = exit(states, mask)
    assert found.logits.isfinite().all()
    (found.logits.square().sum() + found.logits.sum()).backward()
    gradients = {name: parameter.grad for name, parameter in exit.named_parameters()} | {"states": states.grad}
    for name, gradient in gradients.items():
        assert gradient is None or gradient.abs().max() < 1e9, name  # far from where a norm of it overflows


@each_kind
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_tiny_and_huge_states_give_finite_logits_and_gradients(kind: str, scale: float) -> None:
    exit = make_exit(kind)
    states, mask = make_states()
    states = (states * scale).requires_grad_()
    found = exit(states, mask)
    assert found.logits.isfinite().all()
    found.logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (states, *exit.parameters()))


@each_kind
def test_the_output_under_bfloat16_autocast_is_finite_and_near(kind: str) -> None:
    exit = make_exit(kind)
    states, mask = make_states()
    wanted = exit(states, mask).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = exit(states.bfloat16(), mask).logits
        plain = exit(states, mask).logits
    assert found.isfinite().all()
    size = wanted.abs().max().item()
    torch.testing.assert_close(found.float(), wanted, atol=0.05 * size, rtol=0)  # eight bits, a few layers
    torch.testing.assert_close(plain.float(), wanted, atol=0.05 * size, rtol=0)
    found.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in exit.parameters())


@each_kind
def test_dropout_acts_in_training_only(kind: str) -> None:
    exit = make_exit(kind, exit_dropout=0.5)
    states, mask = make_states()
    assert torch.equal(exit(states, mask).logits, exit(states, mask).logits)
    exit.train()
    torch.manual_seed(0)
    assert not torch.equal(exit(states, mask).logits, exit(states, mask).logits)


SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"exit_reads": "mean", "exit_projection": "none"},
    "mha": {"exit_size": 16, "exit_heads": 4},
    "residual": {"exit_size": 16, "exit_heads": 4},
    "match": {"exit_temperature": 0.5, "exit_reads": "mean", "exit_projection": "none"},
    "fusion": {"exit_temperature": 0.5, "exit_window": 5},
    "leam": {"exit_window": 5},
    "lsan": {"exit_size": 16},
}
"""The settings each kind listens to."""


@each_kind
def test_an_exit_listens_to_its_own_settings_and_to_no_other(kind: str) -> None:
    states, mask = make_states()
    wanted = make_exit(kind)(states, mask).logits
    others = {name: value for fields in SETTINGS.values() for name, value in fields.items()}
    for name, value in others.items():
        found = make_exit(kind, **{name: value})(states, mask).logits
        assert torch.equal(found, wanted) == (name not in SETTINGS[kind]), name
