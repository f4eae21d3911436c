"""Small random models of several families, batches of any shape, and a witness of what each layer sees."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from offramp.exits.fusion import FusionExit
from offramp.exits.lsan import LsanExit
from offramp.exits.match import MatchExit
from offramp.exits.model import MultiExitModel, build
from offramp.types import Batch

with warnings.catch_warnings():
    # The module calls torch.jit.script when it is imported, which torch calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from transformers import DebertaV2Model

LAYERS = 4
MODELS = [(family, kind) for family in ("bert", "roberta", "modernbert", "deberta-v2") for kind in ("linear", "mha")]
MODELS += [("bert", kind) for kind in ("residual", "match", "fusion", "leam", "lsan")]

Make = Callable[[str, str], MultiExitModel]
Tokens = Callable[..., Batch]
Witness = Callable[[MultiExitModel], Any]


def _backbone(family: str) -> PreTrainedModel:
    shared: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 48,
        "initializer_range": 0.2,
        "pad_token_id": 1 if family == "roberta" else 0,
    }
    if family == "bert":
        return BertModel(BertConfig(**shared))
    if family == "roberta":
        return RobertaModel(RobertaConfig(**shared))
    if family == "modernbert":
        # A window narrower than the texts, and both kinds of attention.
        return ModernBertModel(ModernBertConfig(**shared, local_attention=6, global_attn_every_n_layers=2))
    return DebertaV2Model(
        DebertaV2Config(
            **shared,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            position_buckets=4,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            conv_kernel_size=3,
            type_vocab_size=2,
        )
    )


@torch.no_grad()
def _spread(model: MultiExitModel, batch: Batch) -> None:
    """Make each exit's logits differ between texts: where it can be, centred, with a standard deviation of 1.5."""
    for depth, output in model.outputs(batch).items():
        exit = model.exits[depth - 1]
        if isinstance(exit, MatchExit | FusionExit):
            exit.projection[-1].bias.sub_(output.representation.mean(dim=0))
        elif isinstance(exit, LsanExit):
            # Labels are told apart by what they attend to only.
            # By as much as they need: a large classifier would make rounding larger than the tolerance.
            exit.labels.weight.mul_(3.0)
            exit.query.weight.mul_(60.0)
            exit.score.weight.mul_(5.0)
        else:
            scale = 1.5 / output.logits.std(dim=0)  # (C,)
            exit.classifier.weight.mul_(scale[:, None])
            exit.classifier.bias.sub_(output.logits.mean(dim=0)).mul_(scale)


def _tokens(model: MultiExitModel, lengths: Sequence[int], seed: int, spare: int = 0) -> Batch:
    """Random tokens for a model: texts of these lengths, and `spare` columns of padding more than the longest needs."""
    draw = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths) + spare)
    mask = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).long()  # (B, T)
    ids = torch.randint(5, 64, shape, generator=draw)
    types = torch.randint(0, 2, shape, generator=draw) * mask if model.encoder.family.has_token_types else None
    return Batch(ids.where(mask == 1, model.encoder.backbone.config.pad_token_id), mask, types)


@pytest.fixture(scope="session")
def model_of() -> Make:
    """A model of a family and a kind of exit, made once; its exits' sureness spreads from a guess to a certainty."""
    made: dict[tuple[str, str], MultiExitModel] = {}

    def make(family: str, kind: str) -> MultiExitModel:
        if (family, kind) not in made:
            torch.manual_seed(0)
            model = build(_backbone(family), ("a", "b", "c"), exit_kind=kind, exit_size=16, exit_heads=2).train(False)
            _spread(model, _tokens(model, [1, 3, 5, 8, 13, 21] * 10, seed=0))
            made[family, kind] = model
        return made[family, kind]

    with torch.random.fork_rng():
        for family, kind in MODELS:
            make(family, kind)
    return make


@pytest.fixture(scope="session")
def tokens_for() -> Tokens:
    return _tokens


@contextmanager
def _witness(model: MultiExitModel) -> Iterator[dict[int, tuple[int, int]]]:
    """Rows and width of what goes into the layer at each depth; a layer that does not run is absent."""
    seen: dict[int, tuple[int, int]] = {}
    layers: nn.ModuleList = model.encoder.family.layers(model.encoder.backbone)

    def look(depth: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, given: seen.__setitem__(depth, (given[0].shape[0], given[0].shape[1]))

    hooks = [layer.register_forward_pre_hook(look(depth)) for depth, layer in enumerate(layers, 1)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@pytest.fixture(scope="session")
def witness() -> Witness:
    return _witness


@contextmanager
def _trained(model: MultiExitModel, exits: Sequence[int]) -> Iterator[None]:
    before = model.config.trained_exits
    model.config.trained_exits = sorted(exits)
    try:
        yield
    finally:
        model.config.trained_exits = before


@pytest.fixture(scope="session")
def trained() -> Callable[..., Any]:
    """Says, for a while, which exits of a model were trained."""
    return _trained


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
