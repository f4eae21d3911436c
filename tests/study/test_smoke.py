"""Every study that ships resolves at every scale, and runs at the smallest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from tests.study.tiny import CE, write_study

from offramp.data.tasks import TASKS
from offramp.optimise.coherence import check
from offramp.study import runner as study
from offramp.study.kinds import SCALES
from offramp.study.pictures import picture
from offramp.study.tables import tables
from offramp.study.views import Shown

NAMES = study.studies()
SPEC = {
    *(f"acl-{name}" for name in ("fig2", "table1", "fig3", "table2", "table3", "fig6")),
    *(f"scl-{name}" for name in ("table2", "table3", "table4", "table5", "table7", "fig2")),
    *(f"lacon-table{number}" for number in range(2, 8)),
    *(f"lacon-fig{number}" for number in range(2, 7)),
}
"""The tables and figures that are promised."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_table_and_figure_that_is_promised_is_a_study() -> None:
    assert set(NAMES) >= SPEC


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_a_study_resolves_at_every_scale_to_settings_that_go_together(name: str, scale: str) -> None:
    runs = study.plan(study.load_study(name), scale)
    for run in runs:
        check(run.config)
        if run.before is not None:
            check(run.before.config)
    assert {run.task for run in runs} <= set(TASKS)


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_numbers_stand_where_a_run_is(name: str) -> None:
    found = study.load_study(name)
    places = {(run.variant, run.task, run.value) for scale in SCALES for run in study.plan(found, scale)}
    assert {(score.variant, score.task, score.value) for score in found.paper_scores} <= places


@pytest.mark.parametrize("name", NAMES)
def test_a_chinese_task_has_a_chinese_backbone_at_the_paper_scale(name: str) -> None:
    for run in study.plan(study.load_study(name), "paper"):
        if TASKS[run.task].chinese:
            assert run.config.encoder.backbone == "bert-base-chinese"


@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_at_the_scale_smoke(name: str, tmp_path: Path) -> None:
    found = study.load_study(name)
    ended = study.run(found, "smoke", tmp_path, threads=1)
    assert ended.left == 0
    shown = Shown.of(found, "smoke", tmp_path)
    assert len(shown.results) == ended.runs
    assert all(grid.markdown() and grid.html() for grid in tables(shown))
    ElementTree.fromstring(picture(shown).svg())


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.chinese and name != "cmnli"])
def test_real_chinese_texts_are_learnt_from_with_a_tokenizer_made_of_them(
    name: str, tmp_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFRAMP_DATA", str(real_data))
    few = {"data.cap": max(24, 2 * len(TASKS[name].labels)), "data.max_length": 24, "optimise.epochs": 1}
    smoke = {"tasks": [name], "data": "real", "test_cap": max(24, len(TASKS[name].labels)), "set": few}
    found = study.load_study(str(write_study(tmp_path / "studies", smoke=smoke, ce=CE)))
    assert study.run(found, "smoke", tmp_path / "results", threads=1).made == 1
    (result,) = study.results(found, "smoke", tmp_path / "results")
    metrics = result.record["metrics"]
    assert (metrics["n_train"] + metrics["n_validation"], metrics["n_test"]) == (few["data.cap"], smoke["test_cap"])
