"""What only a process of its own can show: its start, its signals, its pipes, its memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from offramp.config import Config
from offramp.exits import checkpoint
from offramp.exits.model import build

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., Any]


def processor_seconds(command: list[str]) -> float:
    """User and system time of the fastest of three runs: a busy machine stretches only the clock."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert subprocess.run(command, capture_output=True).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def test_help_answers_within_half_a_second_of_python_itself() -> None:
    python = processor_seconds([sys.executable, "-c", "pass"])
    assert processor_seconds([sys.executable, "-m", "offramp.cli", "--help"]) - python < 0.5


def test_help_names_every_verb_and_imports_no_torch() -> None:
    script = (
        "import sys, offramp, offramp.cli\n"
        "sys.argv = ['offramp', '--help']\n"
        "try: offramp.cli.main()\n"
        "finally: print(sorted({'torch', 'transformers', 'sklearn', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.rstrip().endswith("[]")
    assert [verb for verb in ("train", "evaluate", "predict", "recipes", "demo") if verb not in ran.stdout] == []


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict", "recipes", "demo"])
def test_every_verb_has_its_help(offramp: Run, verb: str) -> None:
    ran = offramp(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "--json" in ran.out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_training_leaves_a_run_to_resume(
    start: Start, train_arguments: Callable[..., list[object]], tmp_path: Path, number: int, code: int
) -> None:
    process = start(*train_arguments(tmp_path / "m", **{"optimise.epochs": 1000}))
    assert process.stderr is not None
    epochs = [process.stderr.readline()[:9] for _ in range(2)]  # the first one's checkpoint is on disk by then
    process.send_signal(number)
    out, err = process.communicate()
    assert epochs == ["epoch   1", "epoch   2"]
    assert (process.returncode, out) == (code, "")
    assert err.splitlines()[-1] == "Stopped. The run goes on from here with --resume."
    assert "Traceback" not in err
    assert list((tmp_path / "m" / "training").glob("checkpoint-*"))
    assert not checkpoint.is_model(tmp_path / "m")


def test_a_reader_that_goes_away_ends_predict_without_a_word(start: Start, model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("good film\n" * 20_000)
    process = start("predict", model, tmp_path / "texts.txt", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()
    assert '"label"' in first
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() != 0  # it was not done


@pytest.fixture(scope="session")
def shallow(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A model with one layer and hardly any width."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    backbone = BertModel(BertConfig(vocab_size=128, max_position_embeddings=64, **sizes))
    model = build(backbone, ("a", "b"), exit_kind="linear", max_tokens=64)
    folder = tmp_path_factory.mktemp("shallow")
    checkpoint.save(folder, model, tokenizer, Config())
    return folder


@pytest.mark.slow
def test_predict_streams_200_000_lines_in_the_memory_of_20_000(start: Start, shallow: Path, tmp_path: Path) -> None:
    peaks = {}
    for lines in (20_000, 200_000):
        with (tmp_path / "texts.txt").open("w") as file:
            file.writelines(f"the film number {n % 97} was good and the plot was not\n" for n in range(lines))
        with (tmp_path / "answers.txt").open("w") as answers:
            process = start("predict", shallow, tmp_path / "texts.txt", stdout=answers, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert (tmp_path / "answers.txt").read_bytes().count(b"\n") == lines
        peaks[lines] = usage.ru_maxrss / 1024  # MB
    # 180 000 texts as Python strings are 20 MB, as examples with their tokens 100 MB.
    assert peaks[200_000] - peaks[20_000] < 10
