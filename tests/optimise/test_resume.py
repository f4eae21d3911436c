"""A run that is killed and resumed ends with the files of the run that was not: the same weights, bit for bit."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop
from offramp.optimise.run_folder import fingerprint
from offramp.optimise.saved_state import SavedState
from offramp.sealed import sealed, unsealed
from offramp.types import Example, StepRecord

KILLED = -signal.SIGKILL
TEXTS = 40  # 36 to learn from: 5 updates per epoch
COMMON = ["optimise.epochs=3", "optimise.batch_size=8", "optimise.checkpoint_steps=2", "objective.weight=0.5"]
SETTINGS = {
    "scl": COMMON,
    "scl, no checkpoint": [*COMMON, "optimise.checkpoint_steps=0", "optimise.checkpoint_seconds=1e6"],
    "acl": [*COMMON, "alignment.scope=exact"],
    "acl, cached": [
        *COMMON,
        "alignment.scope=exact",
        "optimise.batch_size=3",
        "optimise.contrast_batch=4",
        "optimise.updates_per_epoch=4",
    ],  # 9 contrast batches, two to an update
    "acl, two stages": [
        *COMMON,
        "alignment.scope=exact",
        "optimise.strategy=two-stage",
        "optimise.epochs=1",
        "stage2.epochs=3",
        "stage2.least_updates=0",
        "stage2.batch_size=12",
        "stage2.scope=exact",
        "stage2.soft=0.5",
    ],  # 5 updates, then 3 in each of 3 epochs
    "acl, short": [*COMMON, "alignment.scope=exact", "optimise.epochs=2", "optimise.batch_size=12"],
}
"""Dropout is on in all: it is the backbone's and the exits' default."""


@dataclass(frozen=True)
class Whole:
    """A run that nobody disturbed."""

    folder: Path
    moments: list[str]
    seconds: float


def files(folder: Path) -> dict[str, bytes]:
    """What a run leaves behind, apart from TensorBoard's events and the seconds it took."""
    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return {
        name: held for name, held in found.items() if not name.startswith("training/events/") and "result" not in name
    }


def updates(folder: Path) -> int:
    log = folder / "training" / "log.jsonl"
    return log.read_bytes().count(b'"kind": "step"') if log.exists() else 0


@pytest.fixture(scope="module")
def fit(runs: Any, toy_file: Callable[..., Path], backbone_folder: Path) -> Callable[..., Any]:
    """Trains in a process; by default it resumes what is there."""

    def run(out: Path, name: str, resume: bool = True, **options: Any) -> Any:
        options = {"data": toy_file(TEXTS), "settings": SETTINGS[name], **options}
        return runs.fit(out, recipe=name[:3], backbone=str(backbone_folder), resume=resume, **options)

    return run


@pytest.fixture(scope="module")
def whole(fit: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """The undisturbed run with these settings, made once."""
    made: dict[str, Whole] = {}

    def make(name: str) -> Whole:
        if name not in made:
            folder = tmp_path_factory.mktemp("whole") / "out"
            began = time.monotonic()
            ended = fit(folder, name, resume=False)
            assert ended.code == 0, ended.output
            made[name] = Whole(folder, ended.moments, time.monotonic() - began)
        return made[name]

    return make


@pytest.mark.parametrize("recipe", ["scl", "scl, no checkpoint", "acl", "acl, cached"])
def test_a_run_killed_at_several_updates_ends_with_the_same_bits(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path, recipe: str
) -> None:
    out = tmp_path / "out"
    assert updates(whole(recipe).folder) == 15
    for update in (1, 4, 7, 11, 14):  # before the first checkpoint, within epochs, after one
        ended = fit(out, recipe, kill_when=lambda update=update: updates(out) >= update)
        assert ended.code == KILLED, ended.output
    assert not (out / "model.safetensors").exists()
    ended = fit(out, recipe)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole(recipe).folder)


@pytest.mark.parametrize(("recipe", "seed"), [("scl", 1), ("acl", 2)])
def test_a_run_killed_at_random_times_ends_with_the_same_bits(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path, recipe: str, seed: int
) -> None:
    out, draw = tmp_path / "out", random.Random(seed)
    for _ in range(5):
        ended = fit(out, recipe, kill_after=draw.uniform(0.2, 0.9) * whole(recipe).seconds)
        assert ended.code in (KILLED, 0), ended.output
        newest = SavedState(out / "training")
        assert newest.newest() is None or newest.read() is not None
    ended = fit(out, recipe)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole(recipe).folder)


