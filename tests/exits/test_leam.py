"""The LEAM exit: the label embeddings choose the tokens, a linear layer classifies them."""

from __future__ import annotations

import pytest
import torch
from tests.exits.drawn import HIDDEN, drawn, make_exit, make_states
from tests.reference import exits as reference

from offramp.exits.leam import LeamExit


@pytest.mark.parametrize("window", [1, 3, 5, 9])
def test_the_exit_is_the_slow_loop_of_the_paper(window: int) -> None:
    exit = drawn(LeamExit(HIDDEN, 4, window, 0.1)).double()
    states, mask = make_states()
    wanted = reference.leam(dict(exit.state_dict()), states.double(), mask)
    found = exit(states.double(), mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-9, rtol=0)


def test_it_attends_as_the_fusion_exit_does() -> None:
    leam, fusion = make_exit("leam"), make_exit("fusion")
    fusion.load_state_dict({k: v for k, v in leam.state_dict().items() if "classifier" not in k}, strict=False)
    states, mask = make_states()
    attended = leam(states, mask).representation
    projected = fusion.get_submodule("projection")(attended)
    torch.testing.assert_close(fusion(states, mask).representation, projected, atol=1e-6, rtol=0)


def test_the_representation_lies_among_the_texts_states() -> None:
    exit = make_exit("leam")
    states, mask = make_states()
    found = exit(states, mask).representation
    for text, length in enumerate((7, 1, 4)):
        own = states[text, :length]
        assert (found[text] >= own.amin(dim=0) - 1e-6).all()
        assert (found[text] <= own.amax(dim=0) + 1e-6).all()
