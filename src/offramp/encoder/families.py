"""TOKENS -> LAYER STATES: what differs between families of backbones.

A family knows how to embed tokens, how to turn a 2-D mask into what its layers want, and how to call
one layer. Each is held equal to Hugging Face's own forward pass by `tests/encoder/test_parity.py`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask

from offramp.types import Batch


class Family:
    """BERT, RoBERTa, XLM-R and ELECTRA: absolute positions, one 4-D mask for all layers."""

    pool_activation: str | None = "tanh"  # what stands between first token and classifier in the family's own head
    has_token_types = True

    def layers(self, backbone: Any) -> nn.ModuleList:
        """The backbone's layers, first to last."""
        found: nn.ModuleList = backbone.encoder.layer
        return found

    def word_embeddings(self, backbone: Any) -> nn.Embedding:
        """The table that turns token ids into vectors."""
        found: nn.Embedding = backbone.get_input_embeddings()
        return found

    def usable_positions(self, config: Any) -> int | None:
        """How many tokens a text may have; None: any number."""
        return int(config.max_position_embeddings)

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        """Token ids to the states below the first layer, (B, T, H)."""
        states: Tensor = backbone.embeddings(input_ids=batch.input_ids, token_type_ids=batch.token_types)
        return states

    def attention(self, backbone: Any, hidden: Tensor, mask: Tensor) -> Any:
        """What the layers take as attention mask, made from the 2-D one."""
        return create_bidirectional_mask(config=backbone.config, inputs_embeds=hidden, attention_mask=mask)

    def layer(self, backbone: Any, index: int, hidden: Tensor, mask: Tensor, attention: Any) -> Tensor:
        """One layer: (B, T, H) to (B, T, H)."""
        states: Tensor = self.layers(backbone)[index](hidden, attention)
        return states

    def output(self, backbone: Any, hidden: Tensor) -> Tensor:
        """What exits read of the states; the same tensor unless the family normalises last."""
        return hidden


class Roberta(Family):
    """RoBERTa and XLM-R: positions start after the padding id, so the table holds fewer usable ones."""

    has_token_types = False

    def usable_positions(self, config: Any) -> int | None:
        return int(config.max_position_embeddings - config.pad_token_id - 1)

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        states: Tensor = backbone.embeddings(input_ids=batch.input_ids)
        return states


class Electra(Family):
    """ELECTRA: the embeddings may be narrower than the layers."""

    pool_activation = "gelu"

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        states = super().embed(backbone, batch)
        return backbone.embeddings_project(states) if hasattr(backbone, "embeddings_project") else states


class DistilBert(Family):
    """DistilBERT: no token types; the layers are called `transformer`."""

    pool_activation = "relu"
    has_token_types = False

    def layers(self, backbone: Any) -> nn.ModuleList:
        found: nn.ModuleList = backbone.transformer.layer
        return found

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        states: Tensor = backbone.embeddings(batch.input_ids)
        return states


class DebertaV2(Family):
    """DeBERTa-v2 and v3: relative positions, an optional convolution beside the first layer."""

    pool_activation = "gelu"

    def usable_positions(self, config: Any) -> int | None:
        return int(config.max_position_embeddings) if config.position_biased_input else None

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        states: Tensor = backbone.embeddings(
            input_ids=batch.input_ids, token_type_ids=batch.token_types, mask=batch.mask
        )
        return states

    def attention(self, backbone: Any, hidden: Tensor, mask: Tensor) -> Any:
        encoder = backbone.encoder
        return encoder.get_attention_mask(mask), encoder.get_rel_pos(hidden), encoder.get_rel_embedding()

    def layer(self, backbone: Any, index: int, hidden: Tensor, mask: Tensor, attention: Any) -> Tensor:
        square, positions, embeddings = attention
        states: Tensor = backbone.encoder.layer[index](
            hidden, square, relative_pos=positions, rel_embeddings=embeddings
        )[0]
        if index == 0 and backbone.encoder.conv is not None:
            states = backbone.encoder.conv(hidden, states, mask)
        return states


class ModernBert(Family):
    """ModernBERT: rotary positions, global and sliding attention, one normalisation after the last layer."""

    pool_activation = None
    has_token_types = False

    def layers(self, backbone: Any) -> nn.ModuleList:
        found: nn.ModuleList = backbone.layers
        return found

    def embed(self, backbone: Any, batch: Batch) -> Tensor:
        states: Tensor = backbone.embeddings(input_ids=batch.input_ids)
        return states

    def attention(self, backbone: Any, hidden: Tensor, mask: Tensor) -> Any:
        how = {"config": backbone.config, "inputs_embeds": hidden, "attention_mask": mask}
        masks = {
            "full_attention": create_bidirectional_mask(**how),
            "sliding_attention": create_bidirectional_sliding_window_mask(**how),
        }
        places = mask.new_ones(1, mask.shape[1]).cumsum(dim=1) - 1  # (1, T)
        turns = {kind: backbone.rotary_emb(hidden, places, kind) for kind in set(backbone.config.layer_types)}
        return masks, turns

    def layer(self, backbone: Any, index: int, hidden: Tensor, mask: Tensor, attention: Any) -> Tensor:
        masks, turns = attention
        layer = backbone.layers[index]
        kind = layer.attention_type
        states: Tensor = layer(hidden, attention_mask=masks[kind], position_embeddings=turns[kind])
        return states

    def output(self, backbone: Any, hidden: Tensor) -> Tensor:
        normalised: Tensor = backbone.final_norm(hidden)
        return normalised


FAMILIES: dict[str, Family] = {
    "bert": Family(),
    "roberta": Roberta(),
    "xlm-roberta": Roberta(),
    "electra": Electra(),
    "distilbert": DistilBert(),
    "deberta-v2": DebertaV2(),
    "modernbert": ModernBert(),
}
"""Hugging Face's `model_type` to the family."""
