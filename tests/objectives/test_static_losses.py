"""The losses by which a student looks at its teacher equal slow loops, and padding has no part in them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from offramp.objectives.distilbert import cosine_distance
from offramp.objectives.tinybert import attention_distance, hidden_distance

LENGTHS = (3, 1, 4)
MASK = (torch.arange(4) < torch.tensor(LENGTHS)[:, None]).long()  # (3, 4)
Distance = Callable[[Tensor, Tensor, Tensor], Tensor]


def slow_cosine(own: Tensor, teacher: Tensor) -> float:
    found = []
    for text, length in enumerate(LENGTHS):
        for token in range(length):
            a, b = own[text, token].tolist(), teacher[text, token].tolist()
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            found.append(1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b)))
    return sum(found) / len(found)


def slow_hidden(own: Tensor, teacher: Tensor) -> float:
    found = [
        (float(own[text, token, place]) - float(teacher[text, token, place])) ** 2
        for text, length in enumerate(LENGTHS)
        for token in range(length)
        for place in range(own.shape[2])
    ]
    return sum(found) / len(found)


def slow_attention(own: Tensor, teacher: Tensor) -> float:
    by_head = []
    for head in range(own.shape[1]):
        found = [
            (float(own[text, head, i, j]) - float(teacher[text, head, i, j])) ** 2
            for text, length in enumerate(LENGTHS)
            for i in range(length)
            for j in range(length)
        ]
        by_head.append(sum(found) / len(found))
    return sum(by_head) / len(by_head)


DISTANCES: dict[str, tuple[Distance, Callable[[Tensor, Tensor], float], tuple[int, ...]]] = {
    "cosine": (cosine_distance, slow_cosine, (3, 4, 5)),
    "hidden": (hidden_distance, slow_hidden, (3, 4, 5)),
    "attention": (attention_distance, slow_attention, (3, 2, 4, 4)),
}


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_distance_equals_its_slow_loop(name: str) -> None:
    distance, slow, shape = DISTANCES[name]
    own, teacher = drawn(shape, 0), drawn(shape, 1)
    assert float(distance(own, teacher, MASK)) == pytest.approx(slow(own, teacher), rel=1e-12)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_student_that_equals_its_teacher_has_no_distance(name: str) -> None:
    distance, _, shape = DISTANCES[name]
    own = drawn(shape, 0)
    assert float(distance(own, own.clone(), MASK)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", DISTANCES)
def test_padding_has_no_part_in_a_distance(name: str) -> None:
    distance, _, shape = DISTANCES[name]
    own, teacher = drawn(shape, 0), drawn(shape, 1)
    other = own.clone()
    if name == "attention":
        outside = ~(MASK.bool()[:, None, :, None] & MASK.bool()[:, None, None, :]).expand(shape)
    else:
        outside = ~MASK.bool()[:, :, None].expand(shape)
    other[outside] = 99.0
    assert torch.equal(distance(own, teacher, MASK), distance(other, teacher, MASK))


@pytest.mark.parametrize("name", DISTANCES)
def test_the_gradient_is_right_and_the_teacher_gets_none(name: str) -> None:
    distance, _, shape = DISTANCES[name]
    own, teacher = drawn(shape, 0).requires_grad_(), drawn(shape, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distance(x, teacher, MASK), (own,))
    distance(own, teacher, MASK).backward()
    assert teacher.grad is None


@pytest.mark.parametrize("name", DISTANCES)
def test_half_precision_is_widened(name: str) -> None:
    distance, slow, shape = DISTANCES[name]
    own, teacher = drawn(shape, 0).bfloat16(), drawn(shape, 1).bfloat16()
    found = distance(own, teacher, MASK)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(slow(own, teacher), rel=1e-4)