def test_a_run_killed_in_either_stage_ends_with_the_same_bits(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    recipe = "acl, two stages"
    assert updates(whole(recipe).folder) == 14
    moments = [moment for moment in whole(recipe).moments if "states-" in moment or "base" in moment]
    out = tmp_path / "out"
    ended = fit(out, recipe, kill_when=lambda: updates(out) >= 3)
    assert ended.code == KILLED, ended.output
    # Between the stages, while the states are written, and when they are whole.
    for moment in dict.fromkeys([moments[0], moments[len(moments) // 3], moments[len(moments) // 2]]):
        ended = fit(out, recipe, kill_at=moment)
        assert ended.code == KILLED, f"{moment} did not come\n{ended.output}"
    for update in (6, 9, 13):
        ended = fit(out, recipe, kill_when=lambda update=update: updates(out) >= update)
        assert ended.code == KILLED, ended.output
    ended = fit(out, recipe)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole(recipe).folder)


DANGEROUS = (
    "os.rename training/.run.json",  # nothing is written but a part
    "os.mkdir training/events",
    "open training/.part-2/facts.json",  # the tensors are there, the facts are not
    "os.rename training/.part-2",  # all is there under the wrong name
    "flush training",  # there is a first checkpoint
    "os.remove training/.part-checkpoint-*/facts.json",  # an old checkpoint is half gone
    "os.rename training/.part-5",  # the first epoch's end
    "os.rename training/.part-15",  # the last epoch's end
    "os.rename training/.result.json",
    "flush .saving-*/model.safetensors",  # the model is written, under another name
    "os.rename .saving-*/model.safetensors",  # some of its files have their names
    "os.rename .offramp.json",  # only the manifest is missing
    "os.remove training/.part-checkpoint-15/facts.json",  # the model is done, the last checkpoint half gone
)


def test_a_run_killed_while_it_writes_ends_with_the_same_bits(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for moment in DANGEROUS:
        ended = fit(out, "acl", kill_at=moment)
        assert ended.code == KILLED, f"{moment} did not come\n{ended.output}"
    ended = fit(out, "acl")
    assert ended.code == 0, ended.output
    assert files(out) == files(whole("acl").folder)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["acl, short", "acl, two stages"])
def test_no_moment_to_be_killed_is_a_bad_one(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path, recipe: str
) -> None:
    moments = list(enumerate(whole(recipe).moments, start=1))
    for number, moment in moments[:: max(1, len(moments) // 20)]:  # spread over the run; all of them take long
        out = tmp_path / str(number)
        assert fit(out, recipe, kill_at=number).code == KILLED
        ended = fit(out, recipe)
        assert ended.code == 0, f"killed before {number}, {moment}: {ended.output}"
        assert files(out) == files(whole(recipe).folder), f"killed before {number}, {moment}"


@pytest.fixture
def half(fit: Callable[..., Any], tmp_path: Path) -> Path:
    """A run that was killed in its second epoch."""
    out = tmp_path / "half"
    assert fit(out, "scl", kill_when=lambda: updates(out) >= 9).code == KILLED
    return out


def test_what_a_kill_left_half_written_does_no_harm(
    fit: Callable[..., Any], whole: Callable[[str], Whole], half: Path
) -> None:
    newest = SavedState(half / "training").newest()
    assert newest is not None
    for number in (1, int(newest.name.removeprefix("checkpoint-")) + 2, 99):
        part = half / "training" / f".part-{number}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        (part / "tensors.safetensors").write_bytes(b"garbage")
    log = half / "training" / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-20])  # torn in its last line
    ended = fit(half, "scl")
    assert ended.code == 0, ended.output
    assert files(half) == files(whole("scl").folder)


def test_a_log_torn_before_the_checkpoint_is_continued_behind_the_tear(
    fit: Callable[..., Any], whole: Callable[[str], Whole], half: Path
) -> None:
    log = half / "training" / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]) + lines[3][:10])
    assert fit(half, "scl").code == 0
    wanted = files(whole("scl").folder)
    assert files(half)["model.safetensors"] == wanted["model.safetensors"]
    found = log.read_bytes().splitlines()
    assert found == [line for line in wanted["training/log.jsonl"].splitlines() if line in found]
    assert found[:3] == wanted["training/log.jsonl"].splitlines()[:3]
    assert found[-1] == wanted["training/log.jsonl"].splitlines()[-1]


