"""The LSAN exit: each label attends on its own and by its embedding, two gates fuse, one score per label."""

from __future__ import annotations

import pytest
import torch
from tests.exits.drawn import HIDDEN, drawn, make_exit, make_states
from tests.reference import exits as reference

from offramp.exits.lsan import LsanExit


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_exit_is_the_slow_loop_of_the_paper(size: int, classes: int) -> None:
    exit = drawn(LsanExit(HIDDEN, classes, size, 0.1)).double()
    states, mask = make_states()
    wanted = reference.lsan(dict(exit.state_dict()), states.double(), mask)
    found = exit(states.double(), mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-9, rtol=0)


def test_gates_that_both_round_to_zero_still_share_out_one() -> None:
    exit = drawn(LsanExit(HIDDEN, 3, 8, 0.0))
    states = make_states((1,))[0].abs()
    with torch.no_grad():
        for gate in (exit.self_gate, exit.label_gate):
            gate.weight.fill_(-1e3)
    # One token: both attentions give its state, and so does any fusion whose shares sum to 1.
    found = exit(states, torch.ones(1, 1)).representation
    torch.testing.assert_close(found, states[:, 0], atol=1e-6, rtol=0)


def test_labels_with_the_same_weights_get_the_same_logit() -> None:
    exit = drawn(LsanExit(HIDDEN, 3, 8, 0.0))
    with torch.no_grad():
        exit.query.weight[2] = exit.query.weight[0]
        exit.labels.weight[2] = exit.labels.weight[0]
    logits = exit(*make_states()).logits
    torch.testing.assert_close(logits[:, 2], logits[:, 0], atol=1e-6, rtol=0)
    assert (logits[:, 1] - logits[:, 0]).abs().max() > 1e-3


def test_the_label_attention_does_not_sharpen_with_the_length_of_the_text() -> None:
    exit = make_exit("lsan")
    states, mask = make_states((4,))
    twice, long = states.repeat(1, 2, 1), mask.repeat(1, 2)
    torch.testing.assert_close(exit(twice, long).logits, exit(states, mask).logits, atol=1e-5, rtol=0)
