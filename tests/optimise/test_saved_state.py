"""Checkpoints are complete or absent: also when they are damaged, overwritten, or the disk fills up."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.errors import ModelError, TrainingError
from offramp.optimise.saved_state import SavedState

TENSORS = {"model/weight": torch.arange(6.0).view(2, 3), "random/torch": torch.get_rng_state()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read_to_the_bit(tmp_path: Path) -> None:
    saved = SavedState(tmp_path / "training")
    odd = {**TENSORS, "t": TENSORS["model/weight"].T, "nan": torch.tensor([math.nan, -0.0]), "step": torch.tensor(3.0)}
    saved.write(7, odd, {"place": {"best_score": -math.inf, "seconds": 0.1}})
    found = saved.read()
    assert found is not None
    tensors, facts = found
    assert tensors.keys() == odd.keys()
    for name, tensor in odd.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert tensors[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    assert facts == {"place": {"best_score": -math.inf, "seconds": 0.1}}


def test_a_checkpoint_is_as_readable_as_any_new_file(tmp_path: Path) -> None:
    SavedState(tmp_path / "training").write(1, {"a": torch.ones(2)}, {})
    (tmp_path / "any").touch()
    wanted = (tmp_path / "any").stat().st_mode
    assert {file.stat().st_mode for file in (tmp_path / "training").rglob("*") if file.is_file()} == {wanted}


def test_only_the_newest_is_kept_and_newest_means_the_highest_number(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    for number in (8, 9, 10, 100):
        saved.write(number, TENSORS, {"number": number})
        assert names(tmp_path) == [f"checkpoint-{number}"]
    (tmp_path / "checkpoint-20").mkdir()
    (tmp_path / "checkpoint-old").mkdir()
    assert saved.newest() == tmp_path / "checkpoint-100"


def test_a_checkpoint_of_the_same_number_is_replaced(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    for value in (1, 2):
        saved.write(5, TENSORS, {"value": value})
    found = saved.read()
    assert found is not None
    assert found[1] == {"value": 2}
    assert names(tmp_path) == ["checkpoint-5"]


def test_parts_are_no_checkpoints_and_the_next_one_sweeps_them_away(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    for part in (".part-3", ".part-9", ".part-checkpoint-2"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "tensors.safetensors").write_bytes(b"half")
    assert saved.newest() is None
    assert saved.read() is None
    saved.write(3, TENSORS, {})
    assert names(tmp_path) == ["checkpoint-3"]


def test_a_run_that_is_done_leaves_no_checkpoint(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    saved.write(3, TENSORS, {})
    (tmp_path / ".part-4").mkdir()
    (tmp_path / "log.jsonl").touch()
    saved.remove()
    assert names(tmp_path) == ["log.jsonl"]
    SavedState(tmp_path / "never").remove()


@pytest.mark.parametrize("file", ["tensors.safetensors", "facts.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "garbage"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, file: str, damage: str) -> None:
    saved = SavedState(tmp_path)
    saved.write(3, TENSORS, {"place": {}})
    hurt = tmp_path / "checkpoint-3" / file
    if damage == "gone":
        hurt.unlink()
    else:
        hurt.write_bytes(hurt.read_bytes()[:-5] if damage == "cut" else b"\xff" * 40)
    with pytest.raises(ModelError, match=r"The checkpoint `.*checkpoint-3` is damaged: .*train anew"):
        saved.read()


@pytest.mark.parametrize("file", ["tensors.safetensors", "facts.json"])
@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_one_flipped_bit_of_a_checkpoint_is_noticed(tmp_path: Path, file: str, where: float) -> None:
    saved = SavedState(tmp_path)
    saved.write(3, TENSORS, {"place": {"update": 3, "epoch_loss": 0.123456789}})
    hurt = tmp_path / "checkpoint-3" / file
    content = bytearray(hurt.read_bytes())
    content[int(where * len(content))] ^= 4
    hurt.write_bytes(content)
    with pytest.raises(ModelError, match=r"checkpoint-3` is damaged"):
        saved.read()


def test_behind_a_damaged_checkpoint_the_one_before_is_found(tmp_path: Path) -> None:
    """There are two where a kill came before the older one was removed."""
    for number in (3, 5):
        SavedState(tmp_path / str(number)).write(number, TENSORS, {"number": number})
        (tmp_path / str(number) / f"checkpoint-{number}").rename(tmp_path / f"checkpoint-{number}")
    saved = SavedState(tmp_path)
    assert saved.read() is not None
    assert saved.read()[1] == {"number": 5}  # type: ignore[index]
    (tmp_path / "checkpoint-5" / "facts.json").write_text("{}")
    assert saved.read()[1] == {"number": 3}  # type: ignore[index]


def test_a_base_is_newer_than_what_the_phase_before_left_and_older_than_what_follows(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    assert saved.base() is None
    saved.write(9, TENSORS, {"of": "the first phase"})
    saved.write_base(9, {"model/weight": torch.ones(3)}, {"of": "the base"})
    assert saved.newest() == saved.base() == tmp_path / "base-9"
    assert saved.read()[1] == {"of": "the base"}  # type: ignore[index]
    assert saved.read_base().part("model/")["weight"].tolist() == [1.0, 1.0, 1.0]
    saved.write(12, TENSORS, {"of": "the second phase"})
    assert names(tmp_path) == ["base-9", "checkpoint-12"]
    assert saved.read()[1] == {"of": "the second phase"}  # type: ignore[index]
    saved.write_base(20, {"model/weight": torch.zeros(3)}, {})
    assert names(tmp_path) == ["base-20", "checkpoint-12"]
    saved.remove(but_base=True)
    assert names(tmp_path) == ["base-20"]
    saved.remove()
    assert not names(tmp_path)


def test_a_run_goes_back_to_its_base_and_without_one_stays_where_it_is(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    saved.write(5, TENSORS, {})
    saved.back_to_base()
    assert names(tmp_path) == ["checkpoint-5"]
    saved.write_base(9, TENSORS, {})
    saved.back_to_base()
    assert names(tmp_path) == ["base-9", "checkpoint-5"]
    saved.write(12, TENSORS, {})
    saved.back_to_base()
    assert names(tmp_path) == ["base-9"]


def test_behind_a_damaged_base_the_checkpoint_before_it_is_found(tmp_path: Path) -> None:
    saved = SavedState(tmp_path)
    saved.write(9, TENSORS, {"of": "the first phase"})
    saved.write_base(9, TENSORS, {})
    (tmp_path / "base-9" / "facts.json").write_text("{}")
    assert saved.read()[1] == {"of": "the first phase"}  # type: ignore[index]


def test_a_place_that_cannot_be_written_is_a_training_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match=r"could not be written to `.*file/training`.*no checkpoint yet"):
        SavedState(tmp_path / "file" / "training").write(1, TENSORS, {})


# A model that is replaced.


def test_a_run_killed_while_it_clears_the_folder_can_be_started_again(
    fit: Callable[..., Any], whole: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert fit(out).code == 0
    (out / "report.html").write_text("of the old model")
    for moment in ("os.remove model.safetensors", "open training/.run.json", "os.remove offramp.json", "os.mkdir *"):
        ended = fit(out, overwrite=True, kill_at=moment)
        assert ended.code < 0, f"{moment} did not come\n{ended.output}"
    ended = fit(out, overwrite=True)
    assert ended.code == 0, ended.output
    assert (out / "model.safetensors").read_bytes() == whole


# A disk that fills up.

SETTINGS = [
    "stage2.least_updates=0",
    "optimise.epochs=2",
    "optimise.batch_size=8",
    "optimise.checkpoint_steps=2",
]  # 5 updates per epoch, 1 in the second stage


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def fit(runs: Any, toy_file: Callable[..., Path], backbone_folder: Path) -> Callable[..., Any]:
    def run(out: Path, **options: Any) -> Any:
        return runs.fit(out, toy_file(40), backbone=str(backbone_folder), settings=SETTINGS, **options)

    return run


@pytest.fixture(scope="module")
def whole(fit: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a run with room enough."""
    out = tmp_path_factory.mktemp("whole") / "out"
    ended = fit(out)
    assert ended.code == 0, ended.output
    return (out / "model.safetensors").read_bytes()


