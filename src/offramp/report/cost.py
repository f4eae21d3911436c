"""DECISIONS -> NUMBERS, PICTURES: what an answer costs, in floating-point operations and in parameters.

In closed form from what a model is made of and the tokens of a text. Matrix products and convolutions count, two
operations for each multiplication with a weight or a state; activations, normalisations and sums, together well below
a hundredth, do not. T tokens, H hidden, A the width of all heads of a layer, I the inner width:

    layer = 2 T (4 H A + 2 H I) + 4 T T A
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from offramp.encoder.layers import family_of
from offramp.errors import ConfigError
from offramp.exits.model import MultiExitConfig, MultiExitModel
from offramp.exits.projection import MLP, NONE, OWN, Projection


@dataclass(frozen=True, slots=True)
class Cost:
    """What one text costs that leaves at a depth: the embeddings, the layers up to there, and that exit alone."""

    depth: int
    flops: int  # of one text
    parameters: int  # of a model that ends there


def costs(config: MultiExitConfig, tokens: int) -> list[Cost]:
    """The cost of leaving at each depth for a text of so many tokens, special tokens included."""
    inner = config.backbone_config()
    exit_flops = {kind: EXIT_FLOPS[kind](config, inner, tokens) for kind in {config.exit_kind, config.last_kind}}
    flops = embedding_flops(inner, tokens)
    parameters, of_layers, of_exits = _parameters(config)
    heads = config.layer_heads or [inner.num_attention_heads] * len(of_layers)
    found = []
    for depth, (own, exit) in enumerate(zip(of_layers, of_exits, strict=True), 1):
        flops += layer_flops(inner, heads[depth - 1], tokens)
        parameters += own
        kind = config.last_kind if depth == len(of_layers) else config.exit_kind
        found.append(Cost(depth, flops + exit_flops[kind], parameters + exit))
    return found


def embedding_flops(inner: Any, tokens: int) -> int:
    """Looking up costs nothing; where embeddings are narrower than the layers, they are widened."""
    width = getattr(inner, "embedding_size", inner.hidden_size)
    return 0 if width == inner.hidden_size else 2 * tokens * width * inner.hidden_size


def layer_flops(inner: Any, heads: int, tokens: int) -> int:
    """One layer with so many heads, for one text."""
    if inner.model_type == "deberta-v2":
        raise ConfigError("The cost should be of a backbone with absolute or rotary positions. Found `deberta-v2`.")
    hidden = inner.hidden_size
    all_heads = hidden // inner.num_attention_heads * heads
    inside = inner.hidden_dim if inner.model_type == "distilbert" else inner.intermediate_size
    products = 3 if inner.model_type == "modernbert" else 2  # its inner layer has a gate
    weights = 4 * hidden * all_heads + products * hidden * inside
    return int(2 * tokens * weights + 4 * tokens * tokens * all_heads)


def _linear(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    hidden: int = inner.hidden_size
    own = 1 if family_of(inner).pool_activation else 0
    return 2 * (_projection(config, own) * hidden * hidden + hidden * len(config.labels))


def _mha(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    size, hidden = config.exit_size, int(inner.hidden_size)
    keys = tokens * (hidden * size + 2 * size * size + 2 * size)
    return 2 * (keys + 2 * size * size + size * len(config.labels))


def _residual(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    size, hidden, classes = config.exit_size, int(inner.hidden_size), len(config.labels)
    return _mha(config, inner, tokens) + 2 * (size * hidden + hidden * classes - size * classes)


def _match(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    return _cosine(config, inner, _projection(config, Projection.layers))


def _cosine(config: MultiExitConfig, inner: Any, layers: int) -> int:
    hidden: int = inner.hidden_size
    return 2 * (layers * hidden * hidden + hidden * len(config.labels))


def _projection(config: MultiExitConfig, own: int) -> int:
    """Layers between a text's vector and the label embeddings, of an exit that has so many of its own."""
    return {OWN: own, NONE: 0, MLP: Projection.layers}[config.exit_projection]


def _label_attention(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    classes, hidden = len(config.labels), int(inner.hidden_size)
    return 2 * tokens * (hidden * classes + classes * classes * config.exit_window + hidden)


def _fusion(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    return _label_attention(config, inner, tokens) + _cosine(config, inner, Projection.layers)


def _leam(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    return _label_attention(config, inner, tokens) + 2 * int(inner.hidden_size) * len(config.labels)


def _lsan(config: MultiExitConfig, inner: Any, tokens: int) -> int:
    hidden, size, classes = int(inner.hidden_size), config.exit_size, len(config.labels)
    by_token = tokens * (hidden * size + size * classes + 3 * hidden * classes)
    return 2 * (by_token + classes * hidden * size)


EXIT_FLOPS: dict[str, Callable[[MultiExitConfig, Any, int], int]] = {
    "linear": _linear,
    "mha": _mha,
    "residual": _residual,
    "match": _match,
    "fusion": _fusion,
    "leam": _leam,
    "lsan": _lsan,
}
"""Names of the exits to the operations of one of them for one text."""


def _parameters(config: MultiExitConfig) -> tuple[int, list[int], list[int]]:
    """The parameters outside the layers, of each layer, and of each exit; no weight is given a value."""
    with torch.device("meta"):
        model = MultiExitModel(config)

    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    of_layers = [count(layer) for layer in model.encoder.family.layers(model.encoder.backbone)]
    return count(model.encoder) - sum(of_layers), of_layers, [count(exit) for exit in model.exits]
