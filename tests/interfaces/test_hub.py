"""A model card says what is true of a folder, and a folder goes to a hub and comes back."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard, constants

from offramp import Classifier
from offramp.errors import ModelError
from offramp.hub import push
from offramp.model_card import card

Run = Callable[..., Any]


@pytest.fixture
def folder(staged: Any, tmp_path: Path) -> Path:
    """A model folder of the test's own."""
    return Path(shutil.copytree(staged.folder, tmp_path / "desk"))


def parts(text: str) -> tuple[dict[str, Any], str]:
    """The YAML in front, and the rest."""
    _, front, rest = text.split("---\n", 2)
    return yaml.safe_load(front), rest


def test_a_card_tells_the_recipe_the_exits_and_the_papers(folder: Path, backbone_folder: Path) -> None:
    front, rest = parts(card(folder, Classifier.load(folder)))
    assert front["library_name"] == "offramp"
    assert front["pipeline_tag"] == "text-classification"
    assert "base_model" not in front  # a folder on this machine is nobody else's
    assert not any(str(place) in rest for place in (folder.parent, backbone_folder.parent))
    record = json.loads((folder / "training" / "result.json").read_text())
    for depth, score in record["by_exit"].items():
        assert f"| {depth} | {score:.4f} |" in rest
    assert "optimise.strategy" in rest
    assert "was not certified" in rest
    assert all(f"@{kind}" in rest for kind in ("article{li2026acl", "inproceedings{gunel", "inproceedings{zhang"))
    assert "`bad`, `fine`, `good`" in rest


def test_a_card_with_texts_tells_their_scores_and_the_certificate(
    offramp: Run, folder: Path, held_out: Path, tables: Path
) -> None:
    assert offramp("calibrate", folder, held_out, "--max-drop", 0.2).code == 0
    ran = offramp("card", folder, tables / "test.csv", "--curve")
    assert ran.code == 0, ran.err
    front, rest = parts((folder / "README.md").read_text("utf-8"))
    evaluated = offramp("evaluate", folder, tables / "test.csv", "--json").json
    (index,) = front["model-index"]
    found = {metric["type"]: metric["value"] for result in index["results"] for metric in result["metrics"]}
    assert found["accuracy"] == pytest.approx(evaluated["accuracy"])
    assert f"{evaluated['mean_depth']:.2f} of 4 layers" in rest
    assert "## Speed and quality" in rest
    assert Classifier.load(folder).certificate.promises() in rest
    assert ModelCard.load(folder / "README.md").data.eval_results  # Hugging Face can read it
    assert Classifier.load(folder).certificate is not None  # a card does not harm its folder


def test_a_curve_without_texts_is_refused(offramp: Run, folder: Path) -> None:
    ran = offramp("card", folder, "--curve")
    assert (ran.code, ran.out) == (2, "")
    assert "DATA" in ran.err


