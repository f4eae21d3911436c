"""Bad data: a sentence that says what should be, what was found and where; exit 2; nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Arguments = Callable[..., list[object]]

TRAIN, EVALUATE, PREDICT = "train", "evaluate", "predict"
LABELLED = (TRAIN, EVALUATE)
ALL = (TRAIN, EVALUATE, PREDICT)
GOOD = "good film,good\nbad plot,bad\n"

BAD: list[tuple[tuple[str, ...], str, str | bytes, list[str]]] = [
    # verbs, file, content, what the sentence holds
    (ALL, "empty.csv", "", ["at least one row", "empty.csv to be empty"]),
    (ALL, "empty.jsonl", "\n\n", ["at least one row", "empty.jsonl to be empty"]),
    ((PREDICT,), "empty.txt", "", ["at least one row", "none in empty.txt"]),
    (ALL, "header.csv", "text,label\n", ["at least one row", "none in header.csv"]),
    (LABELLED, "a.csv", f"text,class\n{GOOD}", ["`label`", "the columns `text`, `class` in a.csv", "--label"]),
    (ALL, "a.csv", f"body,label\n{GOOD}", ["`text`", "the columns `body`, `label` in a.csv", "--text"]),
    ((TRAIN,), "one.csv", "text,label\na,good\nb,good\n", ["at least two different labels", "only `good` in one.csv"]),
    ((EVALUATE,), "a.csv", f"text,label\n{GOOD}c,goood\n", ["`goood` in a.csv, line 4", "Did you mean `good`?"]),
    (ALL, "a.csv", f"text,label\n{GOOD} ,good\n", ["A text should not be empty", "a.csv, line 4"]),
    (LABELLED, "a.csv", f"text,label\n{GOOD}fine,\n", ["A label should not be empty", "a.csv, line 4"]),
    ((PREDICT,), "a.txt", "good\n\nbad\n", ["A text should not be empty", "a.txt, line 2"]),
    (ALL, "a.csv", f"text,label\n{GOOD}caf".encode() + b"\xe9,good\n", ["should be UTF-8", "0xe9 in a.csv, line 4"]),
    ((PREDICT,), "a.txt", b"good\n\xff\xfe\n", ["should be UTF-8", "0xff in a.txt, line 2"]),
    (ALL, "a.csv", f"text,label\n{GOOD}a,b,c\n", ["should have 2 fields", "Found 3 in a.csv, line 4"]),
    (ALL, "a.tsv", "text\tlabel\ngood\tgood\nbad\n", ["should have 2 fields", "Found 1 in a.tsv, line 3"]),
    (ALL, "a.csv", f'text,label\n{GOOD}"open,good\n', ["quotes", "starts in a.csv, line 4"]),
    (ALL, "a.jsonl", '{"text": "a", "label": "good"}\n{"text": \n', ["invalid JSON in a.jsonl, line 2"]),
    (ALL, "a.jsonl", '{"text": "a", "label": "good"}\n["b"]\n', ["should be an object", "a.jsonl, line 2"]),
    (ALL, "a.jsonl", '{"text": 3, "label": "good"}\n', ["A text should be a string", "a.jsonl, line 1"]),
    (ALL, "a.parquet", "no parquet", ["a.parquet should be a Parquet file"]),
]  # fmt: skip
CASES = [
    pytest.param(verb, *case, id=f"{verb}-{number}-{case[0]}")
    for number, (verbs, *case) in enumerate(BAD)
    for verb in verbs
]


@pytest.fixture
def ask(offramp: Run, model: Path, train_arguments: Arguments, tmp_path: Path) -> Run:
    """Runs a verb on a file; the folder a training would write is `out`."""

    def run(verb: str, file: Path, *more: object) -> Any:
        if verb == TRAIN:
            return offramp(*train_arguments(tmp_path / "out", *more, data=file))
        return offramp(verb, model, file, *more)

    return run


def refused(ran: Any, *words: str) -> None:
    """Exit 2; one sentence on standard error and nothing on standard output."""
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert [word for word in words if word not in ran.err] == []


@pytest.mark.parametrize(("verb", "name", "content", "words"), CASES)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_written(
    ask: Run, tmp_path: Path, verb: str, name: str, content: str | bytes, words: list[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    ran = ask(verb, file)
    refused(replace(ran, out="") if verb == PREDICT else ran, *words)  # it answers the texts before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("verb", ALL)
def test_a_missing_file_gets_the_near_names(ask: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "texts.csv").write_text(f"text,label\n{GOOD}")
    near = f"Near it: `{tmp_path / 'texts.csv'}`"  # with its folder, to be copied
    refused(ask(verb, tmp_path / "text.csv"), "File not found", "text.csv`", near)
    assert list(tmp_path.iterdir()) == [tmp_path / "texts.csv"]


def test_a_text_in_place_of_a_file_hears_where_texts_go(offramp: Run, model: Path) -> None:
    refused(offramp("predict", model, "where is my lamp"), 'echo "where is my lamp" | offramp predict MODEL')


def test_bad_validation_texts_stop_a_training_before_it_begins(
    ask: Run, tables: Path, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    unseen = write_table(tmp_path / "held.csv", [("good film", "good"), ("odd film", "odd")])
    refused(ask(TRAIN, tables / "train.csv", "--validation", unseen), "`odd` in held.csv, line 3", "seen in training")
    empty = write_table(tmp_path / "empty.csv", [])
    refused(ask(TRAIN, tables / "train.csv", "--validation", empty), "none in empty.csv")
    assert not (tmp_path / "out").exists()


def test_too_few_texts_to_hold_some_out_is_a_sentence(
    ask: Run, write_table: Callable[..., Path], tmp_path: Path
) -> None:
    file = write_table(tmp_path / "two.csv", [("good film", "good"), ("bad film", "bad")])
    refused(ask(TRAIN, file), "two texts or more", "Give a validation file")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exits.size": 15}, ["`exits.size` should be a multiple of `exits.heads`", "Found 15"]),
        (
            {"data.sampler": "balanced", "optimise.batch_size": 6},
            ["at least twice `per_class`", "Found `optimise.batch_size` 6"],
        ),
        ({"alignment.scope": "exact"}, ["`alignment.scope` should be none with the objective ce"]),
        ({"data.validation": 0}, ["share held out should lie between 0 and 1"]),
        ({"encoder.backbone": "./nowhere"}, ["The backbone should be", "`./nowhere`"]),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    offramp: Run, train_arguments: Arguments, tmp_path: Path, settings: dict[str, Any], words: list[str]
) -> None:
    arguments = train_arguments(tmp_path / "out", **settings)
    if "encoder.backbone" in settings:
        place = arguments.index("--backbone")
        del arguments[place : place + 2]
    refused(offramp(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


# Standard input.


@pytest.mark.parametrize(
    ("stdin", "answers", "words"),
    [
        (b"", 0, ["none in standard input"]),
        (b" \nbad\n", 0, ["A text should not be empty", "standard input, line 1"]),
        (b"good\nfine\n \nbad\n", 2, ["A text should not be empty", "standard input, line 3"]),
        (b"good\n\xff\n", 1, ["should be UTF-8", "0xff in standard input, line 2"]),
    ],
)
def test_bad_standard_input_is_named_with_its_line_after_the_answers_before_it(
    offramp: Run, model: Path, stdin: bytes, answers: int, words: list[str]
) -> None:
    ran = offramp("predict", model, stdin=stdin)
    refused(replace(ran, out=""), *words)
    assert ran.out.count("\n") == answers


def test_answers_before_a_bad_line_of_a_later_chunk_are_given(offramp: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good film\n" * 1500 + "\n")
    ran = offramp("predict", model, tmp_path / "a.txt")
    assert ran.code == 2
    assert "a.txt, line 1501" in ran.err
    assert ran.out.count("\n") == 1500


# Texts longer than the model.


def warnings_of(ran: Any) -> list[str]:
    assert ran.code == 0, ran.err
    return [line for line in ran.err.splitlines() if line.startswith("warning:")]


LONG = "good " * 80  # the small backbone takes 64 tokens


def test_predict_warns_once_of_the_cut_texts_of_all_chunks(offramp: Run, model: Path, tmp_path: Path) -> None:
    lines = ["good film"] * 2500
    for place in (3, 1100, 1101, 2499):
        lines[place] = LONG
    (tmp_path / "a.txt").write_text("\n".join(lines))
    ran = offramp("predict", model, tmp_path / "a.txt")
    assert warnings_of(ran) == ["warning: 4 of 2500 texts are longer than 64 tokens and were cut."]
    assert ran.out.count("\n") == 2500


def test_train_and_evaluate_warn_once_and_count_the_cut_texts(
    ask: Run, toy: Callable[..., Any], write_table: Callable[..., Path], tmp_path: Path
) -> None:
    texts, labels = toy(60)
    texts[0] = texts[31] = texts[59] = LONG
    file = write_table(tmp_path / "a.csv", list(zip(texts, labels, strict=True)))
    for verb in LABELLED:
        ran = ask(verb, file)
        told = [each for each in warnings_of(ran) if "were seen in training" not in each]
        assert told == ["warning: 3 of 60 texts are longer than 64 tokens and were cut."]
