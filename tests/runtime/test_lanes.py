"""Batches run side by side, a core each, and answer as they do one after the other."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.encoder.backbones import make_backbone

from offramp.data.tokens import Tokens
from offramp.errors import ModelError
from offramp.exits.model import MultiExitModel, build
from offramp.policies.confidence import Confidence
from offramp.runtime import lanes
from offramp.runtime.engine import answers, pool, run
from offramp.runtime.lanes import AHEAD, one_thread_each, side_by_side
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_export import export
from offramp.runtime.onnx_folder import MANIFEST
from offramp.runtime.torch_engine import TorchEngine

CLOSE = {"rtol": 0.0, "atol": 1e-5}
SIZE = 4
POLICY = Confidence(0.36)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and nobody else who wants one each: a server of other tests may be open in this process."""
    monkeypatch.setattr(lanes, "_narrow", lanes._Narrow())
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> MultiExitModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = build(make_backbone("bert"), ("a", "b", "c"), exit_kind="mha", exit_size=16, exit_heads=2).train(False)
    made.config.trained_exits = [1, 2, 3, 4]
    return made


@pytest.fixture(scope="module")
def folder(model: MultiExitModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("onnx")
    export(model, home)
    return home


@pytest.fixture
def tokens(model: MultiExitModel) -> Tokens:
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 20, size=30)
    ids = draw.integers(5, int(model.encoder.backbone.config.vocab_size), size=int(lengths.sum()))
    return Tokens(ids=ids.astype(np.int32), offsets=np.concatenate([[0], lengths.cumsum()]), pad=0)


def test_what_is_made_of_batches_comes_in_their_order() -> None:
    turn = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert turn.wait(10)  # the second batch is done before the first
        if number == 1:
            turn.set()
        return number * number

    assert list(side_by_side(work, range(9), 2)) == [number * number for number in range(9)]


def test_batches_run_at_the_same_time_and_no_more_than_there_are_lanes() -> None:
    meeting, inside, most = threading.Barrier(3, timeout=10), [0], [0]
    lock = threading.Lock()

    def work(_: int) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        meeting.wait()  # broken unless three are here at once
        with lock:
            inside[0] -= 1
        meeting.wait()

    assert list(side_by_side(work, range(6), 3)) == [None] * 6
    assert most == [3]


def test_few_batches_are_begun_before_somebody_asks() -> None:
    begun: list[int] = []
    made = side_by_side(begun.append, range(100), 2)
    next(made)
    made.close()  # type: ignore[attr-defined]
    assert len(begun) <= 2 * AHEAD + 1


def test_an_error_of_one_batch_reaches_who_asked() -> None:
    def work(number: int) -> int:
        return 1 // (number - 3)

    with pytest.raises(ZeroDivisionError):
        list(side_by_side(work, range(8), 2))


def test_operators_have_one_thread_inside_and_all_of_them_afterwards() -> None:
    seen: list[int] = []
    with one_thread_each() as first, one_thread_each() as second:
        one = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        one.start()
        one.join()
    assert (first, second, seen, torch.get_num_threads()) == (2, 2, [1], 2)


def test_two_who_overlap_leave_the_threads_as_they_were() -> None:
    first, second = one_thread_each(), one_thread_each()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_batches_in_lanes_answer_as_one_after_the_other(
    kind: str, model: MultiExitModel, folder: Path, tokens: Tokens
) -> None:
    def engine(threads: int) -> TorchEngine | OnnxEngine:
        torch.set_num_threads(threads)
        return TorchEngine(model) if kind == "torch" else OnnxEngine(folder, threads)

    alone, wide = engine(1), engine(2)
    torch.set_num_threads(1)
    wanted, pooled, said = run(alone, tokens, POLICY, SIZE), pool(alone, tokens, SIZE), answers(alone, tokens, SIZE)
    torch.set_num_threads(2)
    found = run(wide, tokens, POLICY, SIZE)
    assert len(set(wanted.depth.tolist())) > 1
    assert torch.equal(found.depth, wanted.depth)
    torch.testing.assert_close(found.logits, wanted.logits, **CLOSE)
    for depth, output in pool(wide, tokens, SIZE).outputs.items():
        torch.testing.assert_close(output.logits, pooled.outputs[depth].logits, **CLOSE)
    assert answers(wide, tokens, SIZE) == said
    assert torch.get_num_threads() == 2


def test_an_exported_folder_that_was_replaced_meanwhile_is_refused(
    folder: Path, tokens: Tokens, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "mine")
    engine = OnnxEngine(tmp_path / "mine", 2)
    manifest = tmp_path / "mine" / MANIFEST
    manifest.write_text(manifest.read_text("utf-8").replace('"a"', '"another"'), "utf-8")
    assert OnnxEngine(tmp_path / "mine", 1).labels[0] == "another"
    with pytest.raises(ModelError, match="another one in its place"):
        run(engine, tokens, POLICY, SIZE)


def test_the_same_threads_work_call_after_call() -> None:
    """The allocator keeps what a thread that ended has left: with new ones for every call a process grows."""

    def who(_: int) -> int:
        return threading.get_native_id()

    seen = {thread for _ in range(20) for thread in side_by_side(who, range(8), 2)}
    assert len(seen) <= 2


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert list(side_by_side(abs, [-1, -2, -3], 2)) == [1, 2, 3]
    child = os.fork()
    if not child:
        signal.alarm(20)  # a thread that is not there would be waited for
        os._exit(0 if list(side_by_side(abs, [-1, -2, -3], 2)) == [1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_runs_on_when_a_batch_fails() -> None:
    running: set[int] = set()

    def work(number: int) -> int:
        running.add(number)
        try:
            if number == 1:
                raise ValueError("this one")
            time.sleep(0.02)
            return number
        finally:
            running.discard(number)

    with pytest.raises(ValueError, match="this one"):
        list(side_by_side(work, range(20), 2))
    assert not running
