"""Objectives are found by name and say what they need; a wrong name or setting is answered with what would be right."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES, objective

LABELS = [0, 1, 2, 0, 1]
TAUGHT = [name for name, kind in OBJECTIVES.items() if kind.taught]
SEEN_TWICE = [name for name, kind in OBJECTIVES.items() if kind.views == 2]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("slc", r"`slc` is not a known objective\. Did you mean 'scl'"),
        ("alc", r"Did you mean .*'acl'"),
        ("lancon", r"Did you mean 'lacon'"),
        ("ACL", r"Known: acl, acl-cl, ce, distill, icl, infonce, lacon, lcl, ler, scl\."),
        ("", r"Known: acl, acl-cl, ce, distill, icl, infonce, lacon, lcl, ler, scl\."),
    ],
)
def test_an_unknown_name_is_answered_with_near_or_known_names(name: str, answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        objective(name)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_gives_its_own_objective(name: str) -> None:
    assert type(objective(name)) is OBJECTIVES[name]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_hyper_parameters_are_those_of_the_constructor(name: str) -> None:
    kind = OBJECTIVES[name]
    named = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert sorted(kind.hyper) == sorted(named)
    default = objective(name)
    for key in kind.hyper:  # each is kept under its name, and one that is given is the one that is kept
        mine = getattr(default, key)
        value = ("lcl",) if isinstance(mine, tuple) else "other" if isinstance(mine, str) else 3
        value = torch.ones(3) if key == "class_weights" else value
        assert getattr(objective(name, **{key: value}), key) is value


def test_hyper_parameters_an_objective_does_not_have_are_left_aside() -> None:
    loss = objective("ce", temperature=0.1, weight=0.5, denominator="all", reduction="mean", label_smoothing=0.25)
    assert loss.label_smoothing == 0.25


def test_defaults_are_the_papers() -> None:
    lacon = objective("lacon")
    assert (lacon.heads, lacon.temperature, lacon.weight) == (6, 0.1, 0.5)
    for name in ("acl", "acl-cl"):
        loss = objective(name)
        assert (loss.temperature, loss.weight, loss.denominator, loss.reduction) == (0.5, 0.02, "others", "sum")


PARTS = [("icl", "lcl"), ("icl", "ler"), ("lcl", "ler"), ("icl",), ("lcl",), ("icl", "lcl", "ler")]


@pytest.mark.parametrize("parts", PARTS)
def test_lacon_is_the_sum_of_its_parts(make_batch: Callable[..., Any], parts: tuple[str, ...]) -> None:
    output, labels = make_batch("lacon", LABELS)[:2]
    settings = {"temperature": 0.2, "heads": 2}
    alone = {name: objective(name, **settings)(output, labels).total.item() for name in ("icl", "lcl", "ler")}
    expected = sum((0.3 if name == "ler" else 1.0) * alone[name] for name in parts)
    found = objective("lacon", weight=0.3, parts=parts, **settings)(output, labels)
    assert found.total.item() == pytest.approx(expected, rel=1e-6)
    assert set(found.parts) == set(parts)


@pytest.mark.parametrize("parts", [("ler",), ()])
def test_lacon_sees_the_texts(parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="`parts` should name icl or lcl"):
        objective("lacon", parts=parts)


@pytest.mark.parametrize("wrong", [{"denominator": "self"}, {"reduction": "max"}])
def test_a_wrong_setting_is_named(make_batch: Callable[..., Any], wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong.values()))):
        objective("scl", **wrong)(*make_batch("scl", LABELS))


@pytest.mark.parametrize("heads", [0, 4, 7])
@pytest.mark.parametrize("name", ["icl", "lacon"])
def test_heads_divide_the_width(make_batch: Callable[..., Any], name: str, heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"`heads` should divide the representation's width \(6\)\. Found {heads}\."):
        objective(name, heads=heads)(*make_batch(name, LABELS))


def test_two_objectives_have_a_teacher_and_one_sees_texts_twice() -> None:
    assert (TAUGHT, SEEN_TWICE) == (["acl-cl", "distill"], ["infonce"])
    assert {kind.views for kind in OBJECTIVES.values()} == {1, 2}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_taught_objectives_look_at_the_teacher(make_batch: Callable[..., Any], name: str) -> None:
    output, labels, teacher = make_batch(name, LABELS)
    _, _, somebody = make_batch("distill", LABELS * OBJECTIVES[name].views)
    loss = objective(name, weight=0.5)
    if OBJECTIVES[name].taught:
        other = replace(teacher, representation=-teacher.representation, logits=-teacher.logits)
        assert loss(output, labels, teacher).total != loss(output, labels, other).total
    else:
        assert torch.equal(loss(output, labels).total, loss(output, labels, somebody).total)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_missing_teacher_is_an_error(make_batch: Callable[..., Any], name: str) -> None:
    output, labels, _ = make_batch(name, LABELS)
    with pytest.raises(ConfigError, match=rf"`{name}` should be given a teacher's output\. Found none\."):
        objective(name)(output, labels)


@pytest.mark.parametrize(
    ("name", "part", "shape"),
    [
        ("acl-cl", "representation", (5, 4)),
        ("acl-cl", "representation", (1, 6)),
        ("acl-cl", "label_embeddings", (2, 6)),
        ("distill", "logits", (5, 2)),
        ("distill", "logits", (5, 1)),  # these two would broadcast
        ("distill", "logits", (1, 3)),
    ],
)
def test_a_teacher_of_another_shape_is_an_error(
    make_batch: Callable[..., Any], name: str, part: str, shape: tuple[int, int]
) -> None:
    output, labels, teacher = make_batch(name, LABELS)
    misfit = replace(teacher, **{part: torch.ones(shape)})
    with pytest.raises(ConfigError, match=rf"`{name}` .* `{part}` has the student's shape.* Found \({shape[0]}, "):
        objective(name)(output, labels, misfit)


@pytest.mark.parametrize("labels", [[0, 1, 0], [0, 1, 1, 0]], ids=["an odd number", "other labels"])
@pytest.mark.parametrize("name", SEEN_TWICE)
def test_texts_that_are_not_seen_twice_are_an_error(
    make_batch: Callable[..., Any], name: str, labels: list[int]
) -> None:
    output, truth, _ = make_batch("ce", labels)
    with pytest.raises(ConfigError, match=rf"two views of each text.* Found {len(labels)} outputs"):
        objective(name)(output, truth)
