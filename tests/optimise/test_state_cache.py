"""The states of a backbone that stands still: what lies on disk is what a walk gives, and of nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from offramp.config import CHOICES
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.optimise.state_cache import (
    Autocast,
    Cached,
    CacheWarning,
    Frozen,
    Lesson,
    Room,
    open_cache,
    remove_caches,
)
from offramp.types import Example

DEPTHS = (1, 2)
PLENTY = 1e9  # bytes
HALF = {"rtol": 2.0**-11, "atol": 1e-5}  # half a step of float16; float32 walks with another padding
SINGLE = {"rtol": 1e-5, "atol": 1e-5}
ROWS = {
    "in order": range(12),
    "backwards": range(11, -1, -1),
    "any, and one twice": [7, 0, 7, 11, 3],
    "one text": [5],
}


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    return make_model(layers=3)


@pytest.fixture
def tokens(toy_tokens: Callable[..., Tokens]) -> Tokens:
    made = toy_tokens(12)
    assert len(set(made.lengths.tolist())) > 4
    return made


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each walk through a backbone was for."""
    found: list[int] = []
    walk = MultiExitModel.walk

    def counted(self: MultiExitModel, batch: Any, *rest: Any) -> Any:
        found.append(len(batch))
        return walk(self, batch, *rest)

    monkeypatch.setattr(MultiExitModel, "walk", counted)
    return found


def opened(
    folder: Path,
    model: MultiExitModel,
    tokens: Tokens,
    depths: tuple[int, ...] = DEPTHS,
    autocast: Autocast = nullcontext,
    budget: float = PLENTY,
    **room: Any,
) -> Frozen:
    return open_cache(folder, model, tokens, depths, autocast, Room(budget, **room))


def walked(model: MultiExitModel, tokens: Tokens) -> Frozen:
    return Frozen(model, tokens, DEPTHS, nullcontext)


def bfloat16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def assert_same(found: Lesson, wanted: Lesson, **tolerance: float) -> None:
    """The same lesson, its states within the tolerance wherever there is a token."""
    assert list(found.states) == list(wanted.states) == list(DEPTHS)
    for depth, states in wanted.states.items():
        mine = found.states[depth]
        assert torch.equal(mine.mask, states.mask)
        inside = states.mask == 1
        torch.testing.assert_close(mine.output[inside], states.output[inside], **tolerance)
        assert mine.hidden is mine.output
        assert torch.isfinite(mine.output).all()  # the padding too: attention multiplies it by zero
    for part in ("representation", "logits", "label_embeddings"):
        torch.testing.assert_close(getattr(found.teacher, part), getattr(wanted.teacher, part), **SINGLE)
    assert torch.equal(found.labels, wanted.labels)


# What is read is what a walk gives.


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_a_lesson_from_disk_is_the_walked_one(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, rows: list[int]
) -> None:
    cached = opened(tmp_path, model, tokens)
    assert isinstance(cached, Cached)
    assert_same(cached.lesson(rows), walked(model, tokens).lesson(rows), **HALF)
    assert cached.lesson(rows).labels.tolist() == [int(tokens.labels[row]) for row in rows]


@pytest.mark.parametrize("kind", CHOICES["exits.kind"])
def test_the_teacher_is_the_last_exit_whatever_its_kind(
    make_model: Callable[..., MultiExitModel], tokens: Tokens, tmp_path: Path, kind: str
) -> None:
    model = make_model(layers=3, exit_kind=kind)
    found = opened(tmp_path, model, tokens).lesson(range(12)).teacher
    with torch.no_grad():
        wanted = model.outputs(tokens.batch(range(12)), [3])[3]
    for part in ("representation", "logits", "label_embeddings"):
        torch.testing.assert_close(getattr(found, part), getattr(wanted, part), **SINGLE)
        assert not getattr(found, part).requires_grad


