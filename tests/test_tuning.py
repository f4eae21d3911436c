"""A search: in pieces it is the search in one go, a grid is every combination once, validation scores alone count."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import toy_texts

from offramp import tuning
from offramp.config import from_mapping, load_recipe, override
from offramp.data.sources import Table
from offramp.errors import ConfigError, MissingExtra, TrainingError
from offramp.optimise.journal import Watch
from offramp.preparation import as_table
from offramp.report.importance import importance_bars
from offramp.spaces import SPACES, Range, Space
from offramp.tuning import Plan, Search, Trial, best_config, tune

pytest.importorskip("optuna", reason="optuna is absent; the extra `tune` brings it")

TEMPERATURE, RATE = "objective.temperature", "optimise.lr_exit"
SPACE = Space("", {TEMPERATURE: Range(0.01, 10.0, log=True), RATE: Range(1e-4, 1e-2, log=True)})
GRID = Space("", {TEMPERATURE: (0.1, 0.2, 0.3), "objective.weight": (0.1, 0.9)}, grid=True)


def texts(n: int = 60, seed: int = 0) -> Table:
    return as_table(*toy_texts(n, seed), "toy")


def plan(space: Space = SPACE, trials: int | None = 12, settings: tuple[str, ...] = (), **more: Any) -> Plan:
    return Plan(override(load_recipe("scl"), settings), space, texts(), trials=trials, **more)


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """In place of training: a score that is highest at a temperature of 0.3. Keeps what was asked."""
    asked: list[Mapping[str, Any]] = []

    def score(_: Plan, settings: Mapping[str, Any], *__: Any, **___: Any) -> float:
        asked.append(settings)
        return -abs(math.log(settings[TEMPERATURE] / 0.3))

    monkeypatch.setattr(tuning, "_score", score)
    return asked


def test_the_best_trial_is_the_one_that_validates_best(landscape: list[Any], tmp_path: Path) -> None:
    search = tune(plan(trials=24), tmp_path)
    scores = [-abs(math.log(asked[TEMPERATURE] / 0.3)) for asked in landscape]
    assert [trial.settings for trial in search.trials] == landscape
    assert [trial.score for trial in search.trials] == pytest.approx(scores)
    assert search.best.score == max(trial.score or 0 for trial in search.trials)
    # Optuna's proposals gather where scores are high: nearer than the best of 24 even draws is on average.
    assert abs(math.log(search.best.settings[TEMPERATURE] / 0.3)) < math.log(1000) / 2 / 24
    assert search.importance[TEMPERATURE] > 0.8  # the rate does not matter here
    assert sum(search.importance.values()) == pytest.approx(1.0)


def test_a_search_in_pieces_is_the_search_in_one_go(landscape: list[Any], tmp_path: Path) -> None:
    whole = tune(plan(trials=12), tmp_path / "one")
    for trials in (1, 4, 12):
        pieces = tune(plan(trials=trials), tmp_path / "two")
        assert len(pieces.trials) == trials
    assert pieces == whole
    assert len(landscape) == 24
    assert tune(plan(trials=12), tmp_path / "two") == whole  # nothing is left to do
    assert len(landscape) == 24
    assert len({trial.settings[RATE] for trial in whole.trials}) == 12


def test_another_seed_is_another_search(landscape: list[Any], tmp_path: Path) -> None:
    one = tune(plan(trials=3), tmp_path / "one")
    other = tune(plan(trials=3, settings=("optimise.seed=1",)), tmp_path / "two")
    assert [trial.settings for trial in one.trials] != [trial.settings for trial in other.trials]


def test_a_trial_that_was_killed_is_tried_again_with_its_settings(
    landscape: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(plan(trials=6), tmp_path / "one")
    score, calls = tuning._score, []

    def killed(*arguments: Any, **more: Any) -> float:
        calls.append(arguments)
        if len(calls) in (2, 3, 5):
            raise KeyboardInterrupt
        return score(*arguments, **more)

    monkeypatch.setattr(tuning, "_score", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            tune(plan(trials=6), tmp_path / "two")
    assert tune(plan(trials=6), tmp_path / "two") == whole
    assert len(calls) == 9


def test_a_grid_is_every_combination_once_however_often_it_is_stopped(landscape: list[Any], tmp_path: Path) -> None:
    for trials in (2, 3, None, None):
        tune(plan(GRID, trials), tmp_path)
    assert len(landscape) == 6
    assert {tuple(asked.values()) for asked in landscape} == {(t, w) for t in (0.1, 0.2, 0.3) for w in (0.1, 0.9)}
    assert plan(GRID, 1000).wanted() == 6
    assert plan(SPACES["lacon-grid"], None).wanted() == 100
    assert plan(SPACE, None).wanted() == 20


def test_a_folder_holds_one_search(landscape: list[Any], tmp_path: Path) -> None:
    tune(plan(trials=1), tmp_path)
    for other, changed in (
        (plan(GRID, 2), "space"),
        (plan(trials=2, settings=("optimise.epochs=2",)), "config"),
        (plan(trials=2, seeds=2), "seeds"),
        (replace(plan(trials=2), train=texts(59)), "data"),
    ):
        with pytest.raises(ConfigError, match=f"settings and texts it began with. Changed: {changed}"):
            tune(other, tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_text("precious")
    with pytest.raises(ConfigError, match="It holds other files"):
        tune(plan(), tmp_path / "mine")


def test_a_trial_that_breaks_off_has_no_score_and_the_search_goes_on(
    landscape: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, calls = tuning._score, []

    def broken(*arguments: Any, **more: Any) -> float:
        calls.append(arguments)
        if len(calls) == 2:
            raise TrainingError("The loss is not a number.")
        return score(*arguments, **more)

    monkeypatch.setattr(tuning, "_score", broken)
    told: list[tuple[Trial, int]] = []
    search = tune(plan(trials=4), tmp_path, told=lambda trial, wanted: told.append((trial, wanted)))
    assert [trial.score is None for trial in search.trials] == [False, True, False, False]
    assert [(trial.number, trial.score, wanted) for trial, wanted in told] == [
        (trial.number, trial.score, 4) for trial in search.trials
    ]


def test_where_every_trial_breaks_off_the_reason_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> float:
        raise ConfigError("`objective.heads` should divide the representation's width (16). Found 3.")

    monkeypatch.setattr(tuning, "_score", broken)
    with pytest.raises(ConfigError, match="should divide"):
        tune(plan(trials=9), tmp_path)


def test_a_full_disk_is_no_fault_of_the_settings(
    landscape: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(plan(trials=3), tmp_path / "one")
    score = tuning._score

    def full(*_: Any, **__: Any) -> float:
        raise TrainingError("The run's folder could not be written.") from OSError("No space left on device")

    monkeypatch.setattr(tuning, "_score", full)
    with pytest.raises(TrainingError, match="could not be written"):
        tune(plan(trials=3), tmp_path / "two")
    monkeypatch.setattr(tuning, "_score", score)
    assert tune(plan(trials=3), tmp_path / "two") == whole


def test_the_best_settings_are_written_as_a_recipe(landscape: list[Any], tmp_path: Path) -> None:
    asked = plan(trials=3, settings=("optimise.seed=4", "data.text=['a']"))
    search = tune(asked, tmp_path)
    tree = tomllib.loads((tmp_path / "best.toml").read_text("utf-8"))
    assert tree["about"] == f"From scl, tuned: validation accuracy {search.best.score:.4f}."
    assert "seed" not in tree["optimise"]
    written, wanted = from_mapping(tree), best_config(asked, search)
    assert replace(written, optimise=replace(written.optimise, seed=4), recipe="scl", about=wanted.about) == wanted
    assert wanted.objective.temperature == search.best.settings[TEMPERATURE]


@pytest.mark.parametrize("field", ["trials", "seeds"])
def test_counts_are_one_or_more(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{field}` should be 1 or more. Found 0"):
        plan(**{"trials": 1, field: 0})


# Training.

QUICK = ("exits.size=16", "optimise.epochs=2", "optimise.batch_size=16")
Make = Callable[..., Plan]


@pytest.fixture
def small(backbone_folder: Path) -> Make:
    def make(trials: int = 2, **more: Any) -> Plan:
        return plan(SPACE, trials, (*QUICK, f"encoder.backbone={backbone_folder}"), **more)

    return make


class Killer(Watch):
    """Ends the process' work at the n-th update, as a signal would."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def step(self, _: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_search_killed_in_training_goes_on_to_the_same_scores(small: Make, tmp_path: Path) -> None:
    whole = tune(small(), tmp_path / "one")
    for updates in (3, 6, 8):
        with pytest.raises(KeyboardInterrupt):
            tune(small(), tmp_path / "two", Killer(updates))
    assert tune(small(), tmp_path / "two") == whole
    kept = {file.name for file in (tmp_path / "two").iterdir()}
    assert kept <= {"tune.db", "best.toml", "importance.svg"}  # no model is left behind


