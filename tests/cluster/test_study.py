"""A study on Ray's workers ends with the results of one left alone, also when a worker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.kills import killed_once
from tests.study.tiny import CE, QUICK, SCL, names, timeless, write_study

from offramp.cluster.session import Cluster
from offramp.errors import DataError
from offramp.study import jobs
from offramp.study import runner as study


@pytest.mark.slow
def test_the_results_are_those_of_one_process_although_a_worker_is_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = study.load_study(str(write_study(tmp_path / "studies", smoke={"set": QUICK, "seeds": 2}, ce=CE, scl=SCL)))
    study.run(found, "smoke", tmp_path / "here", threads=1)
    monkeypatch.setattr(jobs, "_work", killed_once(jobs._work, tmp_path / "killed"))
    ended = study.run(found, "smoke", tmp_path / "there", cluster=cluster)
    assert (ended.made, ended.left) == (4, 0)
    assert (tmp_path / "killed").exists()
    assert names(tmp_path / "there") == names(tmp_path / "here")
    for name in names(tmp_path / "here"):
        assert timeless(tmp_path / "there" / name) == timeless(tmp_path / "here" / name)
    again = study.run(found, "smoke", tmp_path / "there", cluster=cluster)
    assert (again.made, again.there) == (0, 4)


@pytest.mark.slow
def test_a_fault_of_the_caller_is_told_with_the_name_of_the_run(cluster: Cluster, tmp_path: Path) -> None:
    folder = write_study(tmp_path / "studies", smoke={"backbone": "./nowhere"}, ce=CE)
    with pytest.raises(DataError, match="nowhere"):
        study.run(study.load_study(str(folder)), "smoke", tmp_path / "there", cluster=cluster)
