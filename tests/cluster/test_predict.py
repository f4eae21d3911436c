"""Texts through Ray: the answers of one process, each text once, whatever happens to a worker."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import dataset, parquet
from tests.cluster.conftest import TEXTS, THRESHOLD

from offramp import Classifier
from offramp.cluster.answerer import Answerer, Orders, Receipt, answers
from offramp.cluster.predict import Answered, Job, predict
from offramp.cluster.session import Cluster
from offramp.cluster.texts import files_of, spans_of
from offramp.data.sources import stream
from offramp.data.tokens import TruncationWarning
from offramp.errors import UserError
from offramp.runtime.predictions import SetPrediction

CHOSEN = {"threshold": THRESHOLD}


@pytest.fixture
def job(model: Path, texts: Path, tmp_path: Path) -> Job:
    return Job(model, str(texts), tmp_path / "out", parameters=CHOSEN, block=1024)


def rows(out: Path) -> list[dict[str, Any]]:
    """All answers of a folder, as anybody would read it, in the order of the texts."""
    table = dataset.dataset(out, format="parquet").to_table()
    found: list[dict[str, Any]] = table.sort_by([("file", "ascending"), ("row", "ascending")]).to_pylist()
    return found


def truth(classifier: Classifier, source: Path) -> list[dict[str, Any]]:
    """What one process answers."""
    return [asdict(found) for found in classifier.stream(stream(source))]


def told(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in ("label", "probability", "depth", "certified")} for row in found]


@pytest.mark.slow
def test_every_text_has_the_answer_of_one_process_once_although_a_worker_is_killed(
    cluster: Cluster, job: Job, classifier: Classifier, texts: Path
) -> None:
    workers: list[int] = []

    def kill(receipt: Receipt, done: int, _: int) -> None:
        workers.append(receipt.worker)
        if len(workers) == 1:
            assert done < TEXTS
            os.kill(receipt.worker, signal.SIGKILL)

    assert predict(job, classifier, cluster, kill) == Answered(TEXTS, 5, 0)
    assert set(workers) - {workers[0]}  # others went on
    found = rows(job.out)
    assert [(row["file"], row["row"]) for row in found] == [("texts.parquet", n) for n in range(1, TEXTS + 1)]
    assert told(found) == truth(classifier, texts)  # to the last bit
    assert len(Counter(row["depth"] for row in found)) == 4  # the policy was at work
    assert {file.name[:5] for file in job.out.iterdir()} == {"part-", "_plan", "_SUCC"}  # nothing half-written
    success = json.loads((job.out / "_SUCCESS").read_text("utf-8"))
    assert (success["rows"], sum(part["rows"] for part in success["parts"])) == (TEXTS, TEXTS)


def test_a_stopped_command_goes_on_where_it_was(alone: None, job: Job, classifier: Classifier, texts: Path) -> None:
    def stop(_: Receipt, done: int, __: int) -> None:
        if done >= 2048:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(job, classifier, Cluster(), stop)
    assert not (job.out / "_SUCCESS").exists()
    (job.out / "part-000001.parquet").write_bytes(b"cut")
    written = (job.out / "part-000000.parquet").stat().st_mtime_ns
    ended = predict(job, classifier, Cluster())
    assert (ended.rows, ended.there >= 1024) == (TEXTS, True)
    assert (job.out / "part-000000.parquet").stat().st_mtime_ns == written
    assert told(rows(job.out)) == truth(classifier, texts)
    assert predict(job, classifier, Cluster()) == Answered(TEXTS, 5, TEXTS)  # and then there is nothing to do


def test_a_folder_holds_the_answers_of_one_job(alone: None, job: Job, classifier: Classifier, model: Path) -> None:
    few = replace(job, source=str(job.out.parent / "few.parquet"))
    pd.DataFrame({"text": ["good film", "bad"]}).to_parquet(few.source)
    predict(few, classifier, Cluster())
    other = Classifier.load(model, 1, policy="never")
    with pytest.raises(UserError, match=r"Changed: policy"):
        predict(few, other, Cluster())
    with pytest.raises(UserError, match=r"Changed: texts"):
        predict(job, classifier, Cluster())
    (job.out.parent / "mine").mkdir()
    (job.out.parent / "mine" / "photo.jpg").write_text("precious")
    with pytest.raises(UserError, match="It holds other files"):
        predict(replace(few, out=job.out.parent / "mine"), classifier, Cluster())


def test_a_folder_of_parquet_files_is_answered_file_by_file(
    alone: None, job: Job, classifier: Classifier, tmp_path: Path
) -> None:
    home = tmp_path / "lake"
    frames = {"a.parquet": 1500, "day=2/b.parquet": 3, "day=2/c.parquet": 0, "_old/d.parquet": 5}
    for name, count in frames.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"text": [f"good {'very ' * (n % 7)}film" for n in range(count)]}).to_parquet(home / name)
    predict(replace(job, source=str(home), keep_text=True), classifier, Cluster())
    found = rows(job.out)
    assert Counter(row["file"] for row in found) == {"a.parquet": 1500, "day=2/b.parquet": 3}
    read = pd.read_parquet(home / "a.parquet")["text"].tolist()
    assert [row["text"] for row in found if row["file"] == "a.parquet"] == read
    for name in ("a.parquet", "day=2/b.parquet"):
        mine = [row for row in found if row["file"] == name]
        assert told(mine) == truth(classifier, home / name)


@pytest.mark.parametrize("name", ["texts.csv", "texts.txt", "texts.jsonl"])
def test_other_files_are_copied_and_answered_alike(
    alone: None, job: Job, classifier: Classifier, tmp_path: Path, name: str
) -> None:
    lines = [f"the film was {'very ' * (n % 5)}dull" for n in range(1200)]
    written = {
        ".csv": "id,text\n" + "".join(f"{n},{line}\n" for n, line in enumerate(lines)),
        ".txt": "".join(f"{line}\n" for line in lines),
        ".jsonl": "".join(json.dumps({"text": line}) + "\n" for line in lines),
    }
    source = tmp_path / name
    source.write_text(written[source.suffix], "utf-8")
    predict(replace(job, source=str(source)), classifier, Cluster())
    assert told(rows(job.out)) == truth(classifier, source)
    assert not list(job.out.glob(".*"))  # the copy is gone


def test_pairs_are_answered_as_pairs(alone: None, job: Job, classifier: Classifier, tmp_path: Path) -> None:
    source = tmp_path / "pairs.parquet"
    pd.DataFrame({"sentence1": ["good film", "slow plot"] * 9, "sentence2": ["bad", "who is"] * 9}).to_parquet(source)
    predict(replace(job, source=str(source), keep_text=True), classifier, Cluster())
    found = rows(job.out)
    assert told(found) == truth(classifier, source)
    assert [(row["text"], row["pair"]) for row in found[:2]] == [("good film", "bad"), ("slow plot", "who is")]


def test_a_bad_row_gets_the_sentence_of_one_process_and_nothing_is_left(
    alone: None, job: Job, classifier: Classifier, tmp_path: Path
) -> None:
    for source in (tmp_path / "texts.parquet", tmp_path / "texts.csv"):
        assert refused(job, classifier, Cluster(), source).count("Found an empty one in texts.") == 1


@pytest.mark.slow
def test_of_two_bad_rows_the_first_is_named_whichever_worker_is_faster(
    cluster: Cluster, job: Job, classifier: Classifier, tmp_path: Path
) -> None:
    assert "texts.parquet, row 1701" in refused(job, classifier, cluster, tmp_path / "texts.parquet")


def refused(job: Job, classifier: Classifier, cluster: Cluster, source: Path) -> str:
    """What is said of a file with bad rows in two spans, here and there."""
    frame = pd.DataFrame({"text": ["good film"] * 4000})
    frame.loc[[1700, 3900], "text"] = " "
    frame.to_parquet(source) if source.suffix == ".parquet" else frame.to_csv(source, index=False)
    with pytest.raises(UserError) as here:
        list(classifier.stream(stream(source)))
    with pytest.raises(UserError) as there:
        predict(replace(job, source=str(source)), classifier, cluster)
    assert str(there.value) == str(here.value)
    assert not job.out.exists()
    return str(there.value)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"body": ["a"]}, "A column should hold the text"),
        ({"text": []}, "Data should hold at least one row. Found none"),
    ],
)
def test_a_file_without_texts_gets_the_usual_sentence(
    job: Job, classifier: Classifier, tmp_path: Path, frame: dict[str, list[str]], message: str
) -> None:
    source = tmp_path / "a.parquet"
    pd.DataFrame(frame).to_parquet(source)
    with pytest.raises(UserError, match=message) as here:
        list(stream(source))
    with pytest.raises(UserError) as there:
        predict(replace(job, source=str(source)), classifier, Cluster())
    assert str(there.value) == str(here.value)
    assert not job.out.exists()


def test_long_texts_are_counted_over_all_workers(alone: None, job: Job, classifier: Classifier, tmp_path: Path) -> None:
    source = tmp_path / "long.parquet"
    pd.DataFrame({"text": ["good film", "very " * 100] * 1000}).to_parquet(source)
    with pytest.warns(TruncationWarning) as here:
        truth(classifier, source)
    with pytest.warns(TruncationWarning) as there:
        predict(replace(job, source=str(source)), classifier, Cluster())
    assert [str(each.message) for each in there] == [str(each.message) for each in here]
    assert "1000 of 2000" in str(there[0].message)


def test_a_worker_that_finds_another_model_says_so(
    alone: None, job: Job, classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "fingerprint", lambda: "another")
    with pytest.raises(UserError, match="should be the same for every worker"):
        predict(job, classifier, Cluster())


def test_texts_that_end_every_worker_are_given_up_with_a_sentence(
    model: Path, classifier: Classifier, texts: Path, tmp_path: Path
) -> None:
    answerer = Answerer(Orders(str(model), classifier.fingerprint(), CHOSEN, 1, str(tmp_path), False))
    (span,) = spans_of(files_of(str(texts), (), tmp_path), 8192)
    for kill in range(6):
        (tmp_path / f".part-000000-try-{kill}").touch()
    found = Receipt(**answerer(asdict(span)))
    assert (found.rows, found.misuse) == (0, False)
    assert "The worker of the texts of texts.parquet, rows 1 to 5000, ended without a word 6 times" in found.error
    (tmp_path / ".part-000000-try-0").unlink()
    assert answerer(asdict(span))["rows"] == TEXTS


def test_parts_have_the_same_columns_whatever_they_hold(alone: None, job: Job, classifier: Classifier) -> None:
    predict(replace(job, keep_text=True), classifier, Cluster())
    schemas = [parquet.read_schema(file) for file in sorted(job.out.glob("part-*"))]
    assert len(schemas) == 5
    assert all(schema == schemas[0] for schema in schemas)
    assert schemas[0].names == ["file", "row", "text", "pair", "label", "probability", "depth", "certified"]


@pytest.mark.parametrize("block", [0, 1000, 1025])
def test_a_block_is_made_of_whole_chunks(job: Job, classifier: Classifier, block: int) -> None:
    with pytest.raises(UserError, match=rf"`block` should be 1024 or a multiple of it. Found {block}"):
        predict(replace(job, block=block), classifier, Cluster())


def test_sets_of_labels_are_lists(texts: Path, tmp_path: Path) -> None:
    (span,) = spans_of(files_of(str(texts), ["text"], tmp_path), 8192)
    found = [SetPrediction(("b", "a") if row % 2 else (), (0.9, 0.8), 0.8, 1) for row in range(len(span))]
    table = answers(span, list(span.examples()), found, ("a", "b"), keep_text=False)
    assert table.column_names == ["file", "row", "labels", "probability", "depth", "certified"]
    assert table["labels"].to_pylist()[:3] == [[], ["b", "a"], []]


def test_a_table_without_a_suffix_is_copied_as_its_format_says(tmp_path: Path) -> None:
    (tmp_path / "table").write_text('id,text\n1,"good,\nfilm"\n2,bad\n')
    (file,) = files_of(str(tmp_path / "table"), (), tmp_path, "csv")
    assert [text.text for text in stream(file.path, text=file.columns)] == ["good,\nfilm", "bad"]
