"""Whom a run tells its numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offramp.config import Config
from offramp.errors import ConfigError
from offramp.optimise.coherence import check
from offramp.optimise.loop import Loop
from offramp.optimise.trackers import trackers

STAND_IN = '''
"""As much of a tracker's package as accelerate calls; it writes what it is told into a file."""
import json, os

class Config(dict):
    def update(self, values, allow_val_change=False):
        write("config", values)

def write(kind, values, step=None):
    with open(os.environ["TRACKED"], "a") as file:
        file.write(json.dumps({"kind": kind, "step": step, **values}) + "\\n")

class Run:
    def log(self, values, step=None, **_):
        write("log", values, step)
    def finish(self):
        write("finish", {})

def init(project, **how):
    write("init", {"project": project, **how})
    return Run()

config = Config()
'''


@pytest.fixture(params=["wandb", "trackio"])
def stand_in(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A package of the tracker's name, and the file that it writes."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / f"{request.param}.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setenv("TRACKED", str(tmp_path / "tracked.jsonl"))
    yield request.param, tmp_path / "tracked.jsonl"
    sys.modules.pop(request.param, None)


@pytest.mark.parametrize("with_folder", [True, False])
def test_trackers_elsewhere_are_told_what_the_log_says(
    stand_in: tuple[str, Path], make_loop: Callable[..., Loop], tmp_path: Path, with_folder: bool
) -> None:
    name, file = stand_in
    folder = tmp_path / "my-model" / "training" if with_folder else None
    make_loop(folder, optimise__track=json.dumps([name]), optimise__epochs=2).run()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [told[0]["kind"], told[1]["kind"], told[-1]["kind"]] == ["init", "config", "finish"]
    assert told[0]["project"] == "offramp"
    assert told[0].get("name") == ("my-model" if with_folder else None)
    assert told[1]["optimise.epochs"] == 2
    losses = [(line["step"], line["train/loss"]) for line in told if "train/loss" in line]
    assert [step for step, _ in losses] == list(range(1, len(losses) + 1))
    assert sum("validation/accuracy" in line for line in told) == 2
    if folder is not None:
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert losses == [(line["step"], pytest.approx(line["loss"])) for line in lines if line["kind"] == "step"]
        assert not (folder / "events").exists()  # only those that are named


def test_tensorboard_and_another_are_told_the_same(
    stand_in: tuple[str, Path], make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    name, file = stand_in
    make_loop(tmp_path / "m" / "training", optimise__track=json.dumps(["tensorboard", name])).run()
    events = EventAccumulator(str(tmp_path / "m" / "training" / "events"))
    events.Reload()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    wanted = [(line["step"], line["train/loss"]) for line in told if "train/loss" in line]
    found = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert found == [(step, pytest.approx(loss, rel=1e-5)) for step, loss in wanted]


def test_every_exit_that_is_in_play_has_a_line_of_its_own(make_loop: Callable[..., Loop], tmp_path: Path) -> None:
    loop = make_loop(tmp_path, optimise__strategy="joint", optimise__epochs=2)
    loop.run()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    for depth in range(1, loop.model.depth + 1):
        assert len(events.Scalars(f"exit-{depth}/accuracy")) == 2


def test_nobody_is_told_where_nobody_is_named(make_loop: Callable[..., Loop], tmp_path: Path) -> None:
    make_loop(tmp_path, optimise__track="[]").run()
    assert (tmp_path / "log.jsonl").exists()
    assert not (tmp_path / "events").exists()


def test_a_tracker_that_is_not_installed_is_named_before_the_run(configure: Callable[..., Config]) -> None:
    for name in ("wandb", "trackio"):
        with pytest.raises(ConfigError, match=f"pip install {name}"):
            check(configure(optimise__track=json.dumps([name])))
    assert trackers(["tensorboard"], None) is None