class Stop(Watch):
    """A watch that interrupts the run at an update."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.began: tuple[int, int] | None = None

    def start(self, updates: int, done: int) -> None:
        self.began = (updates, done)

    def step(self, record: StepRecord) -> None:
        if record.step == self.at:
            raise KeyboardInterrupt


def test_a_resumed_run_remembers_its_best_epoch_and_its_patience(
    make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    scores = iter([0.5, 0.4, 0.3, 0.9])
    common = {"score": lambda *_: next(scores), "optimise__epochs": 4, "optimise__patience": 2}
    with pytest.raises(KeyboardInterrupt):
        make_loop(tmp_path, watch=Stop(at=8), **common).run()  # in the third epoch, of three updates each
    watch = Stop(at=0)
    result = make_loop(tmp_path, watch=watch, **common).run(resume=True)
    assert watch.began == (12, 6)
    assert (result.best_epoch, result.score, result.epochs, result.stopped_early) == (1, 0.5, 3, True)


def test_changed_settings_are_refused_by_name(fit: Callable[..., Any], half: Path) -> None:
    before = files(half)
    ended = fit(half, "scl", settings=[*SETTINGS["scl"], "optimise.epochs=4", "objective.temperature=0.4"])
    assert ended.code == 1
    assert "ConfigError" in ended.output
    assert "Changed: objective.temperature, optimise.epochs." in ended.output
    assert files(half) == before


SECOND = "acl, two stages"
OTHERS = ["stage2.lr=0.004", "stage2.batch_size=7", "stage2.cache_gb=0"]


@pytest.fixture(scope="module")
def other(fit: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run with another second stage."""
    folder = tmp_path_factory.mktemp("other") / "out"
    ended = fit(folder, SECOND, resume=False, settings=[*SETTINGS[SECOND], *OTHERS])
    assert ended.code == 0, ended.output
    return folder


@pytest.mark.parametrize("at", [3, 6, 9])  # in the first stage, in the second before and after an epoch
def test_a_second_stage_with_other_settings_begins_anew_and_ends_as_if_it_had_had_them(
    fit: Callable[..., Any], whole: Callable[[str], Whole], other: Path, tmp_path: Path, at: int
) -> None:
    out = tmp_path / "out"
    assert fit(out, SECOND, kill_when=lambda: updates(out) >= at).code == KILLED
    ended = fit(out, SECOND, settings=[*SETTINGS[SECOND], *OTHERS])
    assert ended.code == 0, ended.output
    assert files(out) == files(other)
    assert files(out)["model.safetensors"] != files(whole(SECOND).folder)["model.safetensors"]


