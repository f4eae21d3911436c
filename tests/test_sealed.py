"""Sealed JSON comes back as it was, or is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.sealed import SEAL, sealed, unsealed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FACTS = st.dictionaries(st.text().filter(lambda name: name != SEAL), VALUES, max_size=4)


@given(FACTS)
def test_facts_come_back(facts: dict[str, object]) -> None:
    assert unsealed(sealed(facts).encode()) == facts


@given(FACTS, st.data())
def test_a_changed_byte_is_refused(facts: dict[str, object], data: st.DataObject) -> None:
    content = bytearray(sealed(facts).encode())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        unsealed(bytes(content))


@given(st.binary(max_size=40))
def test_any_other_bytes_are_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        unsealed(content)


@pytest.mark.parametrize("content", [b"null", b"[]", b"{}", b'{"seal": 3}', b"[" * 100_000, b"\xff", b""])
def test_what_has_no_seal_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        unsealed(content)


def test_numbers_without_end_are_kept() -> None:
    assert unsealed(sealed({"score": -math.inf}).encode()) == {"score": -math.inf}
