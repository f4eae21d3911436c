"""The cost of an answer in closed form equals what torch counts on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.encoder.backbones import KINDS, make_backbone, make_batch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from offramp.errors import ConfigError
from offramp.exits.heads import keep_heads
from offramp.exits.kinds import EXITS
from offramp.exits.model import MultiExitConfig, MultiExitModel, build
from offramp.exits.projection import PROJECTIONS
from offramp.exits.thinned import thinned
from offramp.report.cost import EXIT_FLOPS, Cost, costs

COUNTED = [kind for kind in KINDS if not kind.startswith("deberta")]
TOKENS = 11


def make(kind: str, **exits: Any) -> MultiExitModel:
    # What torch counts are products: fused attention hides them.
    return build(make_backbone(kind, "eager"), ("a", "b", "c"), **{"exit_size": 8, "exit_heads": 2, **exits})


def counted(model: MultiExitModel, depth: int) -> int:
    model.train(False)
    batch = make_batch(model.encoder.backbone, (TOKENS,))
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.outputs(batch, [depth])
    return int(counter.get_total_flops())


def held(model: MultiExitModel, depth: int) -> int:
    """The parameters of the model without the layers above and without the other exits."""
    outside = {f"encoder.backbone.{where}.{layer}." for where in WHERE for layer in range(depth, model.depth)}
    outside |= {f"exits.{place}." for place in range(model.depth) if place != depth - 1}
    return sum(p.numel() for name, p in model.named_parameters() if not name.startswith(tuple(outside)))


WHERE = ("encoder.layer", "transformer.layer", "layers")


@pytest.mark.parametrize("kind", COUNTED)
def test_the_cost_of_every_depth_is_what_torch_counts(kind: str) -> None:
    model = make(kind)
    found = costs(model.config, TOKENS)
    assert found == [Cost(d, counted(model, d), held(model, d)) for d in range(1, model.depth + 1)]


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("exit_kind", EXITS)
def test_the_cost_of_every_exit_is_what_torch_counts(exit_kind: str, projection: str) -> None:
    model = make("bert", exit_kind=exit_kind, exit_window=3, exit_projection=projection)
    assert costs(model.config, TOKENS)[1] == Cost(2, counted(model, 2), held(model, 2))
    assert EXIT_FLOPS.keys() == EXITS.keys()


def test_the_cost_falls_with_the_heads_and_the_layers_that_go() -> None:
    model = thinned(make("roberta"), (1, 3, 4), top=4)
    keep_heads(model, [[0], [0, 1, 2, 3], [1, 2]])
    found = costs(model.config, TOKENS)
    assert found == [Cost(d, counted(model, d), held(model, d)) for d in (1, 2, 3)]
    assert found[-1].flops < costs(make("roberta").config, TOKENS)[-1].flops


def test_bert_base_has_the_parameters_that_are_known_of_it() -> None:
    config = MultiExitConfig(backbone=BertConfig().to_dict(), labels=("no", "yes"), exit_kind="linear")
    # Hugging Face counts 109,482,240 with the pooler, which our exit has, and the classifier has 2 x 768 + 2.
    assert costs(config, 128)[-1].parameters == 109_482_240 + 1538
    half, whole = costs(config, 128)[5].flops, costs(config, 128)[-1].flops
    assert whole / half == pytest.approx(2.0, rel=1e-3)


def test_a_backbone_with_relative_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"absolute or rotary positions\. Found `deberta-v2`"):
        costs(build(make_backbone("deberta-v3"), ("a", "b")).config, TOKENS)
