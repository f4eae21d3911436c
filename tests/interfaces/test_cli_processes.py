"""`torchrun` trains with the verb as it is: one model, one report, one voice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.exits import checkpoint

Arguments = Callable[..., list[object]]


def torchrun(*arguments: object) -> subprocess.Popen[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "--module", "offramp", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_two_processes_write_one_model_and_go_on_after_a_stop(
    train_arguments: Arguments, offramp: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = train_arguments(tmp_path / "m", **{"optimise.epochs": 30})
    process = torchrun(*arguments, "--json")
    log = tmp_path / "m" / "training" / "log.jsonl"
    until = time.monotonic() + 120
    while not (log.exists() and '"epoch"' in log.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # which torchrun hands on
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert not checkpoint.is_model(tmp_path / "m")
    assert list((tmp_path / "m" / "training").glob("checkpoint-*")), err

    process = torchrun(*arguments, "--resume", "--json")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out)["epochs"] >= 1  # printed once
    assert checkpoint.is_model(tmp_path / "m")
    assert (tmp_path / "m" / "report.html").exists()
    steps = [record["step"] for line in log.read_text().splitlines() if (record := json.loads(line))["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    answered = offramp("predict", tmp_path / "m", "--json", stdin=b"good film\n")
    assert (answered.code, len(answered.out.splitlines())) == (0, 1)
