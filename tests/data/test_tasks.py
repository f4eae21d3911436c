"""Named tasks: what the table says is what the files hold, and the hub's rows become the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offramp.data import tasks
from offramp.data.labels import Labels
from offramp.data.sources import read, stream
from offramp.data.tasks import TASKS, Hub, Task, load_task
from offramp.errors import ConfigError, DataError
from offramp.report.metrics import NAMES
from offramp.types import Example

HERE = sorted(name for name in TASKS if name not in ("wnli", "cmnli"))  # those two are on the hub only
Add = Callable[..., Task]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds a task of a test's own to the table."""

    def add(name: str = "mood", labels: tuple[str, ...] = ("sad", "glad"), **fields: Any) -> Task:
        task = Task(name, "Made up.", labels, **fields)
        monkeypatch.setitem(tasks.TASKS, name, task)
        return task

    return add


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OFFRAMP_DATA", str(tmp_path))
    return tmp_path


def write(file: Path, **columns: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


# The table.


def test_a_task_is_found_by_its_name_and_a_near_name_is_offered() -> None:
    assert all(name == task.name for name, task in TASKS.items())
    with pytest.raises(ConfigError, match="'sst2'"):
        load_task("sst-2")


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_has_labels_columns_a_metric_and_a_place_for_the_split_it_is_scored_on(task: Task) -> None:
    assert len(task.labels) == len(set(task.labels)) >= 2
    assert task.columns in (("sentence",), ("sentence1", "sentence2"))
    assert task.metric in NAMES
    assert task.metric != "f1" or len(task.labels) == 2
    assert {"train", task.test} <= task.hub.keys()
    assert all(len(place.columns) in (1, 2) for place in task.hub.values())
    assert all(len(place.columns) >= len(task.columns) for place in task.hub.values())


@pytest.mark.parametrize(
    ("name", "metric"), [("cola", "mcc"), ("mrpc", "f1"), ("qqp", "f1"), ("rte", "accuracy"), ("tnews", "accuracy")]
)
def test_the_metric_is_the_benchmarks_own(name: str, metric: str) -> None:
    assert TASKS[name].metric == metric


def test_the_page_on_tasks_has_a_row_for_each() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text("utf-8")
    kinds = {1: "texts", 2: "pairs"}
    for task in TASKS.values():
        read_as = kinds[len(task.columns)] + (", Chinese" if task.chinese else "")
        row = (f"`{task.name}`", task.about, len(task.labels), read_as, f"`{task.metric}`", task.test)
        assert f"| {' | '.join(map(str, row))} |\n" in text


# Real data.


@pytest.mark.parametrize("name", HERE)
def test_the_real_files_hold_what_the_table_says(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, home = TASKS[name], real_data / name
    assert list(task.labels) == json.loads((home / "labels.json").read_text("utf-8"))
    monkeypatch.setenv("OFFRAMP_DATA", str(real_data))
    table = load_task(name, task.test)
    rows = pq.read_table(home / f"{task.test}.parquet").to_pylist()  # an independent reader of the same file
    truth = [Example(*(row[c] for c in task.columns), *[None] * (2 - len(task.columns))) for row in rows]
    assert [replace(example, label=None) for example in table.examples] == truth
    assert table.labels == [task.labels[row["label"]] for row in rows]
    assert table.where(0) == f"task:{name}/{task.test}, row 1"
    chinese = sum("\u4e00" <= letter <= "\u9fff" for e in table.examples[:50] for letter in e.text)
    assert (chinese > 100) == task.chinese


@pytest.mark.parametrize("name", ["eprstmt", "bustm"])
def test_a_text_of_two_folds_is_learnt_from_once(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA", str(real_data))
    rows = pq.read_table(real_data / name / "train.parquet", columns=[*TASKS[name].columns, "label"]).to_pylist()
    found = load_task(name, "train").examples
    assert len(rows) == 160
    assert len(found) == len(set(found)) == len({tuple(row.values()) for row in rows}) < 160


def test_numbers_of_classes_are_those_of_the_task_and_not_of_the_alphabet(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFRAMP_DATA", str(real_data))
    table = read("task:mrpc")
    assert Labels.of(table.labels, "", table.order).names == ("not_equivalent", "equivalent")
    assert Labels.of(table.labels).names == ("equivalent", "not_equivalent")


# A folder.


def test_a_split_is_a_source_and_train_is_the_one_that_is_meant(folder: Path, add: Add) -> None:
    add()
    write(folder / "mood" / "train.parquet", sentence=["a", "b"], label=[1, 0], fold=[3, 4])
    write(folder / "mood" / "test.parquet", label=[0], sentence=["c"])
    assert read("task:mood").examples == [Example("a", None, "glad"), Example("b", None, "sad")]
    assert read("task:mood").examples == read("task:mood/train").examples == load_task("mood").examples
    assert load_task("mood", "test").examples == [Example("c", None, "sad")]
    assert read("task:mood").order == ("sad", "glad")
    assert list(stream("task:mood/test")) == list(stream(Path("task:mood/test"))) == [Example("c")]


def test_a_pair_task_gives_pairs_and_its_file_tells_its_own_numbers(folder: Path, add: Add) -> None:
    add(columns=("sentence1", "sentence2"))
    write(folder / "mood" / "train.parquet", sentence2=["b", "d"], sentence1=["a", "c"], label=[0, 1])
    (folder / "mood" / "labels.json").write_text('["glad", "sad"]')
    assert read("task:mood").examples == [Example("a", "b", "glad"), Example("c", "d", "sad")]
    assert read("task:mood").order == ("sad", "glad")


def test_what_is_missing_from_a_folder_is_told_with_what_is_there(folder: Path, add: Add) -> None:
    add()
    write(folder / "rte" / "train.parquet", sentence1=["a"], sentence2=["b"], label=[0])
    write(folder / "rte" / "validation.parquet", sentence1=["a"], sentence2=["b"], label=[0])
    with pytest.raises(DataError, match=r"should hold the task `mood`. Found `.*` with rte\."):
        read("task:mood")
    with pytest.raises(DataError, match=r"`test` is not a split of the task `rte`. Found: train, validation\."):
        read("task:rte/test")


@pytest.mark.parametrize("label", [2, 7])
def test_a_class_number_beyond_the_labels_is_refused(folder: Path, add: Add, label: int) -> None:
    add()
    write(folder / "mood" / "train.parquet", sentence=["a"], label=[label])
    with pytest.raises(DataError, match=rf"one of 2 class numbers. Found {label}"):
        read("task:mood")


def test_labels_of_a_folder_that_are_not_the_tasks_are_refused(folder: Path, add: Add) -> None:
    add()
    write(folder / "mood" / "train.parquet", sentence=["a"], label=[0])
    (folder / "mood" / "labels.json").write_text('["sad", "furious"]')
    with pytest.raises(DataError, match="should hold the 2 labels of `mood`"):
        read("task:mood")


# The hub, in a folder.


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> Path:
    monkeypatch.delenv("OFFRAMP_DATA", raising=False)
    return tmp_path / "hub"


def on_hub(home: Path, names: list[str] | None = None, **columns: list[Any]) -> None:
    """A data set as `datasets` keeps it, with label names of its own where given."""
    made = datasets.Dataset.from_dict(columns)
    made = made.cast_column("label", datasets.ClassLabel(names=names)) if names else made
    home.mkdir(parents=True)
    made.to_parquet(home / "train.parquet")


def test_the_columns_of_the_hub_become_ours(fetched: Path, add: Add) -> None:
    on_hub(fetched, ["no", "yes"], premise=["a", "c"], hypothesis=["b", "d"], label=[1, 0])
    add(columns=("sentence1", "sentence2"), hub={"train": Hub(str(fetched), "train", ("premise", "hypothesis"))})
    assert read("task:mood").examples == [Example("a", "b", "glad"), Example("c", "d", "sad")]


def test_labels_of_the_hub_are_taken_by_name_where_their_order_is_another(fetched: Path, add: Add) -> None:
    on_hub(fetched, ["glad", "sad"], text=["a", "b"], label=[0, 1])
    add(hub={"train": Hub(str(fetched))})
    assert read("task:mood").labels == ["glad", "sad"]
    assert read("task:mood").order == ("sad", "glad")


def test_two_columns_of_the_hub_make_one_text(fetched: Path, add: Add) -> None:
    on_hub(fetched, title=["Good", "Bad"], content=["it works", "it broke"], label=[1, 0])
    add(hub={"train": Hub(str(fetched), columns=("title", "content"))})
    assert read("task:mood").examples == [
        Example("Good: it works", None, "glad"),
        Example("Bad: it broke", None, "sad"),
    ]


def test_a_file_of_json_lines_is_read_and_labels_may_be_written_out(fetched: Path, add: Add) -> None:
    fetched.mkdir()
    file = fetched / "few.json"
    file.write_text(
        '{"sentence": "a", "label": "glad"}\n{"sentence": "b", "label": "0"}\n{"sentence": "c", "label": "1"}\n'
    )
    add(hub={"train": Hub("json", columns=("sentence",), file=str(file))})
    assert read("task:mood").labels == ["glad", "sad", "glad"]


def test_rows_without_a_label_are_left_out_and_a_split_of_nothing_else_is_refused(fetched: Path, add: Add) -> None:
    on_hub(fetched / "some", text=["a", "b", "c"], label=[-1, 1, -1])
    on_hub(fetched / "none", text=["a", "b"], label=[-1, -1])
    add(hub={"train": Hub(str(fetched / "some")), "test": Hub(str(fetched / "none"))}, test="validation")
    assert read("task:mood").examples == [Example("b", None, "glad")]
    assert read("task:mood").where(0) == "task:mood/train, row 2"
    with pytest.raises(DataError, match=r"`task:mood/test` should have labels.*scored on its validation split"):
        read("task:mood/test")


def test_a_split_that_the_hub_lacks_is_told_with_those_it_has(fetched: Path) -> None:
    with pytest.raises(DataError, match=r"`test` is not a split of the task `rte`. Found: train, validation\."):
        read("task:rte/test")


def test_without_network_the_folder_is_advised(fetched: Path) -> None:
    with pytest.raises(DataError, match=r"should be found as `nyu-mll/glue`.*set OFFRAMP_DATA to a folder"):
        read("task:rte")


@pytest.mark.parametrize("split", ["../secret", "../../mood/train", "/secret", "a/b"])
def test_a_split_cannot_lead_out_of_the_tasks_folder(folder: Path, add: Add, split: str) -> None:
    add()
    for place in (folder / "secret.parquet", folder / "mood" / "train.parquet", folder / "mood" / "a" / "b.parquet"):
        write(place, sentence=["a"], label=[0])
    with pytest.raises(DataError, match="is not a split of the task `mood`"):
        read(f"task:mood/{split}")


@pytest.mark.parametrize("content", [b"{", b"3", b'{"a": 1}', b"[[1]]", b"[null]", b"\xff", b"[" * 50_000])
def test_a_damaged_list_of_labels_is_a_data_error(folder: Path, add: Add, content: bytes) -> None:
    add()
    write(folder / "mood" / "train.parquet", sentence=["a"], label=[0])
    (folder / "mood" / "labels.json").write_bytes(content)
    with pytest.raises(DataError, match="should be a JSON list of labels"):
        read("task:mood/train")
