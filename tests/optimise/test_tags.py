"""Words in the place of texts: what is learnt from, cached or not, is theirs; a killed run ends with the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.interfaces.test_tags import toy
from tests.optimise.test_resume import KILLED, files, updates
from transformers import PreTrainedTokenizerFast

from offramp.data.labels import Labels
from offramp.data.tokens import Tokens
from offramp.exits.model import MultiExitModel
from offramp.optimise.exits_together import read_together
from offramp.optimise.state_cache import Cached, Frozen, Room, open_cache
from offramp.types import Example

HALF = {"rtol": 2.0**-11, "atol": 1e-5}
SETTINGS = [
    "data.labels=tags",
    "optimise.metric=span_f1",
    "alignment.scope=exact",
    "objective.reduction=mean",
    "objective.alike=4",
    "exits.size=16",
    "optimise.strategy=two-stage",
    "optimise.epochs=1",
    "optimise.batch_size=8",
    "optimise.checkpoint_steps=2",
    "optimise.track=[]",
    "stage2.epochs=2",
    "stage2.least_updates=0",
    "stage2.batch_size=12",
    "stage2.alike=4",
    "stage2.soft=0.5",
]


@pytest.fixture
def tokens(tokenizer: PreTrainedTokenizerFast) -> Tokens:
    texts, tags = toy(14)
    labels = Labels.of([tag for own in tags for tag in own])
    examples = [Example(" ".join(words), words=tuple(words)) for words in texts]
    return Tokens.of(tokenizer, examples, 9, labels.encode_lists(tags), warn=False, tags=True)


@pytest.mark.parametrize("kind", ["linear", "mha"])
@pytest.mark.parametrize("rows", [range(14), [7, 0, 7, 13], [5]])
def test_cached_states_teach_what_a_walk_teaches(
    make_model: Callable[..., MultiExitModel], tokens: Tokens, tmp_path: Path, kind: str, rows: Any
) -> None:
    model = make_model(layers=3, exit_kind=kind, tags=True)
    cached = open_cache(tmp_path, model, tokens, (1, 2), nullcontext, Room(1e9))
    assert isinstance(cached, Cached)
    fresh = Frozen(model, tokens, (1, 2), nullcontext)
    wanted, found = fresh.lesson(rows), cached.lesson(rows)
    batch = tokens.batch(rows)
    assert batch.labels is not None
    assert torch.equal(wanted.labels, found.labels)
    assert torch.equal(found.labels, batch.labels)
    assert len(found.labels) == len(found.teacher.logits) == batch.answers
    torch.testing.assert_close(found.teacher.logits, wanted.teacher.logits, rtol=1e-5, atol=1e-5)
    for depth in (1, 2):
        words = found.states[depth].words
        assert words is not None
        assert batch.words is not None
        assert torch.equal(words, batch.words)
        torch.testing.assert_close(
            found.states[depth].output[words == 1], wanted.states[depth].output[words == 1], **HALF
        )


@pytest.mark.parametrize("kind", ["linear", "mha"])
def test_exits_that_are_read_together_say_what_each_says_alone(
    make_model: Callable[..., MultiExitModel], tokens: Tokens, kind: str
) -> None:
    model = make_model(layers=3, exit_kind=kind, tags=True)
    states = Frozen(model, tokens, (1, 2), nullcontext).lesson(range(14)).states
    for depth, output in read_together(model, states, (1, 2)).items():
        alone = model.read(depth, states[depth])
        torch.testing.assert_close(output.logits, alone.logits, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(output.representation, alone.representation, rtol=0.0, atol=1e-5)


def test_a_run_on_tags_killed_in_either_stage_ends_with_the_same_bits(
    runs: Any, backbone_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "train.jsonl"
    rows = [json.dumps({"tokens": words, "tags": tags}) for words, tags in zip(*toy(40), strict=True)]
    data.write_text("\n".join(rows), "utf-8")
    how = {"data": data, "recipe": "acl", "backbone": str(backbone_folder), "settings": SETTINGS}
    whole, out = tmp_path / "whole", tmp_path / "out"
    ended = runs.fit(whole, **how)
    assert ended.code == 0, ended.output
    total = updates(whole)
    for update in (3, total - 2):
        ended = runs.fit(out, resume=True, kill_when=lambda update=update: updates(out) >= update, **how)
        assert ended.code == KILLED, ended.output
    ended = runs.fit(out, resume=True, **how)
    assert ended.code == 0, ended.output
    assert files(out) == files(whole)
