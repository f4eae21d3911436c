"""MODEL -> FAST MODEL: one part of a model as an ONNX graph, from the walk that torch takes.

Attention is traced as one operator of onnxruntime's own, `com.microsoft.MultiHeadAttention`, which takes the 2-D mask:
traced as torch computes it, it is some thirty operators that onnxruntime does not find together again. Layer
normalisation and GELU are fused by onnxruntime when it loads the graph.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from offramp.errors import MissingExtra
from offramp.exits.base import Exit
from offramp.exits.model import MultiExitModel
from offramp.types import Batch, States

ATTENTION = "offramp-onnx"
"""The name under which transformers finds the traced attention."""

OUTPUTS = ("hidden", "representation", "logits")


class Segment(nn.Module):
    """The layers `first` to `last` with the exit after them, and the embeddings where `first` is 1."""

    def __init__(self, model: MultiExitModel, first: int, last: int) -> None:
        super().__init__()
        self.model, self.first, self.last = model, first, last

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids or hidden states, the mask, and token types where there are any, to `OUTPUTS`."""
        encoder, start, mask = self.model.encoder, given[0], given[1]
        types = given[2] if len(given) > 2 else None
        states = encoder.embed(Batch(start, mask, types)) if self.first == 1 else States(start, start, mask)
        for depth in range(self.first, self.last + 1):
            states = encoder.step(depth, states)
        if self.model.config.tags:
            exit = cast(Exit, self.model.exits[self.last - 1])
            output = exit.every_token(states.output, states.mask)  # whoever runs it takes the words from that
        else:
            output = self.model.read(self.last, states)
        return states.hidden, output.representation, output.logits


def trace(model: MultiExitModel, first: int, last: int, names: list[str]) -> Any:
    """The segment as an ONNX model whose inputs have these names; any number of texts of any length go through it."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", "onnx") from error
    shape = (3, 5)  # neither 0 nor 1, which torch takes for constants
    mask = torch.ones(shape, dtype=torch.int64, device=model.device)
    mask[1, 3:] = 0
    ids = torch.ones_like(mask)
    start = ids if first == 1 else torch.zeros(*shape, model.encoder.hidden_size, device=model.device)
    given = (start, mask, *([torch.zeros_like(ids)] if "types" in names else []))
    free = torch.export.Dim.DYNAMIC
    with _quiet(), _traced_attention(model), torch.no_grad():
        program = torch.onnx.export(
            Segment(model, first, last).eval(),
            given,
            input_names=names,
            output_names=list(OUTPUTS),
            dynamic_shapes=(tuple({0: free, 1: free} for _ in given),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # so without a file name
    traced = program.model_proto
    _drop_idle_reshapes(traced.graph)
    return traced


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """A layer's attention: (B, heads, T, width) three times to (B, T, heads * width)."""
    q, k, v = (x.transpose(1, 2).flatten(2) for x in (query, key, value))  # (B, T, heads * width)
    return _operator(q, k, v, mask, int(query.shape[1]), scaling), None


def _exit_attention(module: nn.MultiheadAttention) -> Callable[..., tuple[Tensor, None]]:
    """The same for an exit's attention, in the place of its `forward`."""

    def forward(
        query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor, need_weights: bool
    ) -> tuple[Tensor, None]:
        rows = [slice(n * module.embed_dim, (n + 1) * module.embed_dim) for n in range(3)]
        q, k, v = (
            functional.linear(x, module.in_proj_weight[of])  # (B, T, D)
            for x, of in zip((query, key, value), rows, strict=True)
        )
        mask, scale = (~key_padding_mask).int(), module.head_dim**-0.5
        attended = _operator(q, k, v, mask, module.num_heads, scale, module.in_proj_bias)
        return module.out_proj(attended), None

    return forward


def _operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    heads: int,
    scale: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention as an operator that stands in the graph and is not computed here; `bias` is of all three together."""
    by_token = mask is not None and mask.dim() == 2  # else a number to add per pair of tokens
    attended: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        [query, key, value, bias, mask] if by_token else [query, key, value, bias, None, mask],
        {"num_heads": heads, "scale": float(scale), "mask_filter_value": torch.finfo(torch.float32).min},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return attended


def _mask(attention_mask: Tensor | None = None, local_size: int | None = None, **more: Any) -> Tensor | None:
    """The 2-D mask as it is; where a layer looks through a window, a number to add per pair of tokens."""
    from transformers.masking_utils import eager_mask

    if local_size is None and attention_mask is not None:
        return attention_mask.int()
    made: Tensor | None = eager_mask(attention_mask=attention_mask, local_size=local_size, **more)
    return made


@contextmanager
def _traced_attention(model: MultiExitModel) -> Iterator[None]:
    """For a while, attention is the operator above, in layers and in exits; DeBERTa-v2's layers keep their own."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, _mask)
    config = model.encoder.backbone.config
    before = config._attn_implementation
    inside = [module for module in model.exits.modules() if isinstance(module, nn.MultiheadAttention)]
    try:
        if config.model_type != "deberta-v2":
            config._attn_implementation = ATTENTION
        for module in inside:
            module.forward = _exit_attention(module)  # type: ignore[method-assign]
        yield
    finally:
        config._attn_implementation = before
        for module in inside:
            del module.forward  # the class's own comes back


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks: on packages that are not needed, on what will change in torch itself."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _drop_idle_reshapes(graph: Any) -> None:
    """Heads are split off and put together again around the attention operator: reshapes that give what they took."""
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.input, *graph.output)
    }
    makers = {name: node for node in graph.node for name in node.output}
    results = {value.name for value in graph.output}
    same: dict[str, str] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = same.get(name, name)
        if node.op_type == "Reshape":
            below = makers.get(node.input[0])
            if below is not None and below.op_type == "Reshape":
                node.input[0] = below.input[0]
            start, end = node.input[0], node.output[0]
            if end not in results and shapes.get(start) is not None and shapes.get(start) == shapes.get(end):
                same[end] = start
    drop_unused(graph)


def drop_unused(graph: Any) -> None:
    """Remove the nodes and weights that no output needs."""
    while True:
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        idle = [node for node in graph.node if used.isdisjoint(node.output)]
        if not idle:
            break
        for node in idle:
            graph.node.remove(node)
    for weight in [weight for weight in graph.initializer if weight.name not in used]:
        graph.initializer.remove(weight)
