"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: a model with fewer attention heads.

A head that goes takes its rows of query, key and value and its columns of the projection behind them along: the model
is smaller and faster, and says what it would say with the head's output at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from offramp.encoder.layers import family_of
from offramp.errors import ModelError

if TYPE_CHECKING:
    from offramp.exits.model import MultiExitModel

HEADED = ("bert", "roberta", "xlm-roberta", "electra")
"""Families whose layers keep query, key and value in `attention.self` and project behind them in `attention.output`."""


def check_headed(backbone: Any) -> None:
    """Refuse a backbone whose attention is built in another way."""
    kind = backbone.config.model_type
    if kind not in HEADED:
        raise ModelError(
            f"Attention heads should be those of a known family ({', '.join(HEADED)}). Found `{kind}`: choose another "
            "backbone, or another `compress.method`."
        )


def head_counts(model: MultiExitModel) -> list[int]:
    """The heads of each layer."""
    return [_count(attention) for attention in _attentions(model.encoder.backbone)]


def keep_heads(model: MultiExitModel, kept: Sequence[Sequence[int]]) -> None:
    """Remove all heads but these, told for each layer by their numbers from 0."""
    for attention, heads in zip(_attentions(model.encoder.backbone), kept, strict=True):
        _keep(attention, heads)
    model.config.layer_heads = head_counts(model)


def narrow(backbone: Any, counts: Sequence[int]) -> None:
    """Make room for so many heads in each layer, whose weights are then read from a file; no counts: as it is."""
    if counts:
        for attention, count in zip(_attentions(backbone), counts, strict=True):
            _keep(attention, range(count))


def attention_scores(model: MultiExitModel, depth: int, hidden: Tensor) -> Tensor:
    """How the layer at `depth` scores each pair of tokens, before the softmax: (B, T, H) to (B, heads, T, T)."""
    inner = _attentions(model.encoder.backbone)[depth - 1].self
    shape = (*hidden.shape[:2], -1, inner.attention_head_size)
    query, key = (part(hidden).view(shape).transpose(1, 2) for part in (inner.query, inner.key))  # (B, heads, T, W)
    scores: Tensor = query @ key.transpose(2, 3) * inner.scaling
    return scores


@contextmanager
def masked_heads(model: MultiExitModel, masks: Sequence[Tensor]) -> Iterator[None]:
    """For a while, the heads' outputs are multiplied by these masks, (B, heads), one for each layer."""
    found = zip(_attentions(model.encoder.backbone), masks, strict=True)
    hooks = [a.output.dense.register_forward_pre_hook(partial(_multiply, mask=mask)) for a, mask in found]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _multiply(_: nn.Module, given: tuple[Tensor], mask: Tensor) -> tuple[Tensor]:
    heads = given[0].unflatten(2, (mask.shape[1], -1))  # (B, T, heads, W)
    return ((heads * mask[:, None, :, None]).flatten(2),)


def _attentions(backbone: Any) -> list[Any]:
    check_headed(backbone)
    return [layer.attention for layer in family_of(backbone.config).layers(backbone)]


def _count(attention: Any) -> int:
    return int(attention.self.query.out_features) // int(attention.self.attention_head_size)


def _keep(attention: Any, heads: Sequence[int]) -> None:
    inner, project = attention.self, attention.output.dense
    width = inner.attention_head_size
    rows = torch.tensor(
        [head * width + place for head in heads for place in range(width)], device=project.weight.device
    )
    for linear in (inner.query, inner.key, inner.value):
        linear.weight = nn.Parameter(linear.weight.detach()[rows])
        linear.bias = nn.Parameter(linear.bias.detach()[rows])
        linear.out_features = len(rows)
    project.weight = nn.Parameter(project.weight.detach()[:, rows].contiguous())
    project.in_features = len(rows)
    inner.num_attention_heads, inner.all_head_size = len(heads), len(rows)