class FakeHub(ThreadingHTTPServer):
    """As much of the hub as an upload needs; it keeps the files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.files: dict[str, bytes] = {}
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: FakeHub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.refuses:
            self._say({"error": "You don't have the rights"}, 403)
        elif self.path.endswith("/repos/create"):
            self._say({"url": f"{self.server.url}/me/desk", "name": "me/desk"})
        elif "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            self._say({"files": files})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                elif entry["key"] == "deletedFile":
                    del self.server.files[entry["value"]["path"]]
            self._say({"commitUrl": f"{self.server.url}/me/desk/commit/1", "commitOid": "1"})
        else:
            self._say({"errors": [], "warnings": []})

    def do_GET(self) -> None:
        if "/tree/" in self.path:
            sizes = {name: len(content) for name, content in self.server.files.items()}
            self._say([{"type": "file", "path": name, "size": size, "oid": "1"} for name, size in sizes.items()])
        else:
            self._say({"sha": "1", "id": "me/desk", "siblings": []})

    def _say(self, facts: Any, code: int = 200) -> None:
        content = json.dumps(facts).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nobody listens."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # this hub is on this machine
    server = FakeHub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_folder_goes_to_a_hub_whole_with_its_card_and_without_its_training(
    folder: Path, hub: FakeHub, tmp_path: Path
) -> None:
    address = push(folder, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))
    assert address.endswith("me/desk")
    assert "README.md" in hub.files
    assert not [name for name in hub.files if name.startswith("training") or name == "report.html"]
    comes_back(hub, folder, tmp_path / "back")


def test_an_exported_folder_goes_with_its_segments_and_names_no_pipeline(
    folder: Path, hub: FakeHub, tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    Classifier.load(folder).export(exported, exits=[4])
    (exported / "notes.txt").write_text("of somebody else")
    push(exported, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))
    assert {"onnx.json", "exit-4.onnx", "offramp.json"} <= hub.files.keys()
    assert "notes.txt" not in hub.files
    assert b"ONNX" in hub.files["README.md"]
    assert b"pipeline(" not in hub.files["README.md"]
    comes_back(hub, exported, tmp_path / "back")
    hub.files.clear()
    (exported / "exit-4.onnx").write_bytes(b"cut short")
    with pytest.raises(ModelError, match="damaged"):
        push(exported, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))
    assert not hub.files


def test_a_model_takes_the_place_of_one_of_another_kind(folder: Path, hub: FakeHub, tmp_path: Path) -> None:
    """Segments of an older model beside new weights would be what is loaded."""
    exported, mine = tmp_path / "exported", {"notes.txt": b"mine", "onnx/model.onnx": b"mine too"}
    Classifier.load(folder).export(exported, exits=[4])
    api = HfApi(endpoint=hub.url, token="hf_none")
    push(exported, "me/desk", api=api)
    hub.files |= mine
    push(folder, "me/desk", api=api)
    assert not hub.files.keys() & {"onnx.json", "exit-4.onnx", "labels.safetensors"}
    assert "model.safetensors" in hub.files
    push(exported, "me/desk", api=api)
    assert not hub.files.keys() & {"model.safetensors", "seen.safetensors"} - {p.name for p in exported.iterdir()}
    assert {name: hub.files[name] for name in mine} == mine
    for name in mine:
        del hub.files[name]
    comes_back(hub, exported, tmp_path / "back")


def test_a_card_that_promises_what_the_certificate_does_not_is_not_uploaded(
    offramp: Run, folder: Path, held_out: Path, hub: FakeHub
) -> None:
    there = HfApi(endpoint=hub.url, token="hf_none")
    assert offramp("calibrate", folder, held_out, "--max-drop", 0.2).code == 0
    push(folder, "me/desk", api=there)
    assert {"certificate.json", "dial.json"} <= hub.files.keys()
    with (folder / "README.md").open("a", encoding="utf-8") as file:
        file.write("\nA word of my own.\n")
    push(folder, "me/desk", api=there)
    assert offramp("calibrate", folder, held_out, "--max-drop", 0.3).code == 0
    with pytest.raises(ModelError, match=r"trained or calibrated anew: write it again with `offramp card"):
        push(folder, "me/desk", api=there)
    assert offramp("card", folder).code == 0
    push(folder, "me/desk", api=there)
    (folder / "README.md").write_text("Written by hand.", "utf-8")
    push(folder, "me/desk", api=there)


def comes_back(hub: FakeHub, folder: Path, back: Path) -> None:
    """What the hub has answers as the folder does."""
    back.mkdir()
    for name, content in hub.files.items():
        (back / name).write_bytes(content)
    texts = ["the good film", "a bad plot"]
    assert Classifier.load(back).predict(texts).tolist() == Classifier.load(folder).predict(texts).tolist()


def test_what_the_hub_says_is_passed_on(folder: Path, hub: FakeHub) -> None:
    hub.refuses = True
    with pytest.raises(ModelError, match=r"[^.]\. Log in with `hf auth login`"):
        push(folder, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))
    with pytest.raises(ModelError, match="OWNER/NAME"):
        push(folder, "not/a/name", api=HfApi(endpoint=hub.url, token="hf_none"))


def test_a_hub_that_is_not_reached_is_told_apart_from_a_login(
    folder: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("http://127.0.0.1:9", "http://nowhere.invalid"):
        with pytest.raises(ModelError, match=r"It was not reached: .*[^.]\. Check the network") as raised:
            push(folder, "me/desk", api=HfApi(endpoint=place, token="hf_none"))
        assert "hf auth login" not in str(raised.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is not set"):
        push(folder, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))


def test_a_damaged_folder_is_not_uploaded(folder: Path, hub: FakeHub) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="damaged"):
        push(folder, "me/desk", api=HfApi(endpoint=hub.url, token="hf_none"))
    assert not hub.files
