"""Texts are taken a portion at a time, and what a pipe has sent is not kept waiting."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.data import incoming
from offramp.data.incoming import Incoming, Portion, as_they_come, portion
from offramp.data.sources import stream
from offramp.errors import DataError
from offramp.types import Example

A, B, C = Example("a"), Example("b"), Example("c")


@given(st.binary(max_size=40), st.integers(1, 9))
def test_lines_are_those_of_the_handle_however_they_arrive(content: bytes, piece: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(piece)

    assert list(Incoming(Slow(content))) == list(io.BytesIO(content))


def test_a_pipe_is_quiet_until_something_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PAUSE", 0.0)
    out, into = os.pipe()
    with open(out, "rb") as handle:
        source = Incoming(handle)
        assert source.quiet()
        os.write(into, b"one\ntwo\nthr")
        assert not source.quiet()
        lines = iter(source)
        assert next(lines) == b"one\n"
        assert not source.quiet()  # the second line was read with the first
        assert next(lines) == b"two\n"
        assert source.quiet()  # half a line is none
        os.write(into, b"ee\n")
        assert not source.quiet()
        os.close(into)
        assert list(lines) == [b"three\n"]
        assert not source.quiet()  # that it ended need not be waited for


def test_what_cannot_be_asked_is_never_quiet() -> None:
    assert not Incoming(io.BytesIO()).quiet()


def test_texts_of_a_pipe_come_with_a_mark_where_it_falls_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PAUSE", 0.0)
    out, into = os.pipe()
    with open(out, "rb") as handle:
        source = Incoming(handle)
        texts = as_they_come(stream(source), source)
        os.write(into, b"a\nb\n")
        assert [next(texts) for _ in range(3)] == [A, B, None]
        os.write(into, b"c")
        os.close(into)
        assert list(texts) == [C]


@pytest.mark.parametrize(
    ("texts", "portions"),
    [
        ([], [Portion([], more=False)]),
        ([A], [Portion([A], more=False)]),
        ([A, B], [Portion([A, B], more=True), Portion([], more=False)]),
        ([A, B, C], [Portion([A, B], more=True), Portion([C], more=False)]),
        ([A, None, B, C], [Portion([A], more=True), Portion([B, C], more=True), Portion([], more=False)]),
        ([None, A], [Portion([], more=True), Portion([A], more=False)]),
    ],
)
def test_portions_end_when_they_are_full_or_a_mark_says_so(texts: list[Example | None], portions: list[object]) -> None:
    rest = iter(texts)
    assert [portion(rest, 2) for _ in portions] == portions


def test_texts_before_a_bad_one_are_in_its_portion() -> None:
    def texts() -> Iterator[Example]:
        yield A
        raise DataError("bad")

    found = portion(texts(), 9)
    assert (found.texts, found.more) == ([A], False)
    assert "bad" in str(found.bad)
