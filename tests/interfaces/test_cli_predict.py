"""`offramp predict`: texts in, answers out, in their order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp import Classifier
from offramp.data.rows import FORMATS
from offramp.data.sources import read
from offramp.verbs.predict import Format

Run = Callable[..., Any]
Toy = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="session")
def texts(toy: Callable[..., Any]) -> list[str]:
    found: list[str] = toy(20, seed=2)[0]
    return found


@pytest.fixture(scope="session")
def truth(model: Path, texts: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "label": p.label,
            "probability": pytest.approx(p.probability, abs=1e-6),
            "depth": p.depth,
            "certified": False,
        }
        for p in Classifier.load(model).decide(texts)
    ]


@pytest.mark.parametrize("name", ["texts.txt", "texts", "texts.csv", "texts.tsv", "texts.jsonl"])
def test_every_kind_of_file_gets_the_answers_of_the_classifier(
    offramp: Run, model: Path, texts: list[str], truth: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    write = {
        ".csv": lambda rows: "id,text\n" + "".join(f"{i},{row}\n" for i, row in enumerate(rows)),
        ".tsv": lambda rows: "text\tid\n" + "".join(f"{row}\t{i}\n" for i, row in enumerate(rows)),
        ".jsonl": lambda rows: "".join(json.dumps({"text": row}) + "\n" for row in rows),
    }.get(Path(name).suffix, lambda rows: "".join(f"{row}\n" for row in rows))
    (tmp_path / name).write_text(write(texts), "utf-8")
    ran = offramp("predict", model, tmp_path / name, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == truth


@pytest.mark.parametrize("dash", [(), ("-",)], ids=["nothing", "dash"])
def test_standard_input_is_one_text_per_line(
    offramp: Run, model: Path, texts: list[str], truth: list[dict[str, Any]], dash: tuple[str, ...]
) -> None:
    ran = offramp("predict", model, *dash, "--json", stdin="\n".join(texts).encode())
    assert (ran.code, ran.lines) == (0, truth)


def test_people_read_columns(offramp: Run, model: Path, texts: list[str], truth: list[dict[str, Any]]) -> None:
    ran = offramp("predict", model, stdin="\n".join(texts).encode())
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [(label, int(depth)) for label, _, depth in rows] == [(t["label"], t["depth"]) for t in truth]
    assert [{"probability": float(p)} for _, p, _ in rows] == [
        {"probability": pytest.approx(t["probability"].expected, abs=5e-5)} for t in truth
    ]


@pytest.mark.parametrize(
    ("header", "flags"), [("sentence", ()), ("body", ("--text", "body")), ("text,sentence", ("--text", "sentence"))]
)
def test_the_text_column_is_the_usual_one_or_the_named_one(
    offramp: Run,
    model: Path,
    texts: list[str],
    truth: list[dict[str, Any]],
    tmp_path: Path,
    header: str,
    flags: tuple[str, ...],
) -> None:
    filler = "other," * header.count(",")
    (tmp_path / "a.csv").write_text(f"{header}\n" + "".join(f"{filler}{text}\n" for text in texts))
    assert offramp("predict", model, tmp_path / "a.csv", *flags, "--json").lines == truth


def test_a_policy_may_be_chosen(offramp: Run, model: Path, texts: list[str]) -> None:
    ran = offramp("predict", model, "--policy", "fixed", "--depth", 3, "--json", stdin="\n".join(texts).encode())
    assert [line["depth"] for line in ran.lines] == [3] * 20
    assert ran.err == "warning: the exit at depth 3 was not trained; trained: 4\n"


def test_labels_that_are_numbers_stay_numbers(
    offramp: Run, quick: Callable[..., Classifier], toy: Callable[..., Any], tmp_path: Path
) -> None:
    texts, words = toy(24)
    quick().fit(texts, [len(word) for word in words]).save(tmp_path / "m")
    lines = offramp("predict", tmp_path / "m", "--json", stdin="\n".join(texts).encode()).lines
    assert {type(line["label"]) for line in lines} == {int}
    assert {line["label"] for line in lines} <= {3, 4}


def test_a_label_in_any_script_is_written_in_utf8(
    offramp: Run, quick: Callable[..., Classifier], toy: Callable[..., Any], tmp_path: Path
) -> None:
    texts, words = toy(24)
    quick().fit(texts, ["日本" if word == "bad" else "süß" for word in words]).save(tmp_path / "m")
    for flags in ((), ("--json",)):
        ran = offramp("predict", tmp_path / "m", *flags, stdin="\n".join(texts).encode())
        assert any(name in ran.out for name in ("日本", "süß"))


TABLES = {
    "csv": 'id,text\n1,"good film,\nbad plot"\n2,fine\n',
    "tsv": 'text\tid\n"good film,\nbad plot"\t1\nfine\t2\n',
    "jsonl": '{"text": "good film,\\nbad plot"}\n{"text": "fine"}\n',
}


@pytest.mark.parametrize("format", TABLES)
def test_standard_input_may_be_a_table_whose_format_is_named(offramp: Run, model: Path, format: str) -> None:
    ran = offramp("predict", model, "-", "--format", format, "--json", stdin=TABLES[format].encode())
    assert (ran.code, ran.err) == (0, "")
    wanted = Classifier.load(model).decide(["good film,\nbad plot", "fine"])
    assert [line["label"] for line in ran.lines] == [answer.label for answer in wanted]


@pytest.mark.parametrize("format", TABLES)
def test_a_table_whose_format_is_not_named_is_not_answered_line_by_line(
    offramp: Run, model: Path, tmp_path: Path, format: str
) -> None:
    (tmp_path / "texts.txt").write_text(TABLES[format])
    for ran in (
        offramp("predict", model, stdin=TABLES[format].encode()),
        offramp("predict", model, stdin=TABLES[format].replace("id", "").encode()),  # as pandas names its index
        offramp("predict", model, tmp_path / "texts.txt"),
    ):
        assert (ran.code, ran.out) == (2, "")
        assert f"Add --format {format}" in ran.err
        assert "line 1" in ran.err


@pytest.mark.parametrize(
    "first",
    ["text, please", "good,bad", "text", "{text}", '{"a": 1}', "label,body", "good," * 99 + "good" * 99_999],
)
def test_a_first_line_that_only_resembles_a_header_is_a_text(offramp: Run, model: Path, first: str) -> None:
    ran = offramp("predict", model, stdin=f"{first}\ngood film\n".encode())
    assert (ran.code, ran.out.count("\n")) == (0, 2), ran.err


def test_a_header_is_a_text_where_the_format_says_so(offramp: Run, model: Path) -> None:
    ran = offramp("predict", model, "--format", "text", stdin=b"id,text\ngood film\n")
    assert (ran.code, ran.out.count("\n")) == (0, 2)


def test_a_named_column_makes_a_header_too(offramp: Run, model: Path) -> None:
    table = b"id,body\n1,good film\n"
    assert offramp("predict", model, stdin=table).code == 0
    assert "--format csv" in offramp("predict", model, "--text", "body", stdin=table).err
    ran = offramp("predict", model, "--text", "body", "--format", "csv", stdin=table)
    assert (ran.code, ran.out.count("\n")) == (0, 1)


def test_an_unknown_format_hears_the_known_ones(offramp: Run, model: Path) -> None:
    ran = offramp("predict", model, "--format", "cvs", stdin=b"good film\n")
    assert (ran.code, ran.out) == (2, "")
    assert all(name in ran.err for name in FORMATS)
    assert [each.value for each in Format] == list(FORMATS)


ODD = ["good film", 'a "bad", plot', "fine\tand\nfine", "日本"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_answers_are_written_beside_their_texts(offramp: Run, model: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ODD))
    out = tmp_path / f"answers.{suffix}"
    ran = offramp("predict", model, tmp_path / "texts.jsonl", "--out", out, "--json")
    assert (ran.code, ran.json) == (0, {"out": str(out), "rows": 4}), ran.err
    printed = offramp("predict", model, tmp_path / "texts.jsonl", "--json").lines
    if suffix == "jsonl":
        assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == [
            {"text": text, **answer} for text, answer in zip(ODD, printed, strict=True)
        ]
    else:
        table = read(out)  # with the reader of every other verb
        assert [(row.text, row.label) for row in table.examples] == [
            (text, answer["label"]) for text, answer in zip(ODD, printed, strict=True)
        ]
        header = out.read_text("utf-8").partition("\n")[0]
        assert header.split("\t" if suffix == "tsv" else ",") == ["text", *printed[0]]
    assert sorted(file.name for file in tmp_path.iterdir()) == [out.name, "texts.jsonl"]


def test_the_second_text_of_a_pair_is_written_too(
    offramp: Run, quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    texts, labels = toy(12)
    model = tmp_path / "model"
    quick().fit(list(zip(texts, reversed(texts), strict=True)), labels).save(model)
    (tmp_path / "a.csv").write_text("sentence1,sentence2\ngood,bad\n")
    assert offramp("predict", model, tmp_path / "a.csv", "--out", tmp_path / "b.csv").code == 0
    assert (tmp_path / "b.csv").read_text("utf-8").startswith("text,pair,label,probability,depth,certified\ngood,bad,")


def test_a_file_that_is_there_is_kept_unless_it_may_go(offramp: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    out.write_text("precious")
    ran = offramp("predict", model, "--out", out, stdin=b"good film\n")
    assert (ran.code, ran.out, out.read_text()) == (2, "", "precious")
    assert "--overwrite" in ran.err
    assert offramp("predict", model, "--out", out, "--overwrite", stdin=b"good film\n").code == 0
    assert out.read_text().startswith("text,label,")


def test_answers_are_written_whole_or_not_at_all(offramp: Run, model: Path, tmp_path: Path) -> None:
    ran = offramp("predict", model, "--out", tmp_path / "a.csv", stdin=b"good film\n\n")
    assert (ran.code, ran.out) == (2, "")
    assert "standard input, line 2" in ran.err
    assert (
        "should go to a file that can be written"
        in offramp("predict", model, "--out", tmp_path / "none" / "a.csv", stdin=b"good film\n").err
    )
    assert list(tmp_path.iterdir()) == []
