"""A model folder comes back as it was written, or is refused by name; nothing in it is ever run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.encoder.backbones import KINDS, make_backbone, make_batch
from transformers import PreTrainedTokenizerFast, dynamic_module_utils

from offramp.config import Config, from_mapping
from offramp.disk import sha256
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.kinds import EXITS
from offramp.exits.manifest import FORMAT
from offramp.exits.model import MultiExitModel, build
from offramp.sealed import SEAL, sealed

CONFIG = from_mapping({"recipe": "acl", "exits": {"size": 8, "heads": 2}, "optimise": {"seed": 7}})


def make(kind: str = "bert", attention: str = "sdpa", seed: int = 0, **exits: Any) -> MultiExitModel:
    backbone = make_backbone(kind, attention, seed)
    settings = {"exit_size": 8, "exit_heads": 2, "trained_exits": [4], "max_tokens": 30, **exits}
    return build(backbone, ("no", "yes", 3), **settings).train(False)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    folder = tmp_path_factory.mktemp("written")
    checkpoint.save(folder, make(), tokenizer, CONFIG)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A model folder of this test's own, to be damaged."""
    shutil.copytree(written, tmp_path / "model")
    return tmp_path / "model"


def logits(model: MultiExitModel) -> torch.Tensor:
    with torch.no_grad():
        outputs = model.outputs(make_batch(model.encoder.backbone, (21, 4, 11)))
    return torch.stack([output.logits for output in outputs.values()])


def refusal(folder: Path) -> str:
    """What `load` says; the command line shows it as it is."""
    with pytest.raises(ModelError) as caught:
        checkpoint.load(folder)
    return str(caught.value)


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "offramp.json").read_text("utf-8"))
    return found


def rewrite(folder: Path, **fields: Any) -> None:
    kept = {name: value for name, value in manifest(folder).items() if name != SEAL}
    (folder / "offramp.json").write_text(sealed({**kept, **fields}), "utf-8")


def agree(folder: Path, name: str) -> None:
    """Make the manifest agree with a file that was changed, as whoever forges a folder would."""
    rewrite(folder, files={**manifest(folder)["files"], name: sha256(folder / name)})


