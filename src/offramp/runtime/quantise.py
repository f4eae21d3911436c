"""MODEL -> FAST MODEL: the layers' weights, and what is multiplied with them, in 8 bits.

    x W  =~  m (q(x / m) Q) s,     m = max_k |x_k| per token,   s = max_k |W_kn| / 63 per column,   Q = round(W / s)

Each token's vector has its own scale m, so that a text's answer does not depend on who shares its batch. With one scale
per batch, which is what onnxruntime's own `quantize_dynamic` has, it does.

Weights take 7 bits: processors without VNNI add two products in 16 bits, which 8 bits would overflow, silently.
Exits and embeddings stay in float32: they cost little time, and exits are what thresholds are compared with.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.errors import MissingExtra, ModelError
from offramp.runtime.onnx_folder import LABELS, Manifest, read, write
from offramp.runtime.onnx_trace import drop_unused

LARGEST = 63
"""The largest weight: 255 * 63 twice stays below 2^15."""


def quantise(folder: Path, out: Path) -> None:
    """Write the exported model of `folder` in int8 to `out`."""
    manifest, files = read(folder)
    if manifest.precision != "float32":
        raise ModelError(f"`{folder}` should hold an exported model in float32. Found {manifest.precision}.")
    if out.resolve() == folder.resolve():
        raise ModelError(f"The int8 model should lie in another folder than the float32 one. Found `{out}` for both.")
    small = {name: content if name == LABELS else _segment(content, manifest) for name, content in files.items()}
    write(out, replace(manifest, precision="int8"), small)


def _segment(content: bytes, manifest: Manifest) -> bytes:
    try:
        import onnx
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise MissingExtra("onnx", "onnx") from error
    model = onnx.load_from_string(content)
    graph = model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    constants: dict[str, NDArray[Any]] = {
        "int8.step": np.array(1 / 127, np.float32),
        "int8.middle": np.array(128, np.uint8),
        "int8.last": np.array([-1], np.int64),
        "int8.least": np.array(1e-30, np.float32),  # a vector of zeros stays one
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    nodes: list[Any] = []
    scaled: set[str] = set()
    for node in graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        # The layers' matrices; those of exits are narrower, or are no products of whole sequences.
        if weight is None or len(weight.dims) != 2 or min(weight.dims) < manifest.hidden_size:
            nodes.append(node)
            continue
        given, made = node.input[0], node.output[0]
        if given not in scaled:  # by the query's, the key's and the value's matrix together
            scaled.add(given)
            nodes += [
                helper.make_node("Abs", [given], [f"{given}.size"]),
                helper.make_node("ReduceMax", [f"{given}.size", "int8.last"], [f"{given}.top"], keepdims=1),
                helper.make_node("Max", [f"{given}.top", "int8.least"], [f"{given}.scale"]),
                helper.make_node("Div", [given, f"{given}.scale"], [f"{given}.unit"]),
                helper.make_node("QuantizeLinear", [f"{given}.unit", "int8.step", "int8.middle"], [f"{given}.int8"]),
            ]
        small, steps = _columns(numpy_helper.to_array(weight))
        zeros = np.zeros(len(steps), np.int8)
        parts: dict[str, NDArray[Any]] = {f"{made}.weight": small, f"{made}.steps": steps, f"{made}.zeros": zeros}
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in parts.items())
        weight_name, steps_name, zeros_name = parts
        nodes += [
            helper.make_node(
                "MatMulIntegerToFloat",
                [f"{given}.int8", weight_name, "int8.step", steps_name, "int8.middle", zeros_name],
                [f"{made}.unit"],
                domain="com.microsoft",
            ),
            helper.make_node("Mul", [f"{made}.unit", f"{given}.scale"], [made]),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph)
    written: bytes = model.SerializeToString()
    return written


def _columns(weight: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(K, N) in float32 to (K, N) in int8 and the step of each column, (N,)."""
    top = np.abs(weight).max(axis=0)
    steps = np.where(top > 0, top / LARGEST, 1.0).astype(np.float32)  # (N,)
    return np.rint(weight / steps).astype(np.int8), steps
