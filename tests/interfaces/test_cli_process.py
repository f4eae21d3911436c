"""What only a process of its own can show: its start, its signals, its pipes, its memory."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel

from offramp import __version__
from offramp.config import Config
from offramp.exits import checkpoint
from offramp.exits.model import build
from offramp.lock import held
from offramp.process import as_process

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
    assert processor_seconds([sys.executable, "-m", "offramp", "--help"]) - python < 0.5


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


def test_the_version_is_told(offramp: Run) -> None:
    ran = offramp("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"offramp {__version__}\n", "")


def test_help_names_the_verbs_in_the_order_of_readme(offramp: Run) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    _, _, listed = readme.partition("## The verbs")
    wanted = re.findall(r"^offramp (\w+)", listed.partition("\n## ")[0], re.MULTILINE)
    shown = re.findall(r"^\W+(\w+)", offramp("--help").out.partition("Commands")[2], re.MULTILINE)
    assert [verb for verb in shown if verb in wanted] == wanted
    assert len(wanted) == 13


@pytest.mark.parametrize("command", [(), ("train",), ("predict",), ("study",), ("study", "run")])
def test_flags_are_shown_without_a_value(offramp: Run, command: tuple[str, ...]) -> None:
    shown = offramp(*command, "--help").out
    assert "--help" in shown
    assert "bool" not in shown


def test_a_model_may_be_an_export(offramp: Run) -> None:
    for verb in ("predict", "evaluate", "calibrate", "serve", "card"):
        assert "`export`" in offramp(verb, "--help").out


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


def test_a_second_run_in_the_same_folder_is_refused_and_harms_nothing(
    offramp: Run, train_arguments: Callable[..., list[object]], model: Path, held_out: Path, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "m")
    before = {file: file.read_bytes() for file in (tmp_path / "m").rglob("*") if file.is_file()}
    with held(tmp_path / "m"):  # as the first run does
        for command in (
            train_arguments(tmp_path / "m", "--resume"),
            train_arguments(tmp_path / "m", "--overwrite"),
            ["calibrate", tmp_path / "m", held_out, "--max-drop", 0.2],
        ):
            ran = offramp(*command)
            assert (ran.code, ran.out) == (2, "")
            assert "One process at a time should work in" in ran.err
    assert {file: file.read_bytes() for file in (tmp_path / "m").rglob("*") if file.is_file()} == before


def test_a_search_ends_with_the_signals_code_and_goes_on(
    offramp: Run, tables: Path, backbone_folder: Path, tmp_path: Path
) -> None:
    command = ["tune", tables / "train.csv", "--out", tmp_path / "t", "--recipe", "ce", "--backbone", backbone_folder]
    command += ["--trials", 1, "--set", "exits.size=16", "--set", "optimise.batch_size=16"]
    log = tmp_path / "t" / "trial-0000" / "seed-0" / "training" / "log.jsonl"

    def terminate() -> None:
        while not (log.exists() and log.stat().st_size):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=terminate, daemon=True)
    sender.start()
    ran = offramp(*command, "--set", "optimise.epochs=1000")
    assert (ran.code, ran.out) == (143, "")
    assert "Traceback" not in ran.err
    assert list(log.parent.glob("checkpoint-*"))


# What a label or a text is made of does not depend on the machine's language.
LANGUAGES = {
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "Turkish": {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0", "PYTHONIOENCODING": "iso-8859-9"},
}
SPEAK = """
import json, sys, offramp.cli
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["offramp", *arguments]
    try:
        offramp.cli.main()
    except SystemExit as end:
        assert not end.code, arguments
"""


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory, write_table: Callable[..., Path]) -> Path:
    """Labelled texts beyond ASCII."""
    told = (("good", "größer"), ("bad", "日"))
    rows = [(f"the film was {word} {n}", label) for n in range(20) for word, label in told]
    return write_table(tmp_path_factory.mktemp("spoken") / "spoken.csv", rows)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_language_of_the_machine_changes_no_byte(
    offramp: Run, train_arguments: Callable[..., list[object]], spoken: Path, tmp_path: Path, language: str
) -> None:
    def commands(folder: Path) -> list[list[str]]:
        asked = (train_arguments(folder, data=spoken), ["predict", folder, spoken], ["evaluate", folder, spoken])
        return [[str(word) for word in command] for command in asked]

    ran = [offramp(*command) for command in commands(tmp_path / "here")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **LANGUAGES[language]}
    there = subprocess.run(
        [sys.executable, "-c", SPEAK],
        input=json.dumps(commands(tmp_path / "there")),
        capture_output=True,
        encoding="utf-8",
        env=environment,
    )
    assert there.returncode == 0, there.stderr
    assert "größer" in ran[1].out
    assert ran[1].out in there.stdout
    assert "größer" in (tmp_path / "there" / "report.html").read_text("utf-8")
    files = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("here", "there")]
    assert files[0] == files[1]


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


def test_a_command_keeps_few_kernels_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.delenv(name, raising=False)
    with as_process():
        assert int(os.environ[name]) < 1024  # of which every one that a new shape makes is kept otherwise
    monkeypatch.setenv(name, "500")
    with as_process():
        assert os.environ[name] == "500"


def test_a_text_in_a_pipe_is_answered_while_the_pipe_stays_open(start: Start, model: Path) -> None:
    with start("predict", model, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        killer = threading.Timer(120, process.kill)  # instead of waiting for ever
        killer.start()
        for text in ("a good film\n", "a bad plot\nthe fine story\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert all(process.stdout.readline().count("\t") == 2 for _ in text.splitlines())
        process.stdin.close()
        assert process.wait() == 0
        killer.cancel()