# --- there and back


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "bert-12"])
def test_a_model_comes_back_bit_for_bit(kind: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = make(kind)
    checkpoint.save(tmp_path, model, tokenizer, CONFIG)
    found, words, config = checkpoint.load(tmp_path)
    assert config == CONFIG
    assert not found.training
    assert found.config.labels == ["no", "yes", 3]
    assert found.config.trained_exits == [4]
    assert found.config.max_tokens == 30
    assert torch.equal(logits(found), logits(model))
    texts = ["the good film", "was it so very dull"]
    assert words(texts)["input_ids"] == tokenizer(texts)["input_ids"]


@pytest.mark.parametrize("kind", EXITS)
def test_a_model_comes_back_with_the_exits_it_was_made_with(
    kind: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = make(exit_kind=kind, exit_temperature=0.3, exit_window=7)
    checkpoint.save(tmp_path, model, tokenizer, CONFIG)
    found, _, _ = checkpoint.load(tmp_path)
    fields = (found.config.exit_kind, found.config.exit_temperature, found.config.exit_window)
    assert fields == (kind, 0.3, 7)
    assert found.config.trained_exits == [4]
    assert torch.equal(logits(found), logits(model))


def test_a_model_comes_back_with_the_attention_it_was_made_with(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = make(attention="eager")
    config = from_mapping({"encoder": {"attention": "eager"}})
    checkpoint.save(tmp_path, model, tokenizer, config)
    found, _, _ = checkpoint.load(tmp_path)
    assert found.encoder.backbone.config._attn_implementation == "eager"
    assert torch.equal(logits(found), logits(model))


def test_the_manifest_lists_every_file_that_was_written(written: Path) -> None:
    names = {file.name for file in written.iterdir()} - {"offramp.json"}
    assert names == manifest(written)["files"].keys()
    assert {"config.json", "model.safetensors", "offramp.toml", "tokenizer.json"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl", ".ckpt", ".py")) for name in names)


def test_saving_again_replaces_the_model_and_leaves_other_files(
    folder: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    (folder / "notes.txt").write_text("mine")
    other = make(seed=5)
    checkpoint.save(folder, other, tokenizer, CONFIG)
    found, _, _ = checkpoint.load(folder)
    assert torch.equal(logits(found), logits(other))
    assert not torch.equal(logits(found), logits(make()))
    assert (folder / "notes.txt").read_text() == "mine"
    assert not [file.name for file in folder.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_every_file_has_the_mode_that_the_umask_gives(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        checkpoint.save(tmp_path / "model", make(), tokenizer, CONFIG, seen=torch.ones(3))
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "model").iterdir()}
    assert {checkpoint.WEIGHTS, checkpoint.SEEN} < set(modes)
    assert modes == dict.fromkeys(modes, mode)


def test_a_folder_may_be_moved(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "elsewhere")
    found, _, _ = checkpoint.load(tmp_path / "elsewhere")
    assert torch.equal(logits(found), logits(make()))


# --- damaged


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "offramp.toml", "tokenizer.json"])
@pytest.mark.parametrize("where", [0.1, 0.5, 0.999])
def test_one_flipped_bit_is_refused_by_file(folder: Path, name: str, where: float) -> None:
    content = bytearray((folder / name).read_bytes())
    content[int(where * len(content))] ^= 1
    (folder / name).write_bytes(content)
    assert refusal(folder) == f"The model folder `{folder}` is damaged: `{name}` is not what was written."


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "offramp.toml", "tokenizer.json"])
@pytest.mark.parametrize("left", [0, 100])
def test_a_truncated_file_is_refused_by_name(folder: Path, name: str, left: int) -> None:
    os.truncate(folder / name, left)
    assert refusal(folder) == f"The model folder `{folder}` is damaged: `{name}` is not what was written."


def test_every_missing_file_is_refused_by_name(folder: Path) -> None:
    for name in manifest(folder)["files"]:
        (folder / name).rename(folder / "aside")
        assert refusal(folder) == f"The model folder `{folder}` is damaged: `{name}` is missing."
        (folder / "aside").rename(folder / name)
    checkpoint.verify(folder)


MANIFESTS: dict[str, bytes] = {
    "empty": b"",
    "cut": b'{"format": 1, "files": {"config.js',
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "no files": b'{"format": 1}',
    "no format": b'{"files": {}}',
    "files a list": b'{"format": 1, "files": [[1, 2]]}',
    "files a number": b'{"format": 1, "files": 3}',
    "format a word": b'{"format": "new", "files": {}}',
    "format endless": b'{"format": Infinity, "files": {}}',
    "not UTF-8": b'{"format": 1, "files": {"\xff": ""}}',
}


@pytest.mark.parametrize("content", MANIFESTS)
def test_a_damaged_manifest_is_refused_by_name(folder: Path, content: str) -> None:
    (folder / "offramp.json").write_bytes(MANIFESTS[content])
    assert refusal(folder) == f"The model folder `{folder}` is damaged: `offramp.json` cannot be read."


def test_a_flipped_bit_anywhere_in_the_manifest_is_refused_or_harmless(folder: Path) -> None:
    whole = (folder / "offramp.json").read_bytes()
    refused = []
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << place % 7
        (folder / "offramp.json").write_bytes(content)
        try:
            checkpoint.verify(folder)
        except ModelError as error:
            refused.append(str(error))
    assert all(str(folder) in message for message in refused)
    assert len(refused) > 0.8 * len(whole)  # the rest is white space and offramp's own version


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "offramp.toml", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"{", b"null", b"[1]", b"\xff\xfe\xff"])
def test_a_file_that_cannot_be_read_is_refused_though_the_manifest_agrees(
    folder: Path, name: str, content: bytes
) -> None:
    (folder / name).write_bytes(content)
    agree(folder, name)
    checkpoint.verify(folder)
    assert refusal(folder).startswith(f"The model folder `{folder}` cannot be read: ")


