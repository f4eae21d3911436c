"""A method of several stages that is killed in any of them ends with the bits of the run that was not."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KILLED = -signal.SIGKILL
COMMON = [
    "optimise.epochs=2",
    "optimise.batch_size=12",
    "optimise.checkpoint_steps=2",
    "compress.epochs=2",
]  # 36 texts: 3 updates per epoch, 6 per stage
LOGS = {
    "layerdrop": ["."],
    "heads": ["full", "."],
    "tiny": ["full", "layers", "."],
    "theseus": ["full", "replacing", "."],
}
"""Where the stages of a method lie below `training`."""


def files(folder: Path) -> dict[str, bytes]:
    """What a run leaves behind, apart from TensorBoard's events and the seconds it took."""
    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return {name: held for name, held in found.items() if "/events/" not in name and "result" not in name}


def updates(folder: Path, stage: str) -> int:
    log = folder / "training" / stage / "log.jsonl"
    return log.read_bytes().count(b'"kind": "step"') if log.exists() else 0


@pytest.fixture(scope="module")
def fit(runs: Any, toy_file: Callable[..., Path], backbone_folder: Path) -> Callable[..., Any]:
    def run(out: Path, method: str, resume: bool = True, **options: Any) -> Any:
        settings = [*COMMON, f"compress.method={method}"]
        data = toy_file(40)
        return runs.fit(out, data, resume, recipe="ce", backbone=str(backbone_folder), settings=settings, **options)

    return run


@pytest.mark.parametrize("method", LOGS)
def test_a_run_killed_in_every_stage_ends_with_the_same_bits(
    fit: Callable[..., Any], tmp_path: Path, method: str
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    ended = fit(whole, method, resume=False)
    assert ended.code == 0, ended.output
    for stage in LOGS[method]:
        assert updates(whole, stage) == 6
        for update in (1, 5):  # before the first checkpoint, after one
            ended = fit(out, method, kill_when=lambda s=stage, u=update: updates(out, s) >= u)
            assert ended.code == KILLED, ended.output
    assert not (out / "model.safetensors").exists()
    ended = fit(out, method)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole)
    assert not list((out / "training").rglob("*.safetensors"))


DANGEROUS = (
    "os.rename training/full/.result.json",
    "flush training/full/model/.saving-*/model.safetensors",
    "os.rename training/full/model/.offramp.json",  # only the manifest of the full model is missing
    "os.rename training/full/checkpoint-6",  # the full model is done, its last checkpoint is still there
    "os.mkdir training/layers",  # between two stages
    "os.rename training/layers/model/.offramp.json",
    "os.rename training/.result.json",
    "os.rename .offramp.json",
)


def test_a_run_killed_between_its_stages_ends_with_the_same_bits(fit: Callable[..., Any], tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert fit(whole, "tiny", resume=False).code == 0
    for moment in DANGEROUS:
        ended = fit(out, "tiny", kill_at=moment)
        assert ended.code == KILLED, f"{moment} did not come\n{ended.output}"
    ended = fit(out, "tiny")
    assert ended.code == 0, ended.output
    assert files(out) == files(whole)


def test_a_run_begun_anew_does_not_take_the_stages_of_the_one_before(fit: Callable[..., Any], tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert fit(whole, "heads", resume=False, seed=1).code == 0
    assert fit(out, "heads", resume=False, seed=0, kill_when=lambda: updates(out, ".") >= 2).code == KILLED
    ended = fit(out, "heads", resume=False, seed=1, overwrite=True)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole)
