"""A model folder that was forged, or is older than this offramp: what is loaded is what was written, or nothing.

Here the manifest agrees with what was done to the files, as whoever forges a folder would see to.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from offramp.config import from_mapping
from offramp.disk import sha256
from offramp.errors import ModelError
from offramp.exits import checkpoint, manifest
from offramp.exits.model import MultiExitModel
from offramp.types import Batch

CONFIG = from_mapping({"recipe": "ce", "exits": {"size": 16, "heads": 2}})
OLD = Path(__file__).with_name("format-1")
"""A folder that offramp 0.1.0 wrote, when manifests had no seal, and what its exits answered."""


@pytest.fixture
def folder(make_model: Callable[..., MultiExitModel], tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    model = make_model(layers=2, trained_exits=[2], max_tokens=30)
    checkpoint.save(tmp_path / "model", model, tokenizer, CONFIG, seen=torch.tensor([1, 2]))
    return tmp_path / "model"


def agree(folder: Path) -> None:
    """Make the manifest agree with the files."""
    manifest.write(folder, {name: sha256(folder / name) for name in manifest.read(folder) if (folder / name).exists()})


def edit(file: Path, **fields: Any) -> None:
    found = json.loads(file.read_text("utf-8"))
    inner = {key: fields.pop(key) for key in list(fields) if key in found.get("backbone", {})}
    found |= fields
    if inner:
        found["backbone"] |= inner
    file.write_text(json.dumps(found), "utf-8")


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        checkpoint.load(folder)
    return str(caught.value)


# --- weights


def change(folder: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    how(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    agree(folder)


NAME = "exits.1.classifier.weight"


def test_a_weight_that_is_missing_is_not_drawn_anew(folder: Path) -> None:
    change(folder, lambda tensors: tensors.pop(NAME))
    assert f"should hold `{NAME}` as 3 by 16. Found none." in refusal(folder)


def test_a_weight_too_many_or_of_another_shape_is_refused(folder: Path) -> None:
    change(folder, lambda tensors: tensors.update({NAME: torch.zeros(3, 17)}))
    assert f"`{NAME}` as 3 by 16. Found 3 by 17." in refusal(folder)
    change(folder, lambda tensors: tensors.update({NAME: torch.zeros(3, 16), "more": torch.zeros(1)}))
    assert "`more` as none. Found 1." in refusal(folder)


def test_weights_that_are_whole_numbers_are_refused(folder: Path) -> None:
    change(folder, lambda tensors: tensors.update({NAME: torch.zeros(3, 16, dtype=torch.int64)}))
    assert "should be floating-point numbers" in refusal(folder)


# --- sizes

HUGE = [
    {"hidden_size": 2**40},
    {"num_hidden_layers": 10**9},
    {"vocab_size": 10**12},
    {"intermediate_size": 10**15},
    {"max_position_embeddings": 2**62},
    {"exit_size": 2**50},
    {"num_hidden_layers": 3},
    {"hidden_size": 64},
    {"hidden_size": -8},
    {"num_attention_heads": 0},
    {"labels": list(range(100_000))},
    {"labels": ["one"]},
    {"labels": ["one", "one", "two"]},
    {"trained_exits": [7]},
    {"trained_exits": "all"},
    {"max_tokens": 0},
    {"max_tokens": "many"},
    {"layer_heads": [1, 1]},
    {"exit_kind": "trap"},
    {"backbone": {}},
    {"backbone": None},
    {"labels": None},
]


@pytest.mark.parametrize("fields", HUGE, ids=str)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    folder: Path, fields: dict[str, Any]
) -> None:
    edit(folder / "config.json", **fields)
    agree(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refusal(folder).startswith(f"The model folder `{folder}` cannot be read: ")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_header_that_lies_about_its_size_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    for length in (2**62, 2**31, 10):
        file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
        agree(folder)
        assert str(folder) in refusal(folder)


# --- files


@pytest.mark.parametrize(
    "name", ["added_tokens.json", "special_tokens_map.json", "vocab.txt", "generation_config.json"]
)
def test_a_file_that_the_manifest_does_not_name_is_not_read(folder: Path, name: str) -> None:
    whole = checkpoint.load(folder)[1]
    os.mkfifo(folder / name)  # whoever opened it would wait forever
    assert checkpoint.load(folder)[1].get_vocab() == whole.get_vocab()


def test_an_adapter_beside_the_weights_is_not_read(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/else", "peft_type": "LORA"}')
    checkpoint.load(folder)


def test_seen_texts_that_the_manifest_does_not_name_are_not_read(folder: Path) -> None:
    assert checkpoint.load_seen(folder) is not None
    files = manifest.read(folder)
    manifest.write(folder, {name: value for name, value in files.items() if name != "seen.safetensors"})
    assert checkpoint.load_seen(folder) is None


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    outside = folder.parent / "outside.json"
    shutil.move(folder / "config.json", outside)
    (folder / "config.json").symlink_to(outside)
    assert "`config.json` leads out of it" in refusal(folder)
    shutil.move(outside, folder / "inside.json")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("inside.json")
    checkpoint.load(folder)


def test_what_is_loaded_and_saved_again_is_the_same(folder: Path, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "again", *checkpoint.load(folder), seen=torch.tensor([1, 2]))
    before, after = manifest.read(folder), manifest.read(tmp_path / "again")
    # transformers writes into this one that it came from a folder, but not which one.
    assert "tmp" not in (tmp_path / "again" / "tokenizer_config.json").read_text("utf-8")
    assert {**before, "tokenizer_config.json": ""} == {**after, "tokenizer_config.json": ""}


# --- formats


def test_a_folder_of_the_first_format_answers_as_it_did(tmp_path: Path) -> None:
    model, tokenizer, _ = checkpoint.load(OLD)
    encoded = tokenizer("the film was good", return_tensors="pt")
    batch = Batch(encoded["input_ids"], encoded["attention_mask"], torch.zeros_like(encoded["input_ids"]))
    with torch.no_grad():
        found = {str(depth): output.logits[0] for depth, output in model.outputs(batch).items()}
    for depth, wanted in json.loads((OLD / "answers.json").read_text("utf-8")).items():
        assert torch.allclose(found[depth], torch.tensor(wanted), atol=1e-6)
    assert model.config.labels == ["bad", "good"]


def test_saving_a_folder_of_the_first_format_writes_the_present_one(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, *checkpoint.load(OLD))
    assert json.loads((tmp_path / "offramp.json").read_text("utf-8"))["format"] == manifest.FORMAT
    for name, tensor in checkpoint.load(OLD)[0].state_dict().items():
        assert torch.equal(checkpoint.load(tmp_path)[0].state_dict()[name], tensor)


def test_a_manifest_that_lost_a_line_is_refused_whatever_format_it_claims(folder: Path) -> None:
    facts = json.loads((folder / "offramp.json").read_text("utf-8"))
    facts["files"].pop("tokenizer_config.json")
    for written in (1, 2):
        (folder / "offramp.json").write_text(json.dumps({**facts, "format": written}), "utf-8")
        assert "`offramp.json` cannot be read" in refusal(folder)