def test_a_field_this_offramp_does_not_know_is_refused_with_the_folder(folder: Path) -> None:
    file = folder / "offramp.toml"
    file.write_text(file.read_text("utf-8") + "\n[future]\nfield = 1\n", "utf-8")
    agree(folder, "offramp.toml")
    assert refusal(folder).startswith(f"The model folder `{folder}` cannot be read: `future` is not a known ")


# --- half-written, foreign, newer


def test_a_folder_without_a_manifest_is_half_written(folder: Path) -> None:
    (folder / "offramp.json").unlink()
    assert not checkpoint.is_model(folder)
    assert refusal(folder).startswith(f"The model folder `{folder}` is half-written: it has no `offramp.json`.")


SAVE = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from offramp.exits import checkpoint
model, tokenizer, config = checkpoint.load(Path(sys.argv[1]))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
replace = os.replace
for moves, folder in enumerate(sys.argv[2:]):
    if not os.fork():
        def fatal(*names):
            global moves
            if not moves:
                os._exit(9)  # the machine stops here
            moves -= 1
            replace(*names)
        os.replace = fatal
        checkpoint.save(Path(folder), model, tokenizer, config)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_save_that_is_killed_leaves_no_model_that_loads(written: Path, tmp_path: Path) -> None:
    moves = len(manifest(written)["files"]) + 1  # the manifest last
    folders = [tmp_path / str(number) for number in range(moves + 1)]
    for folder in folders:
        shutil.copytree(written, folder)
    command = [sys.executable, "-c", SAVE, str(written), *map(str, folders)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["9"] * moves + ["0"]
    for folder in folders[:-1]:
        assert "half-written" in refusal(folder)
    found, _, _ = checkpoint.load(folders[-1])
    assert not logits(found).any()


def test_a_folder_of_another_library_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    make_backbone("bert").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert refusal(tmp_path).startswith(f"`{tmp_path}` is not an offramp model: it has no `offramp.json`.")


def test_another_librarys_model_is_refused_though_a_manifest_claims_it(folder: Path) -> None:
    make_backbone("bert").save_pretrained(folder)
    for name in ("config.json", "model.safetensors"):
        agree(folder, name)
    checkpoint.verify(folder)
    assert str(folder) in refusal(folder)


def test_no_folder_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").endswith(f"There is no folder `{tmp_path / 'none'}`.")
    assert refusal(tmp_path).startswith(f"`{tmp_path}` is not an offramp model")
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file").endswith(f"There is no folder `{tmp_path / 'file'}`.")


def test_a_newer_format_is_refused(folder: Path) -> None:
    rewrite(folder, format=FORMAT + 1, offramp="9.1.0")
    message = refusal(folder)
    assert str(folder) in message
    assert "`offramp.json`" in message
    assert re.search(r"newer offramp \(9\.1\.0\).*Upgrade offramp\.$", message)


@pytest.mark.parametrize("name", ["../secret", "{outside}/secret", "a/../config.json", "./config.json", "..", ""])
def test_a_manifest_that_leaves_the_folder_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("")
    name = name.format(outside=folder.parent)
    target = (folder / name).resolve()
    content = sha256(target) if target.is_file() else ""
    rewrite(folder, files={**manifest(folder)["files"], name: content})
    message = refusal(folder)
    assert f"`{folder}`" in message
    assert f"`{name}`" in message


def test_clearing_a_folder_never_reaches_outside_it(folder: Path) -> None:
    outside = [folder.parent / "near", folder.parent / "far"]  # only files of this test: a broken `clear` deletes them
    for file in outside:
        file.write_text("mine")
    (folder / "notes.txt").write_text("mine")
    rewrite(folder, files={**manifest(folder)["files"], "../near": "", str(folder.parent / "far"): ""})
    checkpoint.clear(folder)
    checkpoint.forget(folder)
    assert [file.read_text() for file in outside] == ["mine", "mine"]
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]


# --- nothing is run


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


PICKLES = ("pytorch_model.bin", "model.pkl", "training_args.bin", "model.pt", "optimizer.pt")


