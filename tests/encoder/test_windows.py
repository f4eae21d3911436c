"""Long texts in windows: each window is what it would be as a text of its own."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from offramp.data.tokens import in_windows
from offramp.encoder.layers import Encoder
from offramp.encoder.windows import first_tokens
from offramp.types import Batch

backbones: Any = importlib.import_module("tests.encoder.backbones")
WINDOW = 8
KINDS = ["bert", "roberta", "electra-narrow", "distilbert", "deberta-conv", "modernbert"]


def states(encoder: Encoder, batch: Batch) -> torch.Tensor:
    found = encoder.embed(batch)
    for depth in range(1, encoder.depth + 1):
        found = encoder.step(depth, found)
    return found.output


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in backbones.KINDS])
def test_a_window_is_a_text_of_its_own(kind: str) -> None:
    encoder = Encoder(backbones.make_backbone(kind)).eval()
    batch = backbones.make_batch(encoder.backbone, (21, 5, 8))
    encoder.window = WINDOW
    with torch.no_grad():
        found = states(encoder, batch)
        assert found.shape[:2] == batch.mask.shape
        encoder.window = 0
        for row, length in enumerate((21, 5, 8)):
            for start in range(0, length, WINDOW):
                here = slice(start, min(start + WINDOW, length))
                types = None if batch.token_types is None else batch.token_types[row : row + 1, here]
                alone = Batch(batch.input_ids[row : row + 1, here], batch.mask[row : row + 1, here], types)
                torch.testing.assert_close(found[row, here], states(encoder, alone)[0], atol=1e-5, rtol=0)


def test_gradients_reach_every_window() -> None:
    encoder = Encoder(backbones.make_backbone("bert"))
    encoder.window = WINDOW
    batch = backbones.make_batch(encoder.backbone, (21, 5))
    first_tokens(states(encoder, batch), batch.mask, WINDOW).square().sum().backward()
    words = encoder.backbone.get_input_embeddings().weight.grad
    used = batch.input_ids[batch.mask.bool()].unique()
    assert (words[used].abs().sum(dim=1) > 0).all()


def test_the_first_tokens_of_the_windows_that_a_text_has_are_averaged() -> None:
    row = torch.arange(20.0)[None, :, None].expand(2, 20, 3)
    mask = (torch.arange(20) < torch.tensor([[20], [7]])).long()
    assert first_tokens(row, mask, 8).tolist() == [[8.0] * 3, [0.0] * 3]  # of 0, 8, 16; of 0
    assert first_tokens(row, mask, 0).tolist() == [[0.0] * 3, [0.0] * 3]


@pytest.mark.parametrize(("length", "windows", "overlap"), [(30, 8, 0), (30, 8, 2), (30, 2, 1), (7, 8, 3), (12, 2, 0)])
def test_every_token_finds_a_window_and_every_window_but_the_last_is_full(
    length: int, windows: int, overlap: int
) -> None:
    special = np.array([1, *[0] * length, 1])
    places, whole = in_windows(special, WINDOW, windows, overlap)
    rows = [places[start : start + WINDOW].tolist() for start in range(0, len(places), WINDOW)]
    assert len(rows) <= windows
    assert all(row[0] == 0 and row[-1] == length + 1 for row in rows)
    inside = [row[1:-1] for row in rows]
    for one, other in itertools.pairwise(inside):
        assert other[0] == one[-1] + 1 - overlap
    assert whole == (inside[-1][-1] == length)
    assert whole == ({place for row in inside for place in row} == set(range(1, length + 1)))
