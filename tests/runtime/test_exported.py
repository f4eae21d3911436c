"""The folder of an exported model: whole or absent, whatever goes wrong on the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.config import Config
from offramp.data.tokens import Tokens
from offramp.errors import ModelError
from offramp.exits.model import MultiExitModel
from offramp.policies.never import Never
from offramp.runtime import exported
from offramp.runtime.engine import run
from offramp.runtime.exported import Comparison, export, load_exported
from offramp.runtime.onnx_folder import is_exported, refuse
from offramp.runtime.torch_engine import TorchEngine


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    made = make_model(2)
    made.config.trained_exits = [1, 2]
    return made


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 20, 50)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    types = np.zeros(lengths.sum(), np.int32)
    return Tokens(draw.integers(5, 128, lengths.sum()).astype(np.int32), offsets, 0, types)


def test_what_is_loaded_answers_as_torch_does(
    model: MultiExitModel, tokenizer: Any, tokens: Tokens, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()  # an empty folder is as good as none
    truth = run(TorchEngine(model), tokens, Never(), 8)
    comparison = Comparison(TorchEngine(model), tokens, truth.logits.argmax(dim=1).tolist(), 8, 0.0)
    found = export(tmp_path / "out", model, tokenizer, Config(), comparison=comparison)
    assert found == {"texts": 50, "accuracy_before": 1.0, "accuracy_after": 1.0}
    assert is_exported(tmp_path / "out")
    engine, made_of, loaded, config = load_exported(tmp_path / "out", threads=1)
    assert (engine.name, engine.exits, engine.trained, engine.threads) == ("onnx", (1, 2), (1, 2), 1)
    assert (made_of.labels, made_of.max_tokens) == (model.config.labels, model.config.max_tokens)
    assert loaded("the film")["input_ids"] == tokenizer("the film")["input_ids"]
    assert config == Config()
    given = run(engine, tokens, Never(), 8)
    assert given.logits.numpy() == pytest.approx(truth.logits.numpy(), abs=1e-4)
    with pytest.raises(ModelError, match="holds an exported model"):
        refuse(tmp_path / "out")
    refuse(tmp_path)


@pytest.mark.parametrize(("umask", "mode"), [pytest.param(0o022, 0o755, marks=pytest.mark.long), (0o077, 0o700)])
def test_the_folder_and_its_files_have_the_mode_that_the_umask_gives(
    model: MultiExitModel, tokenizer: Any, tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        export(tmp_path / "out", model, tokenizer, Config(), int8=True, seen=torch.ones(3))
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == mode
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()}
    assert modes == dict.fromkeys(modes, mode & 0o666)


@pytest.mark.parametrize("step", ["export_segments", "quantise", "checkpoint.save"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), ModelError("no")])
def test_nothing_is_left_where_a_step_fails(
    model: MultiExitModel,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: BaseException,
) -> None:
    def segments(_: Any, folder: Path, *__: Any) -> None:
        folder.mkdir()
        (folder / "exit-1.onnx").write_bytes(b"half")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(exported, "export_segments", segments)
    monkeypatch.setattr(exported, "quantise", lambda _, out: segments(None, out))
    monkeypatch.setattr(f"offramp.runtime.exported.{step}", fail)
    wanted = ModelError if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted) as caught:
        export(tmp_path / "new" / "out", model, tokenizer, Config(), int8=True)
    assert list(tmp_path.iterdir()) == []
    if isinstance(error, OSError):
        assert str(caught.value).endswith("new/out`: No space left on device.")


def test_a_parent_that_was_there_stays(model: MultiExitModel, tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(Exception, match="`exits` should be between 1 and 2"):
        export(tmp_path / "mine" / "new" / "out", model, tokenizer, Config(), exits=[7])
    assert [entry.name for entry in tmp_path.rglob("*")] == ["mine"]


def test_a_comparison_counts_right_answers_at_full_depth(model: MultiExitModel, tokens: Tokens) -> None:
    engine = TorchEngine(model)
    said = [int(engine.outputs(tokens.batch([row]))[2].logits.argmax()) for row in range(50)]
    truth = [answer if row % 5 else (answer + 1) % 3 for row, answer in enumerate(said)]
    assert Comparison(engine, tokens, truth, 7)._accuracy(engine) == 0.8


@pytest.mark.parametrize(
    ("before", "after", "most", "fine"),
    [
        (0.95, 0.94, 0.01, True),
        (0.95, 0.93, 0.01, False),
        (0.9, 0.95, 0.0, True),
        (0.9, 0.1, None, True),
    ],
)
def test_a_loss_is_held_against_the_limit(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, before: float, after: float, most: float | None, fine: bool
) -> None:
    class Named:
        name = "onnx int8"

    told = iter([before, after])
    monkeypatch.setattr(Comparison, "_accuracy", lambda *_: next(told))
    comparison = Comparison(Named(), tokens, [0] * 50, 8, most)  # type: ignore[arg-type]
    if fine:
        assert comparison.of(Named()) == {  # type: ignore[arg-type]
            "texts": 50,
            "accuracy_before": before,
            "accuracy_after": after,
        }
    else:
        with pytest.raises(ModelError, match=r"should lose at most 0\.01 of accuracy.*Nothing was written"):
            comparison.of(Named())  # type: ignore[arg-type]