def test_the_score_is_the_mean_over_the_runs_of_a_trial(small: Make, tmp_path: Path) -> None:
    from offramp import Classifier
    from offramp.config import changes

    asked = small(1, seeds=2)
    search = tune(asked, tmp_path)
    scores = []
    for seed in (0, 1):
        config = override(best_config(asked, search), [f"optimise.seed={seed}"])
        scores.append(Classifier("scl", settings=changes(config)).fit_table(asked.train).score)
    assert search.best.score == pytest.approx(sum(scores) / 2, abs=1e-12)


# The picture.


def test_the_picture_has_a_bar_for_each_setting(tmp_path: Path) -> None:
    drawn = importance_bars({TEMPERATURE: 0.75, RATE: 0.25}, "share")
    assert drawn.startswith("<svg ")
    assert all(word in drawn for word in (TEMPERATURE, RATE, "0.75", "0.25", "share"))
    assert drawn == importance_bars({RATE: 0.25, TEMPERATURE: 0.75}, "share")


def test_a_search_writes_the_picture_where_matplotlib_is(
    landscape: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(plan(trials=4), tmp_path / "one")
    assert (tmp_path / "one" / "importance.svg").read_text("utf-8").startswith("<svg ")

    def absent(*_: Any) -> str:
        raise MissingExtra("matplotlib", "plots")

    monkeypatch.setattr(tuning, "importance_bars", absent)
    found: Search = tune(plan(trials=4), tmp_path / "two")
    assert found.importance
    assert not (tmp_path / "two" / "importance.svg").exists()
