"""Running a study makes what is missing and nothing else, to the same bits each time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.study.tiny import CE, QUICK, SCL, names, timeless, write_study

from offramp.config import from_mapping
from offramp.data.sources import Table
from offramp.data.tasks import TASKS
from offramp.errors import ConfigError, DataError, TrainingError
from offramp.study import data as study_data
from offramp.study import run as study_run
from offramp.study import runner as study
from offramp.study.data import Texts, texts_of
from offramp.study.drawn import drawn_table
from offramp.study.kinds import Study
from offramp.study.results import WORK


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: a second thread only waits for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Made:
    """A study that was run, and what was said of it."""

    study: Study
    results: Path
    ended: study.Ended
    said: list[str]

    def again(self, **how: Any) -> tuple[study.Ended, list[str]]:
        said: list[str] = []
        return study.run(self.study, "smoke", self.results, threads=1, say=said.append, **how), said

    def file(self, name: str) -> Path:
        return self.results / "tiny" / "smoke" / f"{name}.json"


def make(home: Path, results: Path | None = None, name: str = "tiny", **given: Any) -> Made:
    found = study.load_study(str(write_study(home / "studies", name, **given)))
    folder, said = results or home / "results", []
    ended = study.run(found, "smoke", folder, threads=1, say=said.append)
    return Made(found, folder, ended, said)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """CE and SCL, two seeds each; no test may leave it changed."""
    return make(tmp_path_factory.mktemp("finished"), smoke={"seeds": 2})


def test_every_run_of_the_plan_has_its_file(finished: Made) -> None:
    runs = [f"tiny/smoke/{variant}--sst2--s{seed}.json" for variant in ("ce", "scl") for seed in (0, 1)]
    assert names(finished.results) == runs
    assert finished.ended == study.Ended(runs=4, made=4, shared=0, there=0, left=0)
    order = ("ce--sst2--s0", "scl--sst2--s0", "ce--sst2--s1", "scl--sst2--s1")
    said = [line.partition("  accuracy ")[0] for line in finished.said[1:]]
    assert said == [f"[{number}/4] {name}" for number, name in enumerate(order, 1)]


def test_a_finished_study_does_nothing(finished: Made) -> None:
    before = {name: (finished.results / name).stat().st_mtime_ns for name in names(finished.results)}
    ended, said = finished.again()
    assert (ended.made, ended.there, ended.left) == (0, 4, 0)
    assert said == ["tiny at the scale smoke: 4 runs, 4 there, 0 to make"]
    assert {name: (finished.results / name).stat().st_mtime_ns for name in before} == before


def test_a_deleted_result_is_made_again_to_the_same_bits(finished: Made) -> None:
    file = finished.file("scl--sst2--s1")
    before = timeless(file)
    file.unlink()
    ended, said = finished.again()
    assert (ended.made, ended.there) == (1, 3)
    assert [line.split()[1] for line in said[1:]] == ["scl--sst2--s1"]
    assert timeless(file) == before


def test_a_run_has_as_many_threads_as_those_that_are_there_had(finished: Made, tmp_path: Path) -> None:
    """The last bits depend on their number: what is deleted comes back as it was without a word about threads."""
    torch.set_num_threads(2)
    shutil.copytree(finished.results, tmp_path / "results")
    file = tmp_path / "results" / "tiny" / "smoke" / "scl--sst2--s1.json"
    file.unlink()
    said: list[str] = []
    study.run(finished.study, "smoke", tmp_path / "results", say=said.append)
    assert json.loads(file.read_text("utf-8"))["machine"]["threads"] == 1
    assert timeless(file) == timeless(finished.file("scl--sst2--s1"))
    told = "1 thread for each run, as those that are there had; --threads says otherwise"
    assert (told in said) == (len(os.sched_getaffinity(0)) > 1)


def test_a_result_that_was_made_with_another_default_is_made_again(finished: Made, tmp_path: Path) -> None:
    shutil.copytree(finished.results, tmp_path / "results")
    again = replace(finished, results=tmp_path / "results")
    file = again.file("ce--sst2--s0")
    before, record = timeless(file), json.loads(file.read_text("utf-8"))
    record["config"]["optimise"]["clip"] += 1.0
    file.write_text(json.dumps(record), "utf-8")
    assert again.again()[0].made == 1
    assert timeless(file) == before
    del record["config"]["optimise"]["clip"]  # a setting that is newer than the result
    file.write_text(json.dumps(record), "utf-8")
    assert again.again()[0].made == 0


def test_a_damaged_result_and_one_with_other_settings_are_made_again(finished: Made) -> None:
    file = finished.file("ce--sst2--s0")
    before = timeless(file)
    told = json.loads(file.read_text("utf-8"))
    less = {key: value for key, value in told.items() if key != "metrics"}
    for broken in (file.read_text("utf-8")[:100], *map(json.dumps, ({**told, "key": "other"}, less))):
        file.write_text(broken, "utf-8")
        assert finished.again()[0].made == 1
        assert timeless(file) == before


def test_nothing_of_the_work_is_left(finished: Made) -> None:
    left = [path.name for path in (finished.results / WORK).iterdir()]
    assert left == [".gitignore"]
    assert not list(finished.results.rglob(".*.json"))


def test_a_result_says_what_was_done_and_found(finished: Made) -> None:
    record = json.loads(finished.file("scl--sst2--s1").read_text("utf-8"))
    (run,) = [run for run in study.plan(finished.study, "smoke") if run.name == "scl--sst2--s1"]
    assert (record["study"], record["scale"], record["variant"]) == ("tiny", "smoke", "scl")
    assert (record["task"], record["value"], record["seed"], record["key"]) == ("sst2", None, 1, run.key)
    assert from_mapping(record["config"]) == run.config
    assert record["metrics"]["n_train"] + record["metrics"]["n_validation"] == QUICK["data.cap"]
    assert record["metrics"]["n_test"] == len(drawn_table(TASKS["sst2"], "test").examples)
    assert record["metrics"]["score"] == record["metrics"]["accuracy"] == record["metrics"]["by_exit"]["4"]
    assert {"accuracy", "f1", "macro_f1", "mcc", "layers"} <= set(record["metrics"])
    assert {"alignment", "uniformity", "singular_values", "effective_rank"} <= set(record["geometry"])
    assert list(record["cost"]["flops"]) == ["1", "2", "3", "4"]
    assert set(record["data"]) == {"train", "validation", "test"}
    assert all(len(found) == 64 for found in (*record["data"].values(), record["weights"]))
    assert {"processor", "threads", "python"} <= set(record["machine"])
    assert {"offramp", "torch", "transformers"} <= set(record["versions"])
    assert record["seconds"]["training"] > 0
    assert "from" not in record


def test_seeds_and_variants_give_different_weights(finished: Made) -> None:
    weights = {json.loads((finished.results / name).read_text("utf-8"))["weights"] for name in names(finished.results)}
    assert len(weights) == 4


def test_a_run_that_another_study_has_made_is_taken_over(tmp_path: Path) -> None:
    first = make(tmp_path, smoke={"seeds": 1})
    new = {**SCL, "objective": {"weight": 0.7}}
    other = make(tmp_path, first.results, "other", study={"baseline": ""}, again=CE, new=new)
    assert (other.ended.made, other.ended.shared) == (1, 1)
    taken = json.loads((first.results / "other/smoke/again--sst2--s0.json").read_text("utf-8"))
    given = json.loads(first.file("ce--sst2--s0").read_text("utf-8"))
    assert taken == {**given, "study": "other", "variant": "again", "from": "tiny/smoke/ce--sst2--s0.json"}
    first.file("ce--sst2--s0").unlink()
    assert first.again()[0].shared == 1
    assert json.loads(first.file("ce--sst2--s0").read_text("utf-8")) == given  # it was made here: no `from`


def test_two_variants_that_are_one_run_are_run_once(tmp_path: Path) -> None:
    made = make(tmp_path, study={"baseline": ""}, a=CE, b={**CE, "label": "the same"})
    assert (made.ended.made, made.ended.shared, made.ended.left) == (1, 1, 0)
    assert json.loads(made.file("b--sst2--s0").read_text("utf-8"))["from"] == "tiny/smoke/a--sst2--s0.json"


def test_only_and_limit_make_a_part(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "studies", smoke={"seeds": 2, "tasks": ["sst2", "rte"]})
    found, results = study.load_study(str(folder)), tmp_path / "results"
    ended = study.run(found, "smoke", results, threads=1, only="scl/r*/1")
    assert (ended.runs, ended.made, names(results)) == (1, 1, ["tiny/smoke/scl--rte--s1.json"])
    ended = study.run(found, "smoke", results, threads=1, only="ce", limit=1)
    assert (ended.runs, ended.made, ended.left) == (4, 1, 3)
    with pytest.raises(ConfigError, match=r"`cee` is not a known variant of tiny\. Did you mean 'ce'"):
        study.run(found, "smoke", results, only="cee")
    with pytest.raises(ConfigError, match=r"`2` is not a known seed of tiny\. Known: 0, 1\."):
        study.run(found, "smoke", results, only="ce/*/2")
    with pytest.raises(ConfigError, match="VARIANT/TASK/SEED"):
        study.run(found, "smoke", results, only="ce/rte/0/1")


def test_a_run_that_fails_leaves_the_others_to_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, results = study.load_study(str(write_study(tmp_path / "studies"))), tmp_path / "results"
    real = study_run.trained

    def sometimes(texts: Texts, *more: Any) -> Any:
        if texts.config.objective.name == "ce":
            raise TrainingError("The loss became nan.")
        return real(texts, *more)

    monkeypatch.setattr(study_run, "trained", sometimes)
    with pytest.raises(TrainingError, match=r"1 of 2 runs failed.*ce--sst2--s0: The loss became nan."):
        study.run(found, "smoke", results, threads=1)
    assert names(results) == ["tiny/smoke/scl--sst2--s0.json"]


def test_what_the_caller_can_mend_ends_the_study_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA", str(tmp_path))
    folder = write_study(tmp_path / "studies", smoke={"data": "real"})
    with pytest.raises(DataError, match=r"ce--sst2--s0: .*OFFRAMP_DATA"):
        study.run(study.load_study(str(folder)), "smoke", tmp_path / "results")
    assert names(tmp_path / "results") == []


def test_scored_and_validating_texts_are_apart_under_scls_split(tmp_path: Path) -> None:
    smoke = {"set": {**QUICK, "protocol.split": "scl"}, "test_cap": 10, "validation_cap": 6}
    made = make(tmp_path, smoke=smoke, ce=CE)
    record = json.loads(made.file("ce--sst2--s0").read_text("utf-8"))
    assert [record["metrics"][name] for name in ("n_train", "n_validation", "n_test")] == [24, 6, 10]
    assert record["config"]["protocol"]["split"] == "scl"
    assert len(set(record["data"].values())) == 3


def test_a_text_that_a_validation_file_repeats_is_not_both_scored_and_choosing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = study_data._split

    def repeating(name: str, split: str, data: str) -> Table:
        found = real(name, split, data)
        return replace(found, examples=[*found.examples, *found.examples], numbers=())

    monkeypatch.setattr(study_data, "_split", repeating)
    texts = texts_of("sst2", "drawn", from_mapping({"recipe": "x", "protocol": {"split": "scl"}}))
    assert texts.validation is not None
    choose, score = ({each.text for each in table.examples} for table in (texts.validation, texts.test))
    assert choose
    assert not choose & score


def test_a_text_that_is_scored_too_is_not_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    real = study_data._split

    def leaking(name: str, split: str, data: str) -> Table:
        found = real(name, split, data)
        return found if split != "train" else replace(found, examples=[*found.examples, *leaked], numbers=())

    for protocol in ({}, {"split": "scl"}):
        config = from_mapping({"recipe": "x", "protocol": protocol})
        split = "validation" if protocol else TASKS["sst2"].test
        leaked = [replace(example, text=example.text.upper()) for example in real("sst2", split, "drawn").examples[:5]]
        monkeypatch.setattr(study_data, "_split", leaking)
        train = texts_of("sst2", "drawn", config).train.examples
        assert train == real("sst2", "train", "drawn").examples


def test_what_another_task_taught_before_is_not_scored(tmp_path: Path) -> None:
    """A task after itself: whatever both would show again is left out."""
    config = from_mapping({"recipe": "x"})
    texts = texts_of("sst2", "drawn", config)
    other = replace(texts, train=replace(texts.train, examples=texts.test.examples[:30], numbers=()))
    left = texts.unseen_by(other).test.examples
    assert left == [each for each in texts.test.examples[30:] if each not in texts.test.examples[:30]]
    before = {"task": "sst2", "recipe": "ce", "set": {**QUICK, "data.cap": 12}}
    made = make(tmp_path, smoke={"held_out": 20}, ce={**CE, "backbone_after": before})
    record = json.loads(made.file("ce--sst2--s0").read_text("utf-8"))
    assert 0 < record["metrics"]["n_test"] < 20
    everything = replace(texts, train=replace(texts.test, numbers=()))
    with pytest.raises(DataError, match="should be new to the model"):
        texts.unseen_by(everything)


def test_training_texts_that_are_scored_are_not_learnt_from_and_the_test_is_left_alone(tmp_path: Path) -> None:
    smoke = {"set": {**QUICK, "data.cap": 0}, "held_out": 20}
    made = make(tmp_path, smoke=smoke, ce=CE)
    record = json.loads(made.file("ce--sst2--s0").read_text("utf-8"))
    config = study.plan(made.study, "smoke")[0].config
    texts = texts_of("sst2", "drawn", config, held_out=20)
    asked = {text.text for text in texts.test.examples}
    assert (len(asked), record["metrics"]["n_test"]) == (20, 20)
    assert record["data"]["test"] == texts.hashes()["test"]
    assert not asked & {text.text for text in texts.train.examples}
    whole = texts_of("sst2", "drawn", config)
    assert asked | {text.text for text in texts.train.examples} == {text.text for text in whole.train.examples}
    assert not asked & {text.text for text in whole.test.examples}


def test_holding_out_every_training_text_or_under_scls_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="should leave texts to learn from"):
        make(tmp_path, smoke={"held_out": 10_000}, ce=CE)
    with pytest.raises(ConfigError, match="`held_out` should not stand with"):
        texts_of("sst2", "drawn", from_mapping({"recipe": "x", "protocol": {"split": "scl"}}), held_out=10)


def test_an_angle_study_records_the_angles_after_training_and_those_met_in_training(tmp_path: Path) -> None:
    study_keys = {"view": "angles", "probe": {"objective": "scl", "batches": 2}}
    acl = {"recipe": "acl", "probe": {"objective": "acl", "batches": 3}}
    made = make(tmp_path, study=study_keys, ce=CE, acl=acl)
    ce, aligned = (json.loads(made.file(f"{name}--sst2--s0").read_text("utf-8"))["angles"] for name in ("ce", "acl"))
    assert (ce["after"]["objective"], ce["after"]["batches"], "training" in ce) == ("scl", 2, False)
    assert (aligned["after"]["objective"], aligned["after"]["batches"]) == ("acl", 3)
    assert aligned["training"]["batches"] == sum(aligned["training"]["counts"]) == 6  # 22 texts by 8, twice
    assert 0.0 <= aligned["training"]["kept"] <= 1.0


def test_a_map_study_records_where_texts_and_label_embeddings_lie(tmp_path: Path) -> None:
    made = make(tmp_path, study={"view": "map", "exit": 2, "baseline": ""}, a={"recipe": "2st"})
    found = json.loads(made.file("a--sst2--s0").read_text("utf-8"))["map"]
    assert (found["depth"], found["names"]) == (2, ["negative", "positive"])
    assert (len(found["texts"]), len(found["anchors"])) == (48, 2)


def test_a_backbone_that_learnt_another_task_first_is_made_once_and_used(tmp_path: Path) -> None:
    before = {"task": "rotten_tomatoes", "recipe": "ce"}
    smoke = {"tasks": ["yelp_polarity", "amazon_polarity"], "set": {**QUICK, "optimise.lr_backbone": 1e-3}}
    made = make(tmp_path, smoke=smoke, ce=CE, scl={**CE, "backbone_after": before})
    one, two = (json.loads(made.file(f"scl--{task}--s0").read_text("utf-8")) for task in smoke["tasks"])
    plain = json.loads(made.file("ce--yelp_polarity--s0").read_text("utf-8"))
    assert one["before"] == two["before"]
    assert one["before"]["task"] == "rotten_tomatoes"
    assert one["weights"] != plain["weights"]
    assert [path.name for path in (made.results / WORK).iterdir()] == [".gitignore"]
    file = made.file("scl--yelp_polarity--s0")
    first = timeless(file)
    file.unlink()
    made.again()
    assert timeless(file) == first


def test_a_chinese_task_runs(tmp_path: Path) -> None:
    made = make(tmp_path, smoke={"tasks": ["ocnli"]}, ce=CE)
    assert json.loads(made.file("ce--ocnli--s0").read_text("utf-8"))["metrics"]["n_test"] == 48


def test_the_f1_of_the_rare_and_of_the_frequent_label_are_recorded_where_one_is_rare(tmp_path: Path) -> None:
    settings = {**QUICK, "data.cap": 0, "protocol.imbalance": 3.0, "protocol.minority": 8}
    keys = {"metric": ["minor_f1", "major_f1"]}
    record = json.loads(
        make(tmp_path, study=keys, smoke={"set": settings}, ce=CE).file("ce--sst2--s0").read_text("utf-8")
    )
    assert {"minor_f1", "major_f1"} <= set(record["metrics"])
    assert record["metrics"]["n_train"] + record["metrics"]["n_validation"] == 8 + 24
    both = (record["metrics"]["minor_f1"] + record["metrics"]["major_f1"]) / 2
    assert both == pytest.approx(record["metrics"]["macro_f1"], abs=1e-12)  # there are two labels