def stopped(fit: Callable[..., Any], out: Path, moment: str) -> Path:
    """A run stopped just before a moment, and the checkpoint it left."""
    assert fit(out, kill_at=moment).code < 0
    newest = SavedState(out / "training").newest()
    assert newest is not None
    return newest


def test_a_checkpoint_for_which_there_is_no_room_leaves_the_one_before(
    fit: Callable[..., Any], whole: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = stopped(fit, out, "os.mkdir training/.part-4")
    assert first.name == "checkpoint-2"
    before = digests(first)
    ended = fit(out, resume=True, room=(first / "tensors.safetensors").stat().st_size - 1)
    assert ended.code == 1
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith("offramp.errors.TrainingError: A checkpoint could not be written to")
    assert "File too large" in last
    assert f"The last good checkpoint is `{first}`: mend the cause and add --resume." in last
    assert digests(first) == before
    assert names(out / "training") == ["checkpoint-2", "events", "log.jsonl", "run.json"]
    assert SavedState(out / "training").read() is not None
    assert fit(out, resume=True).code == 0
    assert (out / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("room", [100, 600])
def test_a_log_for_which_there_is_no_room_stops_the_run_with_the_reason(
    fit: Callable[..., Any], whole: bytes, tmp_path: Path, room: int
) -> None:
    out = tmp_path / "out"
    first = stopped(fit, out, "os.mkdir training/.part-4")
    log = out / "training" / "log.jsonl"
    before = log.read_bytes()
    ended = fit(out, resume=True, room=room)
    assert ended.code == 1
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith("offramp.errors.TrainingError: The run's folder could not be written: ")
    assert "File too large" in last
    assert f"The last good checkpoint is `{first}`" in last
    assert log.read_bytes().startswith(before[: room // 2])
    assert fit(out, resume=True).code == 0
    assert (out / "model.safetensors").read_bytes() == whole


def test_events_for_which_there_is_no_room_stop_the_run_too(
    runs: Any, toy_file: Callable[..., Path], backbone_folder: Path, tmp_path: Path
) -> None:
    """TensorBoard writes in a thread of its own; what fails there is not lost."""
    out, room = tmp_path / "out", 4096
    # 18 updates, and no checkpoint before the last.
    settings = ["stage2.least_updates=0", "optimise.epochs=1", "optimise.batch_size=2"]
    ended = runs.fit(out, toy_file(40), backbone=str(backbone_folder), settings=settings, room=room)
    assert ended.code == 1
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith("offramp.errors.TrainingError: The run's folder could not be written: ")
    assert "There is no checkpoint yet: mend the cause and start anew." in last
    (events,) = (out / "training" / "events").iterdir()
    assert events.stat().st_size == room > (out / "training" / "log.jsonl").stat().st_size


def test_a_model_for_which_there_is_no_room_can_be_written_later(
    fit: Callable[..., Any], whole: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    last = stopped(fit, out, "open training/.result.json")
    assert last.name == "checkpoint-25"  # 10 updates of the first stage, 15 of the second
    ended = fit(out, resume=True, room=len(whole) - 1)
    assert ended.code == 1
    said = ended.output.strip().splitlines()[-1]
    assert said.startswith(f"offramp.errors.TrainingError: The model could not be written to `{out}`")
    assert f"The last good checkpoint is `{last}`" in said
    assert not (out / "offramp.json").exists()
    assert fit(out, resume=True).code == 0
    assert (out / "model.safetensors").read_bytes() == whole
    assert not list(out.glob(".*"))


def test_the_command_line_says_it_in_a_sentence_and_exits_with_1(
    runs: Any, toy_file: Callable[..., Path], backbone_folder: Path, tmp_path: Path
) -> None:
    """The first checkpoint has no best weights yet; the one after the first validation is larger, and too large."""
    out = tmp_path / "out"
    arguments = ["train", str(toy_file(40)), "--out", str(out), "--backbone", str(backbone_folder)]
    arguments += [part for setting in SETTINGS for part in ("--set", setting)]
    runs.fit(out, toy_file(40), backbone=str(backbone_folder), settings=SETTINGS, kill_at="os.mkdir training/.part-4")
    room = (out / "training" / "checkpoint-2" / "tensors.safetensors").stat().st_size + 4096
    ended = runs.command(out, *arguments, "--overwrite", room=room)
    assert ended.code == 1
    assert "Traceback" not in ended.output
    said = " ".join(ended.output.split())
    assert "error: A checkpoint could not be written to" in said
    assert f"The last good checkpoint is `{out}/training/checkpoint-4`: mend the cause and add --resume." in said
    assert SavedState(out / "training").read() is not None
