"""8 bits: near the float32 answers, and the same whoever shares the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from offramp.errors import ModelError
from offramp.exits.model import MultiExitModel
from offramp.policies.confidence import Confidence
from offramp.policies.never import Never
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_export import export
from offramp.runtime.onnx_folder import Manifest
from offramp.runtime.quantise import _segment, quantise
from offramp.types import Batch

Tokens = Callable[..., Batch]
Folders = tuple[MultiExitModel, Path, Path]
few = settings(max_examples=10, deadline=None)


@pytest.fixture(scope="module")
def folders(model_of: Callable[[str, str], MultiExitModel], tmp_path_factory: pytest.TempPathFactory) -> Folders:
    model = model_of("bert", "mha")
    whole, small = tmp_path_factory.mktemp("float32"), tmp_path_factory.mktemp("int8")
    export(model, whole, [2, 4])
    quantise(whole, small)
    return model, whole, small


@pytest.fixture(scope="module")
def engine(folders: Folders) -> OnnxEngine:
    return OnnxEngine(folders[2], threads=1)


def alone(batch: Batch, row: int) -> Batch:
    width = int(batch.mask[row].sum())
    types = batch.token_types
    return Batch(
        batch.input_ids[row : row + 1, :width],
        batch.mask[row : row + 1, :width],
        None if types is None else types[row : row + 1, :width],
    )


def test_the_answers_are_near_those_in_float32(folders: Folders, engine: OnnxEngine, tokens_for: Tokens) -> None:
    model, whole, _ = folders
    batch = tokens_for(model, [1, 3, 5, 8, 13, 21] * 10, 3)
    truth, found = OnnxEngine(whole, threads=1).outputs(batch), engine.outputs(batch)
    for depth in (2, 4):
        apart = (found[depth].logits - truth[depth].logits).abs()
        assert 0 < apart.mean() < 0.1 * truth[depth].logits.std()
        assert (found[depth].logits.argmax(dim=1) == truth[depth].logits.argmax(dim=1)).float().mean() > 0.9
    assert (engine.precision, engine.exits, engine.labels) == ("int8", (2, 4), ("a", "b", "c"))


@few
@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=7), seed=st.integers(0, 10**6), threshold=st.floats(0, 1)
)
def test_company_changes_no_answer(
    folders: Folders, engine: OnnxEngine, tokens_for: Tokens, lengths: list[int], seed: int, threshold: float
) -> None:
    batch = tokens_for(folders[0], lengths, seed, spare=2)
    together = engine.outputs(batch)
    decided = engine.decide(batch, Confidence(threshold))
    for row in range(len(batch)):
        found = engine.outputs(alone(batch, row))
        for depth in (2, 4):
            torch.testing.assert_close(found[depth].logits[0], together[depth].logits[row], rtol=0.0, atol=1e-5)
        left = int(decided.depth[row])
        torch.testing.assert_close(decided.logits[row], found[left].logits[0], rtol=0.0, atol=1e-5)


def product(weight: np.ndarray, shape: Sequence[int | str]) -> onnx.ModelProto:
    """A graph that multiplies by this matrix and does nothing else."""
    width = weight.shape[1]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*shape, len(weight)])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape, width])],
        [numpy_helper.from_array(weight, "w")],
    )
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def int8(model: onnx.ModelProto, hidden: int) -> InferenceSession:
    manifest = Manifest("bert", 1, (1,), (1,), ("a", "b"), hidden, token_types=False)
    return InferenceSession(_segment(model.SerializeToString(), manifest), providers=["CPUExecutionProvider"])


def slow(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The formula, element by element, in float64 and whole numbers."""
    result = np.zeros((*x.shape[:-1], weight.shape[1]))
    for place in np.ndindex(*x.shape[:-1]):
        top = float(np.abs(x[place]).max())
        small = np.rint(x[place] / np.float32(top) / np.float32(1 / 127)) if top else np.zeros(x.shape[-1])
        for column in range(weight.shape[1]):
            step = np.float32(np.abs(weight[:, column]).max() / 63) or np.float32(1)
            parts = np.rint(weight[:, column] / step)
            result[(*place, column)] = int((small * parts).sum()) * top / 127 * float(step)
    return result


def test_a_product_is_that_of_the_whole_numbers() -> None:
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((24, 40)).astype(np.float32)
    x = (draw.standard_normal((2, 3, 24)) * [[[1e-3], [1.0], [1e3]]]).astype(np.float32)
    (found,) = int8(product(weight, ("b", "t")), 24).run(None, {"x": x})
    tops = np.abs(x).max(axis=2, keepdims=True)  # (2, 3, 1)
    np.testing.assert_allclose(found / tops, slow(x, weight) / tops, rtol=0.0, atol=1e-5)


def test_the_largest_numbers_do_not_overflow() -> None:
    x, weight = np.ones((1, 2, 64), np.float32), np.ones((64, 64), np.float32)
    (found,) = int8(product(weight, ("b", "t")), 64).run(None, {"x": x})
    np.testing.assert_allclose(found, np.full((1, 2, 64), 64.0), rtol=1e-6)
    (found,) = int8(product(-weight, ("b", "t")), 64).run(None, {"x": -x})
    np.testing.assert_allclose(found, np.full((1, 2, 64), 64.0), rtol=1e-6)


def test_a_vector_of_zeros_gives_zeros_and_disturbs_nobody() -> None:
    weight = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)
    weight[:, 3] = 0.0
    x = np.zeros((1, 2, 24), np.float32)
    x[0, 1] = 1.0
    (found,) = int8(product(weight, ("b", "t")), 24).run(None, {"x": x})
    assert not found[0, 0].any()
    np.testing.assert_allclose(found[0, 1], slow(x, weight)[0, 1], rtol=1e-5, atol=1e-5)
    assert found[0, 1, 3] == 0.0


def test_the_layers_products_are_in_8_bits_and_the_exits_are_not(folders: Folders) -> None:
    operators = Counter(node.op_type for node in onnx.load(folders[2] / "exit-4.onnx").graph.node)
    assert operators["MatMulIntegerToFloat"] == 12  # six in each of two layers
    assert operators["QuantizeLinear"] == 8  # query, key and value share one
    before = Counter(node.op_type for node in onnx.load(folders[1] / "exit-4.onnx").graph.node)
    assert operators["MatMul"] == before["MatMul"] - 12 > 0


def test_int8_is_made_of_float32_only_and_beside_it(folders: Folders, tmp_path: Path) -> None:
    _, whole, small = folders
    with pytest.raises(ModelError, match=r"should hold an exported model in float32\. Found int8\."):
        quantise(small, tmp_path)
    with pytest.raises(ModelError, match="in another folder than the float32 one"):
        quantise(whole, whole)
    assert OnnxEngine(whole, threads=1).decide(Batch(torch.tensor([[5]]), torch.tensor([[1]])), Never()).depth == 4