def test_a_finished_run_that_kept_its_states_trains_its_second_stage_anew(
    fit: Callable[..., Any], other: Path, tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", [*SETTINGS[SECOND], "stage2.keep_cache=true"]
    assert fit(out, SECOND, settings=kept).code == 0
    assert list((out / "training").glob("states-*"))
    first = files(out)
    ended = fit(out, SECOND, settings=kept)
    assert (ended.code, files(out)) == (0, first)
    ended = fit(out, SECOND)  # which says nothing of what is to be kept
    assert (ended.code, files(out)) == (0, first)
    anew = [*SETTINGS[SECOND], *OTHERS, "stage2.keep_cache=false"]
    ended = fit(out, SECOND, settings=anew, kill_when=lambda: updates(out) >= 8)
    assert ended.code == KILLED, ended.output
    ended = fit(out, SECOND, settings=anew)
    assert ended.code == 0, ended.output
    assert files(out) == files(other)
    ended = fit(out, SECOND, settings=[*anew, "stage2.lr=0.005"])
    assert ended.code == 1
    assert "A finished run should have the settings it had. Changed: stage2.lr. A second stage begins anew where" in (
        ended.output
    )


def test_a_kill_while_the_other_second_stage_is_saved_does_not_leave_the_first_one_as_its_result(
    fit: Callable[..., Any], other: Path, tmp_path: Path
) -> None:
    out, anew = tmp_path / "out", [*SETTINGS[SECOND], *OTHERS, "stage2.keep_cache=false"]
    assert fit(out, SECOND, settings=[*SETTINGS[SECOND], "stage2.keep_cache=true"]).code == 0
    saving = ("open .saving-*/offramp.toml", "os.rename .saving-*/model.safetensors", "os.rename .offramp.json")
    for moment in ("os.rename training/.result.json", *saving):
        ended = fit(out, SECOND, settings=anew, kill_at=moment)
        assert ended.code == KILLED, f"{moment} did not come\n{ended.output}"
    ended = fit(out, SECOND, settings=anew)
    assert ended.code == 0, ended.output
    assert files(out) == files(other)


def test_another_second_stage_that_cannot_be_leaves_a_finished_run_as_it_was(
    fit: Callable[..., Any], tmp_path: Path
) -> None:
    out, kept = tmp_path / "out", [*SETTINGS[SECOND], "stage2.keep_cache=true"]
    assert fit(out, SECOND, settings=kept).code == 0
    before = files(out)
    ended = fit(out, SECOND, settings=[*kept, "stage2.objective=icl", "stage2.scope=none", "stage2.heads=5"])
    assert ended.code == 1
    assert "`stage2.heads` should divide the representation's width" in ended.output
    assert files(out) == before
    ended = fit(out, SECOND, settings=kept)
    assert (ended.code, files(out)) == (0, before)


def test_a_second_stage_that_begins_anew_says_with_what(fit: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert fit(out, SECOND, kill_when=lambda: updates(out) >= 9).code == KILLED
    ended = fit(out, SECOND, settings=[*SETTINGS[SECOND], *OTHERS])
    assert "The second stage begins anew with other settings (stage2.batch_size, stage2.cache_gb, stage2.lr)" in (
        ended.output
    )


def test_a_run_whose_epochs_are_over_reads_no_states_again(
    fit: Callable[..., Any], whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert fit(out, SECOND, kill_at="os.rename training/.result.json").code == KILLED
    ended = fit(out, SECOND)
    assert (ended.code, files(out)) == (0, files(whole(SECOND).folder))
    assert not any("depth-" in moment for moment in ended.moments)


def test_a_setting_that_is_newer_than_a_run_was_at_its_default(
    fit: Callable[..., Any], whole: Callable[[str], Whole], half: Path
) -> None:
    file = half / "training" / "run.json"
    facts = unsealed(file.read_bytes())
    assert facts["config"]["stage2"].pop("updates_per_epoch") == 0
    del facts["config"]["compress"]
    file.write_text(sealed({name: facts[name] for name in ("config", "data")}), "utf-8")
    assert fit(half, "scl").code == 0
    assert files(half)["model.safetensors"] == files(whole("scl").folder)["model.safetensors"]


def test_settings_that_change_nothing_that_is_learnt_may_change(
    fit: Callable[..., Any], whole: Callable[[str], Whole], half: Path
) -> None:
    assert fit(half, "scl", settings=[*SETTINGS["scl"], "optimise.checkpoint_steps=3"]).code == 0
    assert files(half)["model.safetensors"] == files(whole("scl").folder)["model.safetensors"]


def test_a_second_stage_of_a_run_that_has_none_is_refused_like_any_change(fit: Callable[..., Any], half: Path) -> None:
    ended = fit(half, "scl", settings=[*SETTINGS["scl"], "stage2.lr=0.004"])
    assert ended.code == 1
    assert "Changed: stage2.lr." in ended.output


def test_any_change_of_the_data_is_noticed() -> None:
    first, second = Example("a", label=1), Example("b", "c", label="x")
    changed = [
        [[first], [second]],
        [[second, first], []],
        [[first], []],
        [[Example("a", label="1"), second], []],
        [[Example("a", label=2), second], []],
        [[first, Example("b", label="x")], []],
        [[first, Example("bc", "", label="x")], []],
    ]
    prints = {fingerprint(*parts) for parts in changed}
    assert len(prints) == len(changed)
    assert fingerprint([first, second], []) not in prints
    assert fingerprint([first, second], []) == fingerprint(iter([first, second]), ())


def test_changed_data_is_refused(
    fit: Callable[..., Any], whole: Callable[[str], Whole], half: Path, toy_file: Callable[..., Path]
) -> None:
    before = files(half)
    ended = fit(half, "scl", data=toy_file(TEXTS, seed=1))
    assert ended.code == 1
    assert "DataError: A resumed run should have the texts it began with" in ended.output
    assert files(half) == before
    assert fit(half, "scl").code == 0
    assert files(half) == files(whole("scl").folder)
