"""What a study's files say is read; what is wrong in them is named, with the near names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.study.tiny import CE, QUICK, SCL, write_study

from offramp.errors import ConfigError
from offramp.study.files import load_study
from offramp.study.kinds import Axis, PaperScore, Probe


def scales(**changes: Any) -> dict[str, Any]:
    """Three scales, one of them changed."""
    plain = {"tasks": ["rte"], "seeds": 2}
    return {"scales": {"smoke": {**plain, **changes}, "cpu": plain, "paper": plain}}


def test_a_study_is_read_from_its_folder(tmp_path: Path) -> None:
    printed = [{"variant": "scl", "task": "rte", "score": 65.8, "deviation": 0.84}]
    study = load_study(str(write_study(tmp_path, study={"paper_scores": printed, "note": "Differs."})))
    assert (study.name, study.paper, study.place, study.view) == ("tiny", "ACL", "Table 9", "scores")
    assert [(variant.name, variant.label) for variant in study.variants] == [("ce", "CE"), ("scl", "CE + SCL")]
    assert study.paper_scores == (PaperScore("scl", "rte", 65.8, None, 0.84),)
    assert study.scale("smoke").settings == QUICK


def test_variants_stand_in_their_order_and_then_by_name(tmp_path: Path) -> None:
    folder = write_study(tmp_path, study={"baseline": ""}, b=SCL, a=SCL, c=CE)
    assert [variant.name for variant in load_study(str(folder)).variants] == ["c", "a", "b"]


def test_seeds_are_a_count_or_a_list(tmp_path: Path) -> None:
    study = load_study(str(write_study(tmp_path, study=scales(seeds=[3, 5]))))
    assert (study.scale("smoke").seeds, study.scale("cpu").seeds) == ((3, 5), (0, 1))


def test_a_dotted_field_may_stand_without_quotes(tmp_path: Path) -> None:
    folder = write_study(tmp_path)
    text = (folder / "study.toml").read_text("utf-8").replace('"data.cap" = 24', "data.cap = 24")
    (folder / "study.toml").write_text(text, "utf-8")
    assert load_study(str(folder)).scale("smoke").settings["data.cap"] == 24


def test_an_axis_sweeps_one_field_or_several(tmp_path: Path) -> None:
    one = {"field": "data.cap", "name": "texts"}
    several = {"field": ["objective.weight", "stage2.weight"]}
    for name, axis, wanted in (
        ("one", one, Axis(("data.cap",), "texts")),
        ("several", several, Axis(("objective.weight", "stage2.weight"), "objective.weight")),
    ):
        folder = write_study(tmp_path, name, {"axis": axis}, {"values": [1, 2]})
        assert load_study(str(folder)).axis == wanted


def test_a_variant_has_its_own_axis_probe_exit_and_part_of_a_scale(tmp_path: Path) -> None:
    part = {"set": {"optimise.epochs": 7}, "tasks": ["rte"], "seeds": 3, "values": [2]}
    own = {"axis": {"field": "objective.heads"}, "probe": {"objective": "acl"}, "exit": "half", "scales": {"cpu": part}}
    folder = write_study(tmp_path, study={"baseline": ""}, a={**CE, **own, "values": [1]})
    (variant,) = load_study(str(folder)).variants
    assert (variant.axis, variant.probe) == (Axis(("objective.heads",), "objective.heads"), Probe("acl", 400))
    assert (variant.exit, variant.part("smoke").values) == ("half", (1,))
    assert (variant.part("cpu").seeds, variant.part("cpu").values) == ((0, 1, 2), (2,))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a key": ({"study": {"vew": "map"}}, "`vew` is not a known key of tiny/study.toml. Did you mean 'view'"),
    "a view": ({"study": {"view": "layer"}}, "`layer` is not a known value of `view`.*'layers'"),
    "a metric": ({"study": {"metric": "acuracy"}}, "'accuracy'"),
    "an exit": ({"study": {"exit": "halve"}}, "`halve`.*'half'"),
    "a task": ({"smoke": {"tasks": ["sst-2"]}}, "`sst-2` is not a known task in tiny/study.toml.*'sst2'"),
    "no task": ({"smoke": {"tasks": []}}, "should name its tasks"),
    "a scale": ({"study": {"scales": {"smok": {}}}}, "`smok`.*'smoke'"),
    "a scale that lacks": ({"study": {"scales": {"smoke": {"tasks": ["rte"]}}}}, "Missing: cpu, paper"),
    "a field": ({"smoke": {"set": {"data.kap": 3}}}, "`data.kap` is not a known field.*'data.cap'"),
    "a field of a task": ({"smoke": {"tasks_set": {"rte": {"data.kap": 3}}}}, "'data.cap'"),
    "a task with seeds": ({"a": {**CE, "scales": {"cpu": {"tasks_seeds": {"rtee": 2}}}}}, "`rtee`.*'rte'"),
    "a task that is set": ({"smoke": {"tasks_set": {"rtee": {}}}}, "`rtee` is not a known task.*'rte'"),
    "seeds": ({"smoke": {"seeds": [1, 1]}}, "`seeds`.*different whole numbers"),
    "no seed": ({"smoke": {"seeds": 0}}, "`seeds`"),
    "data": ({"smoke": {"data": "draw"}}, "'drawn'"),
    "the baseline": ({"study": {"baseline": "c"}}, "`c` is not a known variant, which tiny/study.toml names"),
    "a kind": ({"study": {"about": 3}}, "`about` in tiny/study.toml should be a text. Found 3"),
    "what lacks": ({"study": {"about": None}}, "tiny/study.toml should have `about`"),
    "values without an axis": ({"smoke": {"values": [1]}}, "values without an .axis."),
    "an axis without values": ({"study": {"axis": {"field": "data.cap"}}}, "an .axis. without values"),
    "a curve without an axis": ({"study": {"view": "curve"}}, "should have an .axis."),
    "the field of an axis": ({"study": {"axis": {"field": "data.kap"}}}, "'data.cap'"),
    "a paper's variant": (
        {"study": {"paper_scores": [{"variant": "sc", "task": "rte", "score": 1.0}]}},
        "`sc` is not a known value of `variant` in tiny/study.toml `paper_scores` number 1.*'scl'",
    ),
    "a recipe": ({"ce": {"recipe": "ces"}}, "`ces` is not a known recipe in tiny/ce.toml.*'ce'"),
    "no recipe": ({"ce": {"label": "x"}}, "tiny/ce.toml should have `recipe`"),
    "a table": ({"ce": {**CE, "optimize": {}}}, "`optimize` is not a known key of tiny/ce.toml.*'optimise'"),
    "a scale of a variant": ({"ce": {**CE, "only": ["cpus"]}}, "`cpus` is not a known scale in tiny/ce.toml"),
    "a task before": ({"ce": {**CE, "backbone_after": {"task": "sst", "recipe": "ce"}}}, "'sst2'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_with_what_is_wrong_in_it(tmp_path: Path, what: str) -> None:
    given, words = WRONG[what]
    folder = write_study(tmp_path, **{"ce": CE, "scl": SCL, **given})
    with pytest.raises(ConfigError, match=words):
        load_study(str(folder))


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    folder = write_study(tmp_path)
    (folder / "scl.toml").write_text("recipe = ", "utf-8")
    with pytest.raises(ConfigError, match=r"tiny/scl.toml should be TOML"):
        load_study(str(folder))


def test_a_study_that_is_not_there_is_refused_with_the_near_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`acl-tabel1` is not a known study.*'acl-table1'"):
        load_study("acl-tabel1")
    with pytest.raises(ConfigError, match=r"should hold `study.toml`"):
        load_study(str(tmp_path))


def test_a_study_without_variants_is_refused(tmp_path: Path) -> None:
    folder = write_study(tmp_path)
    for file in ("ce.toml", "scl.toml"):
        (folder / file).unlink()
    with pytest.raises(ConfigError, match="a file for each variant"):
        load_study(str(folder))
