"""Whatever bytes a parser is given, it gives what it should, or an error of ours."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offramp.config import from_mapping, override
from offramp.data.sources import read, stream
from offramp.errors import DataError, ModelError, OfframpError, UserError
from offramp.exits import manifest
from offramp.policies.certificate import Certificate
from offramp.report.history import read_history
from offramp.runtime import certified, onnx_folder
from offramp.sealed import sealed
from offramp.spaces import read_space
from offramp.study.files import read_study
from offramp.types import Example

SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

LINES = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=6).map("\n".join)
PIECES = st.lists(
    st.sampled_from(
        ['"', ",", "\t", "\n", "\r", "\0", "\ufeff", "text", "label", "{", "}", "[", ":", "1", "é", "\u2028"]
    ),
    max_size=30,
).map("".join)
HEADED = st.sampled_from(["", "text,label\n", "text\tlabel\n", '{"text": "a", "label": 1}\n'])
BYTES = st.binary(max_size=80) | st.tuples(HEADED, PIECES | LINES).map(lambda parts: "".join(parts).encode())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".ndjson", ".parquet"])
@SOME
@given(BYTES)
def test_a_data_file_of_any_bytes(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"data{suffix}"
    file.write_bytes(content)
    for required in (True, False):
        try:
            examples = read(file, labels_required=required).examples
        except DataError:
            continue
        assert examples
        assert all(isinstance(example, Example) and example.text.strip() for example in examples)


@SOME
@given(BYTES)
def test_lines_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lines").write_bytes(content)
    for source in (io.BytesIO(content), tmp_path / "lines"):
        try:
            examples = list(stream(source))
        except DataError:
            continue
        assert all(example.text.strip() for example in examples)


@SOME
@given(st.lists(st.dictionaries(st.sampled_from(["text", "label", "x"]), VALUES, max_size=3), max_size=4))
def test_rows_of_any_values(rows: list[dict[str, Any]]) -> None:
    with contextlib.suppress(DataError):
        assert read(rows).examples


@SOME
@given(st.lists(VALUES, max_size=4))
def test_a_list_of_anything(items: list[Any]) -> None:
    with contextlib.suppress(DataError):
        read(items)


TOML = st.sampled_from(
    ["[fields]\n", "about = 'x'\n", "grid = true\n", "'objective.weight' = [0.1, 0.2]\n", "x = 1e400\n", "a.b = 1\n",
     "'optimise.epochs' = { low = 1, high = 3 }\n", "'optimise.lr_exit' = { low = nan, high = inf }\n", "[" * 2000,
     "'objective.weight' = [" + "[" * 3000 + "\n", "[scales.smoke]\n", "tasks = ['rte']\n", "recipe = 'ce'\n", "\0"]
)  # fmt: skip
DOCUMENTS = st.lists(TOML, max_size=5).map(lambda parts: "".join(parts).encode()) | st.binary(max_size=60)


@SOME
@given(DOCUMENTS)
def test_a_space_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "space.toml").write_bytes(content)
    with contextlib.suppress(UserError):
        read_space(tmp_path / "space.toml")


@SOME
@given(DOCUMENTS, DOCUMENTS)
def test_a_study_of_any_bytes(tmp_path: Path, study: bytes, variant: bytes) -> None:
    (tmp_path / "study.toml").write_bytes(study)
    (tmp_path / "variant.toml").write_bytes(variant)
    with contextlib.suppress(UserError):
        read_study(tmp_path)


@SOME
@given(st.dictionaries(st.sampled_from(["optimise", "exits", "data", "objective", "recipe", "x"]), VALUES, max_size=4))
def test_a_configuration_of_anything(tree: dict[str, Any]) -> None:
    with contextlib.suppress(UserError):
        from_mapping(tree)


@SOME
@given(st.sampled_from(["optimise.epochs", "data.text", "stage2.keep_cache", "objective.name", "x", ""]), st.text())
def test_a_setting_of_any_text(key: str, value: str) -> None:
    with contextlib.suppress(UserError):
        override(from_mapping({}), [f"{key}={value}"])


JSON = VALUES.map(lambda value: json.dumps(value).encode())
MANIFESTS = (
    st.binary(max_size=60)
    | JSON
    | st.fixed_dictionaries({"format": VALUES, "files": VALUES}).map(lambda facts: json.dumps(facts).encode())
    | st.fixed_dictionaries({"format": st.just(2), "files": VALUES}).map(lambda facts: sealed(facts).encode())
)


@pytest.mark.parametrize(
    ("name", "reader"),
    [("offramp.json", manifest.verify), ("onnx.json", onnx_folder.read)],
)
@SOME
@given(MANIFESTS)
def test_a_manifest_of_any_bytes(tmp_path: Path, name: str, reader: Callable[[Path], Any], content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        reader(tmp_path)
    except ModelError:
        return
    assert json.loads(content)["files"] == {}  # the only manifest that an empty folder agrees with


@SOME
@given(st.binary(max_size=60) | JSON | VALUES.map(lambda value: sealed({"policy": value}).encode()))
def test_a_certificate_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "certificate.json").write_bytes(content)
    with pytest.raises(ModelError):
        certified.read(tmp_path, "torch", "fingerprint")
    with pytest.raises((OfframpError, ValueError)):
        Certificate.from_json(content.decode(errors="replace"))


STEP = {"kind": "step", "step": 1, "epoch": 0.5, "loss": 1.0, "parts": {}, "lr": 0.1}


@SOME
@given(
    st.lists(
        JSON | st.binary(max_size=20) | st.dictionaries(st.sampled_from(list(STEP)), VALUES).map(
            lambda changes: json.dumps({**STEP, **changes}).encode()
        ),
        max_size=4,
    ).map(b"\n".join)
)  # fmt: skip
def test_a_log_of_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    with contextlib.suppress(DataError):
        read_history(tmp_path / "log.jsonl")
