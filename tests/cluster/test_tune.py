"""A search on Ray's workers: the trials and scores of one without, in the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kills import killed_once
from tests.conftest import toy_texts

from offramp import trials, tuning
from offramp.cluster.session import Cluster
from offramp.config import load_recipe, override
from offramp.errors import ConfigError, TrainingError
from offramp.preparation import as_table
from offramp.spaces import Range, Space
from offramp.trials import Scored
from offramp.tuning import Plan, tune

pytest.importorskip("optuna", reason="optuna is absent; the extra `tune` brings it")

TEMPERATURE, WEIGHT = "objective.temperature", "objective.weight"
SPACE = Space("", {TEMPERATURE: Range(0.05, 1.0), WEIGHT: Range(0.1, 0.9)})
GRID = Space("", {TEMPERATURE: (0.1, 0.2, 0.3), WEIGHT: (0.1, 0.9)}, grid=True)
QUICK = ("exits.size=16", "optimise.epochs=2", "optimise.batch_size=16", "optimise.checkpoint_steps=2")


def plan(backbone: Path, count: int, space: Space = SPACE) -> Plan:
    config = override(load_recipe("scl"), [*QUICK, f"encoder.backbone={backbone}"])
    return Plan(config, space, as_table(*toy_texts(60), "toy"), trials=count)


@pytest.mark.slow
def test_a_search_goes_on_with_ray_or_without_to_the_same_scores(
    cluster: Cluster, backbone_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(plan(backbone_folder, 4), tmp_path / "here")
    tune(plan(backbone_folder, 1), tmp_path / "first here")
    with monkeypatch.context() as patched:
        patched.setattr(trials, "_there", killed_once(trials._there, tmp_path / "killed"))
        assert tune(plan(backbone_folder, 4), tmp_path / "first here", cluster=cluster) == whole
    assert (tmp_path / "killed").exists()
    tune(plan(backbone_folder, 2), tmp_path / "first there", cluster=cluster)
    assert tune(plan(backbone_folder, 4), tmp_path / "first there") == whole
    kept = {file.name for file in (tmp_path / "first here").iterdir()}
    assert kept <= {"tune.db", "best.toml", "importance.svg"}  # no model is left behind


class Several:
    """Trials of which three are under way at a time, the last of them the first to end."""

    def __init__(self, score: Callable[[Mapping[str, Any]], Scored]) -> None:
        self.score = score
        self.under_way: dict[int, Mapping[str, Any]] = {}
        self.most = 0

    @property
    def room(self) -> bool:
        return len(self.under_way) < 3

    def begin(self, number: int, settings: Mapping[str, Any], home: Path, first: bool) -> None:
        assert first == (number == 0)
        self.under_way[number] = settings
        self.most = max(self.most, len(self.under_way))

    def ended(self) -> tuple[int, Scored]:
        number = max(self.under_way)
        return number, self.score(self.under_way.pop(number))


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Several]:
    def make(score: Callable[[Mapping[str, Any]], Scored]) -> Several:
        made = Several(score)

        @contextmanager
        def instead(*_: Any) -> Iterator[Several]:
            yield made

        monkeypatch.setattr(tuning, "trials", instead)
        return made

    return make


def test_with_several_under_way_a_grid_is_still_every_combination_once(
    several: Callable[..., Several], tmp_path: Path
) -> None:
    made = several(lambda settings: Scored(settings[TEMPERATURE]))
    search = tune(plan(Path("nowhere"), 100, GRID), tmp_path)
    assert made.most == 3
    assert [trial.number for trial in search.trials] == list(range(6))
    assert len({tuple(trial.settings.values()) for trial in search.trials}) == 6
    assert search.best.settings[TEMPERATURE] == 0.3


def test_trials_that_were_under_way_when_a_search_ended_are_gone_on_with(
    several: Callable[..., Several], tmp_path: Path
) -> None:
    def stopped(_: Mapping[str, Any]) -> Scored:
        raise KeyboardInterrupt

    made = several(stopped)
    with pytest.raises(KeyboardInterrupt):
        tune(plan(Path("nowhere"), 5), tmp_path)
    begun = set(made.under_way)
    several(lambda settings: Scored(settings[TEMPERATURE]))
    search = tune(plan(Path("nowhere"), 5), tmp_path)
    assert [trial.number for trial in search.trials] == list(range(5))
    assert begun < {0, 1, 2}


def test_a_fault_that_is_not_the_settings_stops_the_search(several: Callable[..., Several], tmp_path: Path) -> None:
    several(lambda _: Scored(None, TrainingError("The disk is full."), stops=True))
    with pytest.raises(TrainingError, match="The disk is full"):
        tune(plan(Path("nowhere"), 5), tmp_path)


def test_where_every_trial_breaks_off_the_reason_is_raised(several: Callable[..., Several], tmp_path: Path) -> None:
    several(lambda _: Scored(None, ConfigError("`objective.heads` should divide the width.")))
    with pytest.raises(ConfigError, match="should divide"):
        tune(plan(Path("nowhere"), 9), tmp_path)
