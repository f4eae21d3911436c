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
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of so many kilobytes."""
    folder = tmp_path / "disk"
    if not mount(folder, f"size={request.param}k"):
        pytest.skip("a small disk cannot be mounted here: that takes the rights of root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("disk", [2200], indirect=True)  # a little over one checkpoint
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


@pytest.mark.slow
@pytest.mark.parametrize("disk", [12_000], indirect=True)  # the states fit, but not with two checkpoints beside them
def test_states_leave_room_for_the_checkpoints_of_their_stage(disk: Path, tmp_path: Path) -> None:
    small, runs = Small(tmp_path / "small"), Runs(tmp_path)
    settings = ["exits.size=64", "optimise.epochs=1", "optimise.checkpoint_steps=10"]
    settings += ["stage2.epochs=2", "stage2.least_updates=0"]
    header, *rows = small.data.read_text().splitlines()
    openings = [row.partition(",")[0] for row in rows]
    many = [f"{openings[number // 40 % 40]} {rows[number % 40]}" for number in range(1500)]
    small.data.write_text("\n".join([header, *many]))
    try:
        ended = runs.fit(
            disk / "out", small.data, recipe="acl-multi-exit", settings=settings, backbone=str(small.backbone)
        )
    finally:
        runs.close()
    assert ended.code == 0, ended.output
    assert "To have them stored, make room on the disk." in ended.output
