"""A short version of `make faults`: kills, damaged folders, damaged runs and damaged data files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import files, folders
from tests.faults.isolated import CRASHED, outcomes
from tests.faults.kills import REFUSED, SAME, Kills
from tests.faults.small import Small
from tests.optimise.runs import Runs


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def kills(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kills]:
    home = tmp_path_factory.mktemp("kills")
    runs = Runs(home)
    yield Kills(small, runs, home)
    runs.close()


def test_damaged_data_files_give_examples_or_an_error_of_ours(tmp_path: Path) -> None:
    bad = [found for found in files.damaged_files(200, tmp_path) if found[2] not in files.GOOD]
    assert not bad


def test_damaged_model_folders_load_as_they_were_or_are_refused(small: Small, tmp_path: Path) -> None:
    found = list(folders.damaged_folders(60, small, tmp_path, exported=False))
    assert not [each for each in found if each[2] not in folders.GOOD]
    assert {outcome for _, _, outcome in found} >= {folders.REFUSED}


def test_killed_runs_end_with_the_same_bits(kills: Kills) -> None:
    chains = list(kills.chains(4, ("two-stage", "joint")))
    assert sum(len(places) for _, places, _ in chains) >= 4
    assert [end for _, _, end in chains] == [SAME] * len(chains)


@pytest.mark.slow
def test_killed_runs_of_every_strategy_end_with_the_same_bits(kills: Kills) -> None:
    chains = list(kills.chains(8, ("single", "alternating"), seed=1))
    assert [end for _, _, end in chains] == [SAME] * len(chains)


def test_damaged_runs_are_resumed_to_the_same_bits_or_refused(kills: Kills) -> None:
    ends = [end for _, end in kills.damaged(4, "two-stage", seed=1)]
    assert set(ends) <= {SAME, REFUSED}


def test_a_crash_is_an_outcome_and_not_the_end() -> None:
    """The harness would notice."""

    def attempt(number: int) -> tuple[str, str]:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return "kind", "fine"

    found = list(outcomes(5, attempt))
    assert [outcome for _, _, outcome in found] == ["fine", "fine", f"{CRASHED} (-9)", "fine", "fine"]
    assert [number for number, _, _ in found] == [0, 1, 2, 3, 4]
