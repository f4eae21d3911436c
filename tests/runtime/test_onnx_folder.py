"""What is exported is whole, and a folder that is not is refused by name."""

from __future__ import annotations

import builtins
import json
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from offramp.errors import ConfigError, MissingExtra, ModelError
from offramp.exits.model import MultiExitModel
from offramp.policies.never import Never
from offramp.runtime import onnx_export
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_export import export
from offramp.runtime.quantise import quantise
from offramp.types import Batch

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def exported(model_of: Callable[[str, str], MultiExitModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(model_of("bert", "mha"), folder, [2])
    return folder


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_folder_holds_a_segment_per_exit_the_labels_and_the_manifest(exported: Path) -> None:
    names = {file.name for file in exported.iterdir()}
    assert names == {"exit-2.onnx", "exit-4.onnx", "labels.safetensors", "onnx.json"}
    manifest = json.loads((exported / "onnx.json").read_text("utf-8"))
    assert (manifest["format"], manifest["depth"], manifest["exits"]) == (1, 4, [2, 4])
    assert (manifest["family"], manifest["precision"], manifest["hidden_size"]) == ("bert", "float32", 32)
    assert set(manifest["files"]) == names - {"onnx.json"}


def test_attention_is_one_operator_in_layers_and_exits(exported: Path) -> None:
    operators = Counter(node.op_type for node in onnx.load(exported / "exit-4.onnx").graph.node)
    assert operators["MultiHeadAttention"] == 3  # of two layers and an exit
    assert operators["Softmax"] == operators["Reshape"] == 0


def test_the_model_is_as_it_was_after_an_export(
    model_of: Callable[[str, str], MultiExitModel], tokens_for: Callable[..., Batch], tmp_path: Path
) -> None:
    model = model_of("bert", "mha")
    batch = tokens_for(model, [3, 7, 5], 0)
    before = model.outputs(batch)[4].logits
    model.train()
    try:
        export(model, tmp_path, [4])
        assert model.training
    finally:
        model.train(False)
    assert model.encoder.backbone.config._attn_implementation == "sdpa"
    assert torch.equal(model.outputs(batch)[4].logits, before)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("exits", [[0], [5], [2, 9]])
def test_an_exit_that_is_not_there_cannot_be_exported(
    model_of: Callable[[str, str], MultiExitModel], tmp_path: Path, exits: list[int]
) -> None:
    with pytest.raises(ConfigError, match="`exits` should be between 1 and 4"):
        export(model_of("bert", "mha"), tmp_path / "new", exits)
    assert not (tmp_path / "new").exists()


def test_a_backbone_that_cannot_be_traced_is_refused_before_anything_is_written(
    model_of: Callable[[str, str], MultiExitModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such operator\nand a long story")

    monkeypatch.setattr(onnx_export, "trace", fail)
    with pytest.raises(
        ModelError, match=r"layers 1 to 4 of this `bert` backbone cannot be exported: no such operator$"
    ):
        export(model_of("bert", "mha"), tmp_path / "new", [4])
    assert not (tmp_path / "new").exists()


def test_a_segment_that_answers_otherwise_than_torch_is_refused_before_anything_is_written(
    model_of: Callable[[str, str], MultiExitModel], exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: MultiExitModel, first: int, last: int, names: list[str]) -> onnx.ModelProto:
        traced = onnx.load(exported / f"exit-{last}.onnx")
        for weight in traced.graph.initializer:
            if weight.name.endswith("LayerNorm.weight"):
                values = onnx.numpy_helper.to_array(weight) * 1.1
                weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
        return traced

    monkeypatch.setattr(onnx_export, "trace", other)
    with pytest.raises(ModelError, match="The exported exit 2 should answer as the model does"):
        export(model_of("bert", "mha"), tmp_path / "new", [2])
    assert not (tmp_path / "new").exists()


def test_a_model_in_less_than_float32_is_refused(make_model: Callable[..., MultiExitModel], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"in float32 to be exported"):
        export(make_model().bfloat16(), tmp_path / "new")


def test_no_folder_and_a_folder_without_a_manifest_are_refused(copy: Path) -> None:
    with pytest.raises(ModelError, match="There is no"):
        OnnxEngine(copy / "absent")
    (copy / "onnx.json").unlink()
    with pytest.raises(ModelError, match=r"half-written or not an exported model: it has no `onnx\.json`"):
        OnnxEngine(copy)


@pytest.mark.parametrize("name", ["exit-2.onnx", "exit-4.onnx", "labels.safetensors"])
def test_a_changed_byte_and_a_missing_file_are_refused(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"is damaged: `{name}` is not what was written"):
        OnnxEngine(copy)
    (copy / name).unlink()
    with pytest.raises(ModelError, match=f"is damaged: `{name}` is missing"):
        OnnxEngine(copy)


def test_a_link_out_of_the_folder_is_refused(copy: Path, exported: Path) -> None:
    (copy / "exit-2.onnx").unlink()
    (copy / "exit-2.onnx").symlink_to(exported / "exit-2.onnx")
    with pytest.raises(ModelError, match=r"`exit-2\.onnx` is missing"):
        OnnxEngine(copy)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda m: m.update(format=2), "written by another offramp .* has format 2, this one reads 1. Upgrade"),
        (lambda m: m.update(format=0), "has format 0, this one reads 1. Export again"),
        (lambda m: m.update(format="new"), "`onnx.json` cannot be read"),
        (lambda m: m.pop("format"), "`onnx.json` cannot be read"),
        (lambda m: m.pop("exits"), "lacks something"),
        (lambda m: m.update(more=1), "lacks something"),
        (lambda m: m.update(exits=[]), "lacks something"),
        (lambda m: m.update(exits=[4, 2]), "contradicts itself"),
        (lambda m: m.update(exits=[2]), "contradicts itself"),
        (lambda m: m.update(exits=[True, 4]), "contradicts itself"),
        (lambda m: m.update(trained=[3]), "contradicts itself"),
        (lambda m: m.update(labels=[None]), "contradicts itself"),
        (lambda m: m.update(precision="int3"), "contradicts itself"),
        (lambda m: m["files"].pop("labels.safetensors"), "contradicts itself"),
        (lambda m: m["files"].update({"../exit-2.onnx": m["files"].pop("exit-2.onnx")}), "contradicts itself"),
        (lambda m: m["files"].update({"/etc/hostname": "0"}), "contradicts itself"),
    ],
)
def test_a_manifest_that_is_newer_or_not_whole_is_refused(copy: Path, edit: Edit, says: str) -> None:
    manifest = json.loads((copy / "onnx.json").read_text("utf-8"))
    edit(manifest)
    (copy / "onnx.json").write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(ModelError, match=says):
        OnnxEngine(copy)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"null"])
def test_a_manifest_that_is_not_json_is_refused(copy: Path, content: bytes) -> None:
    (copy / "onnx.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"`onnx\.json` cannot be read"):
        OnnxEngine(copy)


def test_a_folder_that_cannot_be_written_is_named(copy: Path, exported: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be written to .*onnx\.json"):
        quantise(exported, copy / "onnx.json" / "below")


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_package_that_is_missing_is_asked_for(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = builtins.__import__

    def refuse(name: str, *given: Any, **named: Any) -> Any:
        if name == package:
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"pip install 'offramp\[onnx\]'"):
        OnnxEngine(exported) if package == "onnxruntime" else quantise(exported, tmp_path / "int8")


def test_an_exported_model_answers_without_the_exporter(exported: Path, tokens_for: Callable[..., Batch]) -> None:
    batch = Batch(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64))
    assert OnnxEngine(exported, threads=1).decide(batch, Never()).depth.tolist() == [4]
