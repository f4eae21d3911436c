"""How the benchmarks tell their numbers."""

from __future__ import annotations

import pytest
from benchmarks.record import digits


@pytest.mark.parametrize(
    ("value", "told"),
    [(1.0, "1"), (0.99989, "0.9999"), (0.9999999, "0.9999999"), (1.00001, "1.00001"), (18.565, "18.6"), (0.0, "0")],
)
def test_a_share_is_told_as_1_only_where_it_is_1(value: float, told: str) -> None:
    assert digits(value) == told
