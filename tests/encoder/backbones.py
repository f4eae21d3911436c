"""A small random backbone of every family, and token batches for it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    AutoModel,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    XLMRobertaConfig,
)

from offramp.types import Batch

with warnings.catch_warnings():
    # This module calls torch.jit.script when it is imported, which torch calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("transformers.models.deberta_v2.modeling_deberta_v2")

POSITIONS = 32
WORDS = 60
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.2,  # large enough that tokens attend to different places
}
RELATIVE: dict[str, Any] = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
V3: dict[str, Any] = {
    **RELATIVE,
    "position_buckets": 4,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}

KINDS: dict[str, Callable[[], PreTrainedConfig]] = {
    "bert": lambda: BertConfig(**SIZES),
    "bert-12": lambda: BertConfig(**{**SIZES, "num_hidden_layers": 12, "initializer_range": 0.1}),
    "roberta": lambda: RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=1),
    "xlm-roberta": lambda: XLMRobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=1),
    "electra": lambda: ElectraConfig(**SIZES, embedding_size=32),
    "electra-narrow": lambda: ElectraConfig(**SIZES, embedding_size=16),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=WORDS,
        dim=32,
        n_layers=4,
        n_heads=4,
        hidden_dim=48,
        max_position_embeddings=POSITIONS,
        initializer_range=0.2,
    ),
    "deberta-absolute": lambda: DebertaV2Config(**SIZES, type_vocab_size=2),
    "deberta-relative": lambda: DebertaV2Config(**SIZES, **RELATIVE, max_relative_positions=16),
    "deberta-conv": lambda: DebertaV2Config(
        **SIZES, **RELATIVE, type_vocab_size=2, conv_kernel_size=3, conv_act="gelu", norm_rel_ebd="layer_norm"
    ),
    "deberta-v3": lambda: DebertaV2Config(**SIZES, **V3, type_vocab_size=2),
    "deberta-v3-typeless": lambda: DebertaV2Config(**SIZES, **V3, type_vocab_size=0),
    "modernbert": lambda: ModernBertConfig(
        **SIZES,
        pad_token_id=0,
        bos_token_id=2,
        cls_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
        local_attention=6,  # three tokens to each side
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    ),
}
"""Names to configurations of about ten thousand weights."""

TYPED = ("bert", "electra", "electra-narrow", "deberta-absolute", "deberta-conv", "deberta-v3")
"""The kinds that tell the two texts of a pair apart by token types."""

FLEXIBLE = tuple(kind for kind in KINDS if not kind.startswith("deberta"))
"""The kinds that take more than one attention implementation."""


def make_backbone(kind: str, attention: str = "sdpa", seed: int = 0) -> PreTrainedModel:
    """A random backbone, dropout off; no bias is 0, no norm is 1, no padding vector is 0."""
    torch.manual_seed(seed)
    config = KINDS[kind]()
    how = {"attn_implementation": attention} if kind in FLEXIBLE else {}
    backbone: PreTrainedModel = AutoModel.from_config(config, **how)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return backbone.train(False)


def make_batch(backbone: PreTrainedModel, lengths: Sequence[int], pairs: bool = False, seed: int = 0) -> Batch:
    """Random texts of these lengths; of a pair, the second text begins in the middle."""
    draw = torch.Generator().manual_seed(seed)
    width = max(lengths)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()  # (B, T)
    ids = torch.randint(5, WORDS, mask.shape, generator=draw)
    ids[mask == 0] = backbone.config.pad_token_id
    types = (torch.arange(width) >= torch.tensor(lengths)[:, None] // 2).long() * mask
    return Batch(ids, mask, types if pairs else None)


def take(batch: Batch, rows: Sequence[int]) -> Batch:
    """These texts alone, padded to the longest of them, as a tokenizer would have given them."""
    wanted = torch.tensor(rows)
    width = int(batch.mask[wanted].sum(dim=1).max())
    types = None if batch.token_types is None else batch.token_types[wanted, :width]
    return Batch(batch.input_ids[wanted, :width], batch.mask[wanted, :width], types)


def truth(backbone: PreTrainedModel, batch: Batch) -> Any:
    """Hugging Face's own forward pass, every depth kept."""
    types = {} if batch.token_types is None else {"token_type_ids": batch.token_types}
    return backbone(input_ids=batch.input_ids, attention_mask=batch.mask, output_hidden_states=True, **types)
