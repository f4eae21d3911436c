"""A disk that is really full: the run stops with the reason, and goes on to the same bits when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.small import Small
from tests.optimise.runs import Runs

from offramp.optimise.saved_state import SavedState


def mount(folder: Path, options: str) -> bool:
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a little over one checkpoint."""
    folder = tmp_path / "disk"
    if not mount(folder, "size=2200k"):
        pytest.skip("a small disk cannot be mounted here: that takes the rights of root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_run_on_a_disk_that_fills_up_goes_on_when_there_is_room(disk: Path, tmp_path: Path) -> None:
    small, runs = Small(tmp_path / "small"), Runs(tmp_path)
    given = {"recipe": "acl-multi-exit", "settings": small.settings["two-stage"], "backbone": str(small.backbone)}
    try:
        whole = runs.fit(tmp_path / "whole", small.data, **given)
        assert whole.code == 0, whole.output
        ended = runs.fit(disk / "out", small.data, **given)
        assert ended.code == 1
        last = ended.output.strip().splitlines()[-1]
        assert last.startswith("offramp.errors.TrainingError: ")
        assert "No space left on device" in last or "os error 28" in last
        assert SavedState(disk / "out" / "training").read() is not None
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        ended = runs.fit(disk / "out", small.data, resume=True, **given)
        assert ended.code == 0, ended.output
    finally:
        runs.close()
    weights = [(place / "model.safetensors").read_bytes() for place in (tmp_path / "whole", disk / "out")]
    assert weights[0] == weights[1]
