"""A plan resolves every run in the order that is promised, and its key tells runs apart by what they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.study.tiny import CE, QUICK, SCL, write_study

from offramp.config import load_recipe
from offramp.errors import ConfigError
from offramp.study.files import load_study
from offramp.study.plan import Run, plan


def runs(home: Path, scale: str = "smoke", **given: Any) -> list[Run]:
    return plan(load_study(str(write_study(home, **given))), scale)


def test_every_variant_task_value_and_seed_is_a_run_with_a_name_of_its_own(tmp_path: Path) -> None:
    found = runs(
        tmp_path,
        study={"axis": {"field": "data.cap"}},
        smoke={"tasks": ["rte", "sst2"], "seeds": 3, "values": [8, 16]},
    )
    assert len({run.name for run in found}) == len(found) == 2 * 2 * 2 * 3
    assert found[0].place == "tiny/smoke/ce--rte--8--s0.json"


def test_a_whole_seed_comes_before_the_next(tmp_path: Path) -> None:
    assert [run.seed for run in runs(tmp_path, smoke={"seeds": [4, 1]})] == [1, 1, 4, 4]


def test_the_later_setting_stands_over_the_earlier(tmp_path: Path) -> None:
    """The recipe, the variant's tables, the scale's, the variant's at the scale, the task's, the axis, the seed."""
    steps = [
        ({}, load_recipe("scl").optimise.epochs),
        ({"scl": {**SCL, "optimise": {"epochs": 21}}}, 21),
        ({"smoke": {"set": {"optimise.epochs": 22}}}, 22),
        ({"scl": {**SCL, "optimise": {"epochs": 21}, "scales": {"smoke": {"set": {"optimise.epochs": 23}}}}}, 23),
        ({"smoke": {"set": {"optimise.epochs": 22}, "tasks_set": {"sst2": {"optimise.epochs": 24}}}}, 24),
        ({"study": {"axis": {"field": "optimise.epochs"}}}, 25),
    ]
    given: dict[str, Any] = {"smoke": {"set": {}}, "scl": SCL, "study": {"baseline": ""}}
    for place, (change, epochs) in enumerate(steps):
        given = {key: {**given.get(key, {}), **change.get(key, {})} for key in {*given, *change}}
        if "axis" in given["study"]:
            given["smoke"] = {**given["smoke"], "values": [25]}
        (run,) = runs(tmp_path / str(place), **given)
        assert run.config.optimise.epochs == epochs, change


def test_the_seed_stands_over_everything(tmp_path: Path) -> None:
    found = runs(tmp_path, smoke={"seeds": [5], "set": {**QUICK, "optimise.seed": 9}})
    assert {run.config.optimise.seed for run in found} == {5}


def test_a_variant_has_its_own_backbone_and_else_that_of_the_scale(tmp_path: Path) -> None:
    given = {"study": {"baseline": ""}, "smoke": {"set": {}}}
    found = runs(tmp_path, **given, a=CE, b={**CE, "encoder": {"backbone": "roberta-base"}})
    assert [run.config.encoder.backbone for run in found] == ["drawn", "roberta-base"]


def test_the_paper_scale_starts_from_the_papers_recipe(tmp_path: Path) -> None:
    given: dict[str, Any] = {"smoke": {"set": {}}, "ce": {**CE, "paper_recipe": "ce-paper"}}
    assert [run.config.recipe for run in runs(tmp_path, "paper", **given)] == ["ce-paper"]
    assert [run.config.recipe for run in runs(tmp_path, "cpu", **given)] == ["ce"]


def test_the_epoch_is_chosen_by_the_score_that_is_shown(tmp_path: Path) -> None:
    tasks = {"tasks": ["cola", "mrpc", "rte"]}
    found = runs(tmp_path, smoke=tasks, ce=CE)
    assert [run.metric for run in found] == ["mcc", "f1", "accuracy"]
    assert [run.config.optimise.metric for run in found] == ["mcc", "f1", "accuracy"]
    found = runs(tmp_path, smoke=tasks, ce=CE, study={"metric": "accuracy", "metrics": {"cola": "macro_f1"}})
    assert [run.metric for run in found] == ["macro_f1", "accuracy", "accuracy"]


def test_a_variant_takes_part_where_it_says(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "study": {"baseline": "", "axis": {"field": "data.cap"}},
        "smoke": {"tasks": ["rte", "sst2"], "values": [8, 16], "seeds": 2},
        "everywhere": CE,
        "never": {**CE, "skip": ["smoke"]},
        "elsewhere": {**CE, "only": ["paper"]},
        "once": {**CE, "tasks": ["rte"], "scales": {"smoke": {"values": [16], "seeds": [1]}}},
    }
    found = runs(tmp_path, **given)
    assert {run.variant for run in found} == {"everywhere", "once"}
    assert [(run.task, run.value, run.seed) for run in found if run.variant == "once"] == [("rte", 16, 1)]
    assert "elsewhere" in {run.variant for run in runs(tmp_path, "paper", **given)}


def test_a_variant_has_seeds_of_its_own_on_a_task(tmp_path: Path) -> None:
    part = {"seeds": [4], "tasks_seeds": {"rte": 3}}
    own = {**CE, "scales": {"smoke": part}}
    found = runs(tmp_path, study={"baseline": ""}, smoke={"tasks": ["rte", "sst2"], "seeds": 2}, all=CE, own=own)
    seeds = [(run.variant, run.task, run.seed) for run in found]
    assert sorted(seeds) == [
        *[("all", task, seed) for task in ("rte", "sst2") for seed in (0, 1)],
        *[("own", "rte", seed) for seed in (0, 1, 2)],
        ("own", "sst2", 4),
    ]


def test_the_first_of_two_trainings_has_its_own_recipe_and_settings(tmp_path: Path) -> None:
    before = {"task": "rte", "recipe": "scl", "set": {"optimise.epochs": 5}}
    smoke = {"set": {"data.cap": 20}, "tasks_set": {"rte": {"data.cap": 30}, "sst2": {"data.cap": 40}}, "seeds": [2]}
    variant = {**CE, "backbone_after": before, "data": {"cutoff": 0.3}}
    (run,) = runs(tmp_path, smoke=smoke, study={"baseline": ""}, a=variant)
    assert run.before is not None
    first = run.before.config
    assert (first.objective.name, first.data.cap, first.optimise.epochs, first.optimise.seed) == ("scl", 30, 5, 2)
    assert first.data.cutoff != run.config.data.cutoff == 0.3  # the variant's own tables are the second's


def test_the_key_does_not_know_who_asks(tmp_path: Path) -> None:
    first = runs(tmp_path, name="one", study={"baseline": "", "place": "Table 1"}, a=CE)[0]
    other = runs(tmp_path, name="two", study={"baseline": "", "note": "x"}, b={**CE, "label": "other"})[0]
    assert (first.key, first.place) != (other.key, other.place)[::-1]
    assert first.key == other.key


def test_the_key_does_not_depend_on_the_recipes_name(tmp_path: Path) -> None:
    run = runs(tmp_path)[0]
    assert replace(run, config=replace(run.config, recipe="another", about="x")).key == run.key


CHANGES: dict[str, dict[str, Any]] = {
    "a setting": {"smoke": {"set": {**QUICK, "optimise.epochs": 3}}},
    "the task": {"smoke": {"tasks": ["rte"]}},
    "the seed": {"smoke": {"seeds": [1]}},
    "the data": {"smoke": {"data": "real"}},
    "the backbone": {"smoke": {"backbone": "minilm-l6"}},
    "how many are scored": {"smoke": {"test_cap": 10}},
    "how many validate": {"smoke": {"validation_cap": 10}},
    "that training texts are scored": {"smoke": {"held_out": 10}},
    "the metric": {"study": {"metric": "mcc"}},
    "what is recorded": {"study": {"view": "angles"}},
    "the probe": {"study": {"view": "angles", "probe": {"objective": "acl"}}},
    "the map": {"study": {"view": "map"}},
    "the map's exit": {"study": {"view": "map", "exit": 2}},
    "what comes before": {"ce": {**CE, "backbone_after": {"task": "rte", "recipe": "ce"}}},
}


def test_whatever_a_run_does_otherwise_is_in_its_key(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"ce": CE}
    keys = {what: runs(tmp_path, **{**plain, **change})[0].key for what, change in {"": {}, **CHANGES}.items()}
    assert len(set(keys.values())) == len(keys)


def test_a_value_that_the_field_cannot_have_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tiny/ce.toml at the scale `smoke`, task `sst2`: `optimise.epochs` should"):
        runs(tmp_path, smoke={"set": {"optimise.epochs": 0}})


def test_a_scale_without_runs_and_an_unknown_scale_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="should have runs at the scale `smoke`"):
        runs(tmp_path, ce={**CE, "only": ["paper"]})
    with pytest.raises(ConfigError, match=r"`smokey` is not a known scale.*'smoke'"):
        runs(tmp_path, "smokey")
