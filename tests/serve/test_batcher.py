"""A queue shared by many: bounded, in order, nobody lost, nobody answered with another's answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.errors import ConfigError
from offramp.serve.batcher import Batcher, Closed, QueueFull, Ran

PATIENCE = 30.0  # seconds after which a test has failed


def told(lane: int, key: Hashable, items: list[int]) -> list[tuple[Hashable, int]]:
    return [(key, item) for item in items]


@contextmanager
def running(work: Any = told, **settings: Any) -> Iterator[Batcher[Any, int, Any]]:
    batcher: Batcher[Any, int, Any] = Batcher(work, **settings)
    try:
        yield batcher
    finally:
        batcher.close()


class Gate:
    """Work that tells when it has begun and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Semaphore(0), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, lane: int, key: Hashable, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.begun.release()
        assert self.open.wait(PATIENCE)
        return items


@settings(max_examples=30, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(), max_size=9)), max_size=40),
    lanes=st.integers(1, 3),
    most=st.integers(1, 8),
)
def test_everybody_is_answered_in_order_with_what_was_made_of_their_own_items(
    requests: list[tuple[int, list[int]]], lanes: int, most: int
) -> None:
    with running(lanes=lanes, most=most, wait=0.0005) as batcher, ThreadPoolExecutor(8) as clients:
        sent = list(clients.map(lambda request: batcher.submit(*request), requests))
        found = [future.result(PATIENCE) for future in sent]
    assert found == [[(key, item) for item in items] for key, items in requests]


def test_items_that_wait_share_a_batch_up_to_the_most() -> None:
    gate = Gate()
    with running(gate, most=4, wait=0.0) as batcher:
        first = batcher.submit("a", [0])
        assert gate.begun.acquire(timeout=PATIENCE)
        rest = [batcher.submit("a", [item]) for item in range(1, 7)]
        gate.open.set()
        wait([first, *rest], PATIENCE)
    assert gate.batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_only_items_of_one_key_share_a_batch_and_the_first_to_come_goes_first() -> None:
    gate = Gate()
    with running(gate, most=4, wait=0.0) as batcher:
        sent = [batcher.submit("a", [0])]
        assert gate.begun.acquire(timeout=PATIENCE)
        sent += [batcher.submit(key, [item]) for item, key in enumerate("babab", start=1)]
        gate.open.set()
        wait(sent, PATIENCE)
    assert gate.batches == [[0], [1, 3, 5], [2, 4]]


def test_idle_lanes_share_what_waits() -> None:
    gate = Gate()
    with running(gate, lanes=2, most=8, wait=0.0) as batcher:
        sent = batcher.submit("a", [0, 1, 2, 3])
        assert gate.begun.acquire(timeout=PATIENCE)
        assert gate.begun.acquire(timeout=PATIENCE)
        gate.open.set()
        assert sent.result(PATIENCE) == [0, 1, 2, 3]
    assert sorted(gate.batches) == [[0, 1], [2, 3]]


def test_a_full_queue_refuses_and_takes_again_when_it_is_emptied() -> None:
    gate = Gate()
    with running(gate, capacity=3, most=1, wait=0.0) as batcher:
        running_one = batcher.submit("a", [0])
        assert gate.begun.acquire(timeout=PATIENCE)
        waiting = batcher.submit("a", [1, 2])
        with pytest.raises(QueueFull) as refused:
            batcher.submit("a", [3, 4])
        assert refused.value.seconds >= 1
        assert batcher.waiting == 2
        last = batcher.submit("a", [5])  # there is room for one
        gate.open.set()
        assert [future.result(PATIENCE) for future in (running_one, waiting, last)] == [[0], [1, 2], [5]]
        assert batcher.submit("a", [6, 7, 8]).result(PATIENCE) == [6, 7, 8]


def test_who_cancels_makes_room_and_is_not_run() -> None:
    gate = Gate()
    with running(gate, capacity=2, most=2, wait=0.0) as batcher:
        first = batcher.submit("a", [0])
        assert gate.begun.acquire(timeout=PATIENCE)
        gone = batcher.submit("a", [1, 2])
        assert gone.cancel()
        kept = batcher.submit("a", [3, 4])
        gate.open.set()
        assert (first.result(PATIENCE), kept.result(PATIENCE)) == ([0], [3, 4])
    assert gate.batches == [[0], [3, 4]]


def test_closing_finishes_what_was_accepted_and_takes_nothing_more() -> None:
    gate = Gate()
    batcher: Batcher[str, int, int] = Batcher(gate, most=2, wait=60.0)
    sent = [batcher.submit("a", [0, 1]), batcher.submit("a", [2]), batcher.submit("b", [3])]
    assert gate.begun.acquire(timeout=PATIENCE)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    refused = False
    while not refused:  # until the other thread has come to it
        try:
            sent.append(batcher.submit("a", [4]))
        except Closed:
            refused = True
    gate.open.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert all(future.done() for future in sent)
    assert [future.result() for future in sent[:3]] == [[0, 1], [2], [3]]


def test_what_one_request_breaks_does_not_fail_those_that_share_its_batch() -> None:
    held = threading.Event()

    def work(lane: int, key: Hashable, items: list[int]) -> list[int]:
        assert held.wait(PATIENCE)
        if 13 in items:
            raise ValueError("thirteen")
        return items

    with running(work, most=8, wait=0.0) as batcher:
        sent: list[Future[list[int]]] = [batcher.submit("a", items) for items in ([0], [1, 2], [3, 13], [4])]
        held.set()
        assert [sent[place].result(PATIENCE) for place in (0, 1, 3)] == [[0], [1, 2], [4]]
        with pytest.raises(ValueError, match="thirteen"):
            sent[2].result(PATIENCE)
        assert batcher.submit("a", [5]).result(PATIENCE) == [5]


def test_a_lone_item_waits_no_longer_than_it_was_told_to() -> None:
    seen: list[Ran] = []
    with running(wait=0.05, most=8, watch=seen.append) as batcher:
        begun = time.monotonic()
        batcher.submit("a", [1]).result(PATIENCE)
        assert time.monotonic() - begun >= 0.05
    assert [(ran.items, ran.waited >= 0.05) for ran in seen] == [(1, True)]


def test_a_batch_that_is_full_does_not_wait() -> None:
    with running(wait=PATIENCE, most=2) as batcher:
        assert batcher.submit("a", [1, 2]).result(PATIENCE / 2) == [("a", 1), ("a", 2)]


def test_nothing_is_made_of_nothing() -> None:
    with running() as batcher:
        assert batcher.submit("a", []).result(PATIENCE) == []


@pytest.mark.parametrize("wrong", [{"lanes": 0}, {"most": 0}, {"capacity": 0}, {"wait": -1.0}, {"wait": float("nan")}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}` should be"):
        Batcher(told, **wrong)
