"""What a study shows of made-up results: means, the paper's numbers, the best, the test, curves."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.study.tiny import CE, SCL, write_study

from offramp.study.document import as_html, as_markdown
from offramp.study.kinds import Study
from offramp.study.pictures import picture
from offramp.study.plan import Run
from offramp.study.results import write
from offramp.study.runner import load_study, plan
from offramp.study.tables import geometry_table, tables
from offramp.study.views import Shown

SVG = "{http://www.w3.org/2000/svg}"
BASE = {"ce": 0.60, "scl": 0.62, "acl": 0.55, "jt": 0.53}


def score(run: Run) -> float:
    """A made-up score, which every run has for itself."""
    value = run.value if isinstance(run.value, int | float) else 0
    return BASE[run.variant] + 0.01 * run.seed + 0.002 * run.seed * (run.variant == "scl") + 0.001 * value


def record(run: Run, layers: int = 4) -> dict[str, Any]:
    """A result as `perform` would write it."""
    top = score(run)
    trained = range(1, layers + 1) if run.variant in ("acl", "jt") else [layers]
    counts = [0] * 180
    counts[85], counts[95] = 3, 1
    return {
        "key": run.key,
        "variant": run.variant,
        "metrics": {
            "metric": run.metric,
            "score": top,
            "by_exit": {str(depth): top - 0.1 * (layers - depth) for depth in trained},
            "layers": layers,
            "minor_f1": 0.3,
            "major_f1": 0.7,
        },
        "geometry": {"alignment": 0.5, "uniformity": -2.0, "effective_rank": 3.0},
        "cost": {"flops": {str(depth): depth * 10**9 for depth in range(1, layers + 1)}},
        "angles": {"after": {"counts": counts, "mean": 87.5, "above": 0.25}},
        "map": {
            "depth": 3,
            "texts": [[0.0, 1.0], [1.0, 0.0]],
            "labels": [0, 1],
            "anchors": [[0.0, 0.0], [1.0, 1.0]],
            "names": ["no", "yes"],
            "of_label": [10, 10],
            "near_label": [9, 6],
        },
    }


def shown(home: Path, leave: int = 0, **given: Any) -> Shown:
    """A study with made-up results, but for so many at the end."""
    study: Study = load_study(str(write_study(home / "studies", **given)))
    runs = plan(study, "smoke")
    for run in runs[: len(runs) - leave]:
        write(record(run), home / "results" / run.place)
    return Shown.of(study, "smoke", home / "results")


def cells(found: Shown, table: int = 0) -> dict[str, list[str]]:
    return {row.name: [cell.shown for cell in row.cells] for row in tables(found)[table].rows}


def test_scores_are_means_and_deviations_over_seeds_in_percent(tmp_path: Path) -> None:
    found = shown(tmp_path, smoke={"seeds": 3})
    wanted = [100 * score(each.run) for each in found.of_variant("scl")]
    assert cells(found)["CE + SCL"] == [f"{mean(wanted):.1f} ± {stdev(wanted):.1f}"]


def test_the_papers_number_stands_beside_ours_and_the_best_is_marked(tmp_path: Path) -> None:
    printed = [{"variant": "scl", "task": "sst2", "score": 92.1, "deviation": 0.5}]
    found = tables(shown(tmp_path, study={"paper_scores": printed}))[0]
    (row,) = [row for row in found.rows if row.label == "CE + SCL"]
    assert (row.cells[0].paper, row.cells[0].best) == ("paper 92.1 ± 0.5", True)


def test_what_the_paper_prints_of_other_tasks_and_methods_stands_in_a_table_of_its_own(tmp_path: Path) -> None:
    printed = [
        {"variant": "scl", "task": "sst2", "score": 92.1},
        {"variant": "scl", "task": "rte", "score": 66.2, "deviation": 0.8},
        {"variant": "acl", "task": "sst2", "score": 92.7},
    ]
    acl = {"recipe": "acl", "label": "ACL", "only": ["paper"]}
    found = shown(tmp_path, study={"paper_scores": printed}, ce=CE, scl=SCL, acl=acl)
    assert tables(found)[1].head == ("", "rte", "sst2")
    assert cells(found, 1) == {"ACL": ["–", "92.7"], "CE + SCL": ["66.2 ± 0.8", "–"]}
    assert "in brackets" in as_markdown(found)
    less = {**SCL, "scales": {"smoke": {"tasks": ["sst2"]}}}
    both = shown(
        tmp_path / "both", study={"paper_scores": printed[:2]}, smoke={"tasks": ["rte", "sst2"]}, ce=CE, scl=less
    )
    assert [grid.title for grid in tables(both)] == ["", ""]  # the number stands beside the cell that is empty
    assert "– (paper 66.2 ± 0.8)" in as_markdown(both)
    other = shown(tmp_path / "other", study={"paper_scores": printed[1:2]})
    assert cells(other, 1) == {"CE + SCL": ["66.2 ± 0.8"]}
    assert "in brackets" not in as_markdown(other)


def test_a_row_of_several_scores_has_no_mark_of_a_test_in_one_of_them(tmp_path: Path) -> None:
    several = {"metric": ["minor_f1", "major_f1"]}
    found = shown(tmp_path, study=several, smoke={"seeds": 6})
    for each in found.of_variant("scl"):
        each.record["metrics"]["minor_f1"] += 0.1 + 0.01 * each.run.seed
    assert list(cells(found, 0)) == ["CE", "CE + SCL"]
    assert list(cells(found, 1)) == ["CE + SCL ▲"]


def test_several_tasks_have_a_mean_only_where_all_are_there(tmp_path: Path) -> None:
    found = shown(tmp_path, 1, smoke={"tasks": ["rte", "sst2"]})
    assert tables(found)[0].head == ("", "rte (accuracy)", "sst2 (accuracy)", "mean")
    assert cells(found) == {"CE": ["60.0", "60.0", "60.0"], "CE + SCL": ["62.0", "–", "–"]}
    assert "3 of 4 runs made so far" in as_markdown(found)


def test_a_sweep_has_a_table_per_task_and_a_column_per_value(tmp_path: Path) -> None:
    axis = {"field": "data.cap", "name": "texts"}
    found = tables(shown(tmp_path, study={"axis": axis}, smoke={"tasks": ["rte", "sst2"], "values": [8, 16]}))
    assert [grid.title for grid in found[:2]] == ["rte (accuracy), by texts", "sst2 (accuracy), by texts"]
    assert found[0].head == ("", "8", "16", "mean")


def test_six_pairs_in_one_direction_are_significant_and_marked(tmp_path: Path) -> None:
    found = shown(tmp_path, smoke={"seeds": 6}, ce=CE, scl=SCL, acl={"recipe": "acl", "label": "ACL", "order": 3})
    assert list(cells(found)) == ["CE", "CE + SCL", "ACL"]  # p is 1/32 for each, 1/16 after Holm's correction
    found = shown(tmp_path / "two", smoke={"seeds": 6}, ce=CE, acl={"recipe": "acl", "label": "ACL"})
    assert list(cells(found)) == ["ACL ▼", "CE"]
    assert cells(found, 1) == {"ACL ▼": ["-5.00", "6", "p = 0.031"]}


@pytest.mark.parametrize("study", [{"view": "layers"}, {"axis": {"field": "data.cap", "name": "texts"}}])
def test_a_test_over_all_tasks_marks_no_table_of_one(tmp_path: Path, study: dict[str, Any]) -> None:
    acl = {"recipe": "acl", "label": "ACL", "order": 1}
    values = {"values": [8, 16]} if "axis" in study else {}
    given = {"study": {**study, "baseline": "acl"}, "acl": acl, "jt": {**acl, "label": "JT", "order": 2}}
    several = shown(tmp_path, smoke={"tasks": ["rte", "sst2"], "seeds": 3, **values}, **given)
    assert [list(cells(several, table)) for table in range(3)] == [["ACL", "JT"], ["ACL", "JT"], ["JT ▼"]]
    single = shown(tmp_path / "one", smoke={"seeds": 6, **values}, **given)
    assert [list(cells(single, table)) for table in range(2)] == [["ACL", "JT ▼"], ["JT ▼"]]


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        ("scores", ["52.0"]),
        ("layers", ["52.0"] * 5),
        ("angles", ["–"] * 4 + ["52.0"]),
        ("map", ["52.0"] + ["–"] * 4),
    ],
)
def test_every_view_tells_what_an_answer_without_a_look_scores(tmp_path: Path, view: str, wanted: list[str]) -> None:
    found = shown(tmp_path, study={"view": view}, acl={"recipe": "acl", "label": "ACL"}, ce=CE)
    for each in found.results:
        each.record["metrics"]["always"] = 0.52
    assert cells(found)["always the same label"] == wanted


def test_few_seeds_are_said_to_be_too_few(tmp_path: Path) -> None:
    found = shown(tmp_path, smoke={"seeds": 2})
    assert cells(found, 1) == {"CE + SCL": ["+2.10", "2", "too few pairs for a test (2 that differ, it takes 6)"]}


@pytest.mark.parametrize(("exit", "wanted"), [("last", 55.0), ("half", 35.0), ("mean", 40.0), (1, 25.0)])
def test_the_exit_that_a_study_names_is_scored(tmp_path: Path, exit: str | int, wanted: float) -> None:
    found = shown(tmp_path, study={"exit": exit, "baseline": ""}, acl={"recipe": "acl"})
    assert found.score(found.results[0]) == pytest.approx(wanted, abs=1e-9)


def test_where_models_differ_in_cost_it_is_a_column(tmp_path: Path) -> None:
    found = shown(tmp_path, ce=CE, acl={"recipe": "acl", "exit": "half", "order": 2})
    assert tables(found)[0].head[-1] == "GFLOPs per text"
    assert [row.cells[-1].shown for row in tables(found)[0].rows] == ["4.00", "2.00"]


def test_costs_are_compared_on_the_tasks_that_all_models_run_on(tmp_path: Path) -> None:
    half = {"recipe": "acl", "exit": "half", "order": 2, "scales": {"smoke": {"tasks": ["sst2"]}}}
    found = shown(tmp_path, smoke={"tasks": ["rte", "sst2"]}, ce=CE, acl=half)
    for each in found.of_variant("ce"):
        if each.run.task == "rte":
            each.record["cost"]["flops"]["4"] *= 3  # longer texts
    table = tables(found)[0]
    assert table.head[-1] == "GFLOPs per text (sst2)"
    assert [row.cells[-1].shown for row in table.rows] == ["4.00", "2.00"]


def test_costs_are_those_of_equal_tasks_while_runs_are_missing(tmp_path: Path) -> None:
    found = shown(tmp_path, 1, smoke={"tasks": ["rte", "sst2"], "seeds": 2}, ce=CE, scl=SCL)
    for each in found.results:
        if each.run.task == "rte":
            each.record["cost"]["flops"]["4"] *= 3  # longer texts
    assert [len(found.of_variant(name)) for name in ("ce", "scl")] == [4, 3]
    assert [found.gigaflops(name) for name in ("ce", "scl")] == [8.0, 8.0]


def test_layers_are_columns_and_a_model_of_one_exit_has_one_number(tmp_path: Path) -> None:
    found = shown(tmp_path, study={"view": "layers"}, ce=CE, acl={"recipe": "acl", "label": "ACL", "order": 2})
    assert cells(found) == {"CE": ["–", "–", "–", "60.0", "–"], "ACL": ["25.0", "35.0", "45.0", "55.0", "40.0"]}


def test_a_task_without_a_result_has_empty_layers(tmp_path: Path) -> None:
    acl = {"recipe": "acl", "label": "ACL"}
    found = shown(tmp_path, 1, study={"view": "layers", "baseline": ""}, smoke={"tasks": ["rte", "sst2"]}, acl=acl)
    assert cells(found, 1) == {"ACL": ["–"]}


def test_where_every_depth_is_shown_their_mean_is_compared(tmp_path: Path) -> None:
    variants = {name: {"recipe": "acl", "label": name, "order": place} for place, name in enumerate(("acl", "jt"))}
    found = shown(tmp_path, study={"view": "layers", "baseline": "acl"}, **variants, ce={**CE, "order": 3})
    comparison = tables(found)[1]
    assert comparison.head[0] == "mean over exits, against acl"
    # A model of one exit is compared with no mean over several.
    assert [(row.name, row.cells[0].shown) for row in comparison.rows] == [("jt", "-2.00")]


def test_angles_and_maps_have_tables_of_their_own(tmp_path: Path) -> None:
    assert cells(shown(tmp_path / "a", study={"view": "angles"}))["CE"] == ["87.5", "25.0", "–", "–", "60.0"]
    assert cells(shown(tmp_path / "m", study={"view": "map"}))["CE"] == ["60.0", "75.0", "0.50", "-2.00", "3.00"]


def test_geometry_is_a_table_over_all_runs(tmp_path: Path) -> None:
    rows = geometry_table(shown(tmp_path, smoke={"seeds": 2})).rows
    assert [cell.shown for cell in rows[0].cells] == ["0.50 ± 0.00", "-2.00 ± 0.00", "3.00 ± 0.00"]


VIEWS: dict[str, dict[str, Any]] = {
    "scores": {},
    "layers": {},
    "angles": {},
    "map": {},
    "curve": {"study": {"axis": {"field": "data.cap", "name": "texts"}}, "smoke": {"values": [8, 16]}},
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_a_picture_and_a_page(tmp_path: Path, view: str) -> None:
    given = {**VIEWS[view], "study": {**VIEWS[view].get("study", {}), "view": view}}
    found = shown(tmp_path, **given, ce=CE, acl={"recipe": "acl", "label": "ACL"})
    words = [element.text or "" for element in ElementTree.fromstring(picture(found).svg()).iter(f"{SVG}text")]
    assert any("ACL" in word for word in words)
    assert as_html(found).count("<svg") == 1
    assert as_markdown(found).startswith("## tiny\n\nACL, Table 9: What is asked?")


def test_variants_that_sweep_different_fields_have_a_panel_each(tmp_path: Path) -> None:
    swept = {"ce": "objective.temperature", "scl": "objective.weight"}
    common = {**CE, "values": [0.1, 0.5]}
    variants = {name: {**common, "label": name, "axis": {"field": field}} for name, field in swept.items()}
    found = shown(tmp_path, study={"view": "curve", "baseline": ""}, **variants)
    assert [grid.title for grid in tables(found)] == [f"sst2 (accuracy), by {field}" for field in swept.values()]
    words = [element.text for element in ElementTree.fromstring(picture(found).svg()).iter(f"{SVG}text")]
    assert {f"sst2 (accuracy), {field}" for field in swept.values()} <= set(words)


def test_results_of_other_settings_are_not_shown(tmp_path: Path) -> None:
    shown(tmp_path)
    changed = load_study(str(write_study(tmp_path / "studies", smoke={"test_cap": 7})))
    assert Shown.of(changed, "smoke", tmp_path / "results").results == []


def test_several_scores_of_one_run_are_columns(tmp_path: Path) -> None:
    printed = [{"variant": "ce", "task": "sst2", "metric": "major_f1", "score": 71.8}]
    found = shown(tmp_path, study={"metric": ["minor_f1", "major_f1"], "paper_scores": printed})
    table, comparison = tables(found)
    assert all(row.mark == "" for row in table.rows)
    assert comparison.head[0] == "F1 of the rarest label, against CE"
    assert table.head == ("", "sst2 (F1 of the rarest label)", "sst2 (F1 of the most frequent label)", "mean")
    assert [(cell.shown, cell.paper) for cell in table.rows[0].cells] == [
        ("30.0", ""),
        ("70.0", "paper 71.8"),
        ("50.0", ""),
    ]