def test_a_pickle_in_the_folder_is_never_loaded(folder: Path, tmp_path: Path) -> None:
    trap = Trap(tmp_path / "marker")
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(trap))
    found, _, _ = checkpoint.load(folder)
    assert torch.equal(logits(found), logits(make()))
    # Not even when it is all there is, and the manifest vouches for it, and it is good.
    (folder / "model.safetensors").unlink()
    torch.save(found.state_dict(), folder / "pytorch_model.bin")
    assert torch.equal(logits(MultiExitModel.from_pretrained(folder, use_safetensors=False)), logits(make()))
    files = {name: value for name, value in manifest(folder)["files"].items() if name != "model.safetensors"}
    rewrite(folder, files=files)
    agree(folder, "pytorch_model.bin")
    assert refusal(folder).startswith(f"The model folder `{folder}` cannot be read: ")
    (folder / "model.pkl").rename(folder / "model.safetensors")
    rewrite(folder, files=files)
    agree(folder, "model.safetensors")
    assert refusal(folder).startswith(f"The model folder `{folder}` cannot be read: ")
    assert not trap.marker.exists()
    pickle.loads(pickle.dumps(trap))
    assert trap.marker.exists()  # the trap works


CODE = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast
Path({marker!r}).touch()
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""


def test_code_in_the_folder_is_never_run_even_if_somebody_says_yes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", tmp_path / "modules")
    marker = tmp_path / "marker"
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    names = {"AutoTokenizer": ["code.Tokenizer"] * 2, "AutoModelForSequenceClassification": "code.Tokenizer"}
    for name, fields in (
        ("tokenizer_config.json", {"tokenizer_class": "Tokenizer", "auto_map": names}),
        ("config.json", {"auto_map": names | {"AutoConfig": "code.Tokenizer"}}),
    ):
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **fields}), "utf-8")
        agree(folder, name)
    agree(folder, "code.py")
    with contextlib.suppress(ModelError):
        checkpoint.load(folder)
    assert not marker.exists()
    assert "Do you wish to run" not in "".join(capfd.readouterr())
    exec(CODE.format(marker=str(marker)), {})
    assert marker.exists()  # the code works


# --- where a run may begin

FOLDERS: dict[str, Callable[[Path], object]] = {
    "model": lambda folder: None,
    "run": lambda folder: (shutil.rmtree(folder), (folder / "training").mkdir(parents=True),
                           (folder / "training" / "run.json").write_text("{}")),
    "other": lambda folder: (shutil.rmtree(folder), folder.mkdir(), (folder / "thesis.tex").touch()),
    "file": lambda folder: (shutil.rmtree(folder), folder.touch()),
    "empty": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
    "absent": lambda folder: shutil.rmtree(folder),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "plain", "resumed", "overwritten"),
    [
        ("model", "holds a model already", None, None),
        ("run", "holds an unfinished run", None, None),
        ("other", "holds other files", "holds other files", "holds other files"),
        ("file", "Found a file", "Found a file", "Found a file"),
        ("empty", None, None, None),
        ("absent", None, None, None),
    ],
)
def test_a_run_begins_only_where_nothing_of_the_users_is_lost(
    folder: Path, content: str, plain: str | None, resumed: str | None, overwritten: str | None
) -> None:
    FOLDERS[content](folder)
    for resume, overwrite, wanted in ((False, False, plain), (True, False, resumed), (False, True, overwritten)):
        if wanted is None:
            checkpoint.vacant(folder, resume, overwrite)
            continue
        with pytest.raises(ModelError, match=wanted) as caught:
            checkpoint.vacant(folder, resume, overwrite)
        assert f"`{folder}`" in str(caught.value)


def test_a_damaged_model_can_be_cleared_away(folder: Path) -> None:
    (folder / "offramp.json").write_text("{")
    checkpoint.clear(folder)
    assert checkpoint.is_model(folder)  # in name, until a new run has said that the folder is its own
    checkpoint.forget(folder)
    assert not checkpoint.is_model(folder)


def test_the_configuration_written_is_the_one_read(written: Path) -> None:
    assert isinstance(checkpoint.load(written)[2], Config)
    assert checkpoint.load(written)[2].optimise.seed == 7