def test_pairs_have_their_token_types(
    model: MultiExitModel, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    pairs = [Example("the film", "was dull"), Example("who", "is the quick story"), Example("plot plot plot", "slow")]
    tokens = Tokens.of(tokenizer, pairs, 32, [0, 1, 2])
    cached = opened(tmp_path, model, tokens)
    assert_same(cached.lesson([2, 0, 1]), walked(model, tokens).lesson([2, 0, 1]), **HALF)
    untyped = walked(model, replace(tokens, types=np.zeros_like(tokens.types)))
    assert not torch.allclose(cached.lesson([0]).states[1].output, untyped.lesson([0]).states[1].output, atol=1e-2)


def test_more_texts_than_walk_together_find_their_places(
    model: MultiExitModel, toy_tokens: Callable[..., Tokens], tmp_path: Path, walks: list[int]
) -> None:
    tokens = toy_tokens(150)
    cached = opened(tmp_path, model, tokens)
    assert walks == [64, 64, 22]
    rows = torch.randperm(150, generator=torch.Generator().manual_seed(0)).tolist()
    assert_same(cached.lesson(rows), walked(model, tokens).lesson(rows), **HALF)


def test_the_files_are_as_large_as_is_said(model: MultiExitModel, tokens: Tokens, tmp_path: Path) -> None:
    cached = opened(tmp_path, model, tokens)
    files = list(tmp_path.glob("states-*/depth-*.bin"))
    assert {file.name for file in files} == {"depth-1.bin", "depth-2.bin"}
    (answers,) = (load_file(file) for file in tmp_path.glob("states-*/teacher.safetensors"))
    written = sum(file.stat().st_size for file in files) + sum(told.nbytes for told in answers.values())
    assert cached.bytes == written == needed(model, tokens)
    assert {name: told.dtype for name, told in answers.items()} == dict.fromkeys(answers, torch.float32)


def needed(model: MultiExitModel, tokens: Tokens) -> int:
    """Two depths of 32 numbers a token, two bytes each; of each text the last exit's vector and logits, four each."""
    return 2 * 2 * 32 * len(tokens.ids) + 4 * len(tokens) * (model.width(model.depth) + len(model.config.labels))


def test_a_state_beyond_the_reach_of_float16_is_stored_coarser(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path
) -> None:
    with torch.no_grad():
        model.encoder.backbone.encoder.layer[1].output.LayerNorm.weight.mul_(1e6)
    cached, wanted = opened(tmp_path, model, tokens).lesson(range(12)), walked(model, tokens).lesson(range(12))
    assert wanted.states[2].output.abs().max() > torch.finfo(torch.float16).max
    assert_same(cached, wanted, rtol=2.0**-8, atol=1e-3)
    (facts,) = tmp_path.glob("states-*/facts.json")
    assert json.loads(facts.read_text())["dtype"] == "bfloat16"
    assert not list(tmp_path.glob(".*"))


def test_a_backbone_that_gives_no_numbers_is_left_to_the_loss(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path
) -> None:
    with torch.no_grad():
        model.encoder.backbone.encoder.layer[1].output.LayerNorm.weight.fill_(torch.inf)
    found = opened(tmp_path, model, tokens).lesson(range(12)).states
    assert torch.isfinite(found[1].output).all()
    assert not torch.isfinite(found[2].output).all()


# What a cache is of.


def changed_weight(part: Callable[[MultiExitModel], torch.nn.Module]) -> Callable[..., Any]:
    def change(model: MultiExitModel, tokens: Tokens) -> dict[str, Any]:
        with torch.no_grad():
            next(part(model).parameters()).view(-1)[0] += 1e-3
        return {}

    return change


def changed_setting(part: Callable[[MultiExitModel], Any], name: str, value: Any) -> Callable[..., Any]:
    def change(model: MultiExitModel, tokens: Tokens) -> dict[str, Any]:
        assert getattr(part(model), name) != value
        setattr(part(model), name, value)
        return {}

    return change


def changed_tokens(**fields: Callable[[Any], Any]) -> Callable[..., Any]:
    def change(model: MultiExitModel, tokens: Tokens) -> dict[str, Any]:
        return {"tokens": replace(tokens, **{name: how(getattr(tokens, name)) for name, how in fields.items()})}

    return change


def with_one_more(array: np.ndarray) -> np.ndarray:
    more = array.copy()
    more[1] += 1
    return more


OTHER = {
    "a token": changed_tokens(ids=with_one_more),
    "a token's type": changed_tokens(types=with_one_more),
    "where a text ends": changed_tokens(offsets=with_one_more),
    "the embeddings": changed_weight(lambda model: model.encoder.backbone.embeddings),
    "the last layer": changed_weight(lambda model: model.encoder.backbone.encoder.layer[-1]),
    "the last exit": changed_weight(lambda model: model.exits[-1]),
    "the depths": lambda *_: {"depths": (1,)},
    "the precision": lambda *_: {"autocast": bfloat16},
    "the backbone's heads": changed_setting(lambda model: model.encoder.backbone.config, "num_attention_heads", 8),
    "the exits' heads": changed_setting(lambda model: model.config, "exit_heads", 8),
}
SAME = {
    "nothing": lambda *_: {},
    "the labels": changed_tokens(labels=with_one_more),
    "the first exit": changed_weight(lambda model: model.exits[0]),
    "the second exit": changed_weight(lambda model: model.exits[1]),
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER.keys())
def test_another_cache_is_made_where_this_changes(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, change: Callable[..., Any], walks: list[int]
) -> None:
    opened(tmp_path, model, tokens)
    opened(tmp_path, **{"model": model, "tokens": tokens, **change(model, tokens)})
    assert len(list(tmp_path.glob("states-*"))) == 2
    assert walks == [12, 12]


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_the_files_serve_again_where_this_changes(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, change: Callable[..., Any], walks: list[int]
) -> None:
    first = opened(tmp_path, model, tokens).lesson(range(12))
    given = {"model": model, "tokens": tokens, **change(model, tokens)}
    second = opened(tmp_path, **given)
    assert isinstance(second, Cached)
    assert_same(second.lesson(range(12)), replace(first, labels=torch.from_numpy(given["tokens"].labels)), **SINGLE)
    assert len(list(tmp_path.glob("states-*"))) == 1
    assert walks == [12]


def test_a_precision_has_its_own_states(model: MultiExitModel, tokens: Tokens, tmp_path: Path) -> None:
    precise = opened(tmp_path, model, tokens).lesson(range(12))
    coarse = opened(tmp_path, model, tokens, autocast=bfloat16).lesson(range(12))
    wanted = Frozen(model, tokens, DEPTHS, bfloat16).lesson(range(12))
    inside = wanted.states[2].mask == 1
    found, apart = (
        float((a.states[2].output - wanted.states[2].output.float())[inside].abs().max()) for a in (coarse, precise)
    )
    assert found < 1e-2 < apart


# What is on disk may be half of a cache, or damaged.


def test_what_a_killed_run_left_is_removed_and_not_used(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, walks: list[int]
) -> None:
    opened(tmp_path, model, tokens)
    (home,) = tmp_path.glob("states-*")
    home.rename(tmp_path / f".{home.name}")
    other = tmp_path / ".states-of-another"
    other.mkdir()
    (other / "depth-1.bin").write_bytes(b"half")
    cached = opened(tmp_path, model, tokens)
    assert [path.name for path in tmp_path.iterdir()] == [home.name]
    assert walks == [12, 12]
    assert_same(cached.lesson(range(12)), walked(model, tokens).lesson(range(12)), **HALF)


def test_what_a_killed_run_left_makes_room(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ".states-of-another"
    left.mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(PLENTY, 0, 0 if left.exists() else PLENTY))
    assert isinstance(opened(tmp_path, model, tokens), Cached)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


@pytest.mark.parametrize("damage", [cut, grow, Path.unlink], ids=["cut", "grown", "gone"])
@pytest.mark.parametrize("name", ["depth-1.bin", "depth-2.bin", "teacher.safetensors", "facts.json"])
def test_a_damaged_cache_is_made_again(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, name: str, damage: Callable[[Path], None], walks: list[int]
) -> None:
    opened(tmp_path, model, tokens)
    (home,) = tmp_path.glob("states-*")
    whole = {file.name: file.read_bytes() for file in home.iterdir()}
    damage(home / name)
    cached = opened(tmp_path, model, tokens)
    assert {file.name: file.read_bytes() for file in home.iterdir()} == whole
    assert walks == [12, 12]
    assert_same(cached.lesson(range(12)), walked(model, tokens).lesson(range(12)), **HALF)


@pytest.mark.parametrize("facts", ["", "{}", "{"])
def test_facts_that_say_nothing_are_damage(model: MultiExitModel, tokens: Tokens, tmp_path: Path, facts: str) -> None:
    opened(tmp_path, model, tokens)
    (file,) = tmp_path.glob("states-*/facts.json")
    file.write_text(facts)
    opened(tmp_path, model, tokens)
    assert json.loads(file.read_text())["depths"] == list(DEPTHS)


@pytest.mark.parametrize("moment", ["posix_fallocate", "fsync"])
def test_a_disk_that_runs_full_is_an_error_and_leaves_nothing(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, moment, full)
    with pytest.raises(OSError, match="No space left"):
        opened(tmp_path, model, tokens)
    assert not list(tmp_path.iterdir())


def test_removing_leaves_nothing_of_a_cache_and_all_of_the_rest(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path
) -> None:
    opened(tmp_path, model, tokens)
    opened(tmp_path, model, tokens, depths=(1,))
    (tmp_path / ".states-half").mkdir()
    (tmp_path / ".states-half" / "depth-1.bin").write_bytes(b"half")
    (tmp_path / "checkpoint-1").mkdir()
    remove_caches(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    remove_caches(tmp_path / "absent")


# Where there is no room.

Disk = namedtuple("Disk", "total used free")


def assert_walks_anew(found: Frozen, model: MultiExitModel, tokens: Tokens, folder: Path) -> None:
    assert type(found) is Frozen
    assert found.bytes == 0
    assert_same(found.lesson([4, 1]), walked(model, tokens).lesson([4, 1]), rtol=0.0, atol=0.0)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("missing", [0, 1])
def test_a_budget_is_kept_to_the_byte(model: MultiExitModel, tokens: Tokens, tmp_path: Path, missing: int) -> None:
    wanted = needed(model, tokens)
    if not missing:
        assert opened(tmp_path, model, tokens, budget=wanted).bytes == wanted
        return
    with pytest.warns(CacheWarning, match=r"the texts would take [\d.]+ kB, and .* stored, raise stage2\.cache_gb\."):
        found = opened(tmp_path, model, tokens, budget=wanted - 1)
    assert_walks_anew(found, model, tokens, tmp_path)


def test_without_a_budget_there_is_neither_file_nor_warning(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path
) -> None:
    assert_walks_anew(opened(tmp_path, model, tokens, budget=0.0), model, tokens, tmp_path)


def test_a_disk_without_room_is_told(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(PLENTY, 0, needed(model, tokens)))  # with nothing to spare
    with pytest.warns(CacheWarning, match=r"would take [\d.]+ kB, and [\d.]+ kB may be used: .* make room on the"):
        found = opened(tmp_path, model, tokens)
    assert_walks_anew(found, model, tokens, tmp_path)


@pytest.mark.parametrize("less", [0.0, 1.0])
def test_states_that_lie_there_are_not_kept_beyond_the_budget(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, less: float
) -> None:
    opened(tmp_path, model, tokens)
    with pytest.warns(CacheWarning) if less else nullcontext():
        found = opened(tmp_path, model, tokens, budget=less)
    assert_walks_anew(found, model, tokens, tmp_path)


def test_the_room_of_a_disk_is_divided_among_the_processes(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(PLENTY, 0, 1.5 * needed(model, tokens)))
    with pytest.warns(CacheWarning, match=r"would take"):
        found = opened(tmp_path, model, tokens, shares=2)
    assert_walks_anew(found, model, tokens, tmp_path)
    assert isinstance(opened(tmp_path, model, tokens), Cached)


def test_what_a_run_writes_beside_its_states_has_room_too(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(PLENTY, 0, 1.5 * needed(model, tokens)))
    with pytest.warns(CacheWarning, match=r"make room on the disk"):
        found = opened(tmp_path, model, tokens, spare=needed(model, tokens))
    assert_walks_anew(found, model, tokens, tmp_path)
    assert isinstance(opened(tmp_path, model, tokens, spare=needed(model, tokens) // 4), Cached)


@pytest.mark.parametrize("there", [False, True])
def test_where_another_process_has_no_room_nobody_stores_states(
    model: MultiExitModel, tokens: Tokens, tmp_path: Path, there: bool
) -> None:
    said: list[bool] = []
    if there:
        opened(tmp_path, model, tokens)
    with pytest.warns(CacheWarning):
        found = opened(tmp_path, model, tokens, agreed=lambda mine: said.append(mine) or False)
    assert said == [True]
    assert_walks_anew(found, model, tokens, tmp_path)


def test_no_texts_have_no_states(model: MultiExitModel, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    found = opened(tmp_path, model, Tokens.of(tokenizer, [], 32, []))
    assert type(found) is Frozen
    assert not list(tmp_path.iterdir())
