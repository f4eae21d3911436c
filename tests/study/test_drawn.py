"""Drawn tasks have the shape of the real ones and can be learnt; a drawn backbone is the same for the same texts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from offramp.data.sources import Table
from offramp.data.tasks import TASKS
from offramp.encoder.load import load_backbone, load_tokenizer
from offramp.study.drawn import LAYERS, WIDTH, draw_backbone, draw_tokenizer, drawn_table

HAN = re.compile("[\u4e00-\u9fff]")


def texts(table: Table) -> list[str]:
    return [" ".join([example.text, example.pair or ""]).strip() for example in table.examples]


def words(text: str) -> list[str]:
    return list(text) if HAN.search(text) else text.split()


@pytest.mark.parametrize("name", TASKS)
def test_a_drawn_task_has_the_shape_of_the_real_one(name: str) -> None:
    task, table = TASKS[name], drawn_table(TASKS[name], "train")
    counts = Counter(table.labels)
    assert table.order == task.labels
    assert set(counts) == set(task.labels)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all((example.pair is not None) == (len(task.columns) == 2) for example in table.examples)
    assert all(bool(HAN.search(text)) == task.chinese for text in texts(table))


@pytest.mark.parametrize("name", ["sst2", "rte", "trec6", "banking77", "ocnli", "iflytek"])
def test_a_drawn_task_can_be_learnt_and_its_splits_differ(name: str) -> None:
    train, test = drawn_table(TASKS[name], "train"), drawn_table(TASKS[name], "test")
    told: dict[str, set[object]] = {}
    for text, label in zip(texts(train), train.labels, strict=True):
        for word in words(text):
            told.setdefault(word, set()).add(label)
    right = [
        any(told.get(word) == {label} for word in words(text))
        for text, label in zip(texts(test), test.labels, strict=True)
    ]
    assert sum(right) / len(right) > 0.9  # some words of a label that has few texts are new in the test
    assert not set(texts(train)) & set(texts(test))


def test_a_drawn_task_is_the_same_every_time() -> None:
    assert drawn_table(TASKS["rte"], "train") == drawn_table(TASKS["rte"], "train")


@pytest.mark.parametrize("name", ["trec6", "bustm"])
def test_the_tokenizer_knows_every_word_and_gives_them_back(name: str) -> None:
    given = texts(drawn_table(TASKS[name], "train"))
    tokenizer = draw_tokenizer(given)
    for text in given:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "") == text.replace(" ", "")


def test_every_chinese_character_is_a_token_of_its_own() -> None:
    tokenizer = draw_tokenizer(["天地玄黄", "宇宙 good 洪荒"])
    assert tokenizer.tokenize("玄天good地") == ["玄", "天", "good", "地"]


def test_a_pair_has_two_token_types() -> None:
    encoded = draw_tokenizer(["a b", "c d"])("a", "b")
    assert encoded["token_type_ids"] == [0, 0, 0, 1, 1]


def test_the_same_texts_give_the_same_files(tmp_path: Path) -> None:
    given = texts(drawn_table(TASKS["rte"], "train"))
    for name in ("one", "two"):
        draw_backbone(tmp_path / name, given)
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


def test_the_backbone_loads_as_any_other(tmp_path: Path) -> None:
    draw_backbone(tmp_path, ["what is this", "that is it"])
    backbone, tokenizer = load_backbone(str(tmp_path)), load_tokenizer(str(tmp_path))
    assert (backbone.config.num_hidden_layers, backbone.config.hidden_size) == (LAYERS, WIDTH)
    assert backbone.config.vocab_size == len(tokenizer)
