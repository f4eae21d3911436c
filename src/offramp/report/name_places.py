"""DECISIONS -> NUMBERS, PICTURES: where names are written beside points so that none lies over another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]
NEAR = 8.0  # points between a mark's middle and its name
RADII = (NEAR, 15.0, 24.0, 36.0, 52.0, 75.0, 105.0)
TURNS = 16  # directions that are tried
MARK = 5.0  # half the side of the square that a mark takes


@dataclass(frozen=True, slots=True)
class PlacedName:
    """A name and the box it takes, in points."""

    text: str
    x: float  # of the middle
    y: float
    width: float
    height: float
    size: float  # of the type
    far: bool  # from its mark: a line should lead to it

    def edge(self, x: float, y: float) -> tuple[float, float]:
        """The point of the box that is nearest to another."""
        across, up = self.width / 2, self.height / 2
        return min(max(x, self.x - across), self.x + across), min(max(y, self.y - up), self.y + up)

    def overlaps(self, other: PlacedName) -> bool:
        """Whether two boxes have an area in common."""
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2
            and abs(self.y - other.y) < (self.height + other.height) / 2
        )

    def covered(self, points: Points, margin: float = 0.0) -> int:
        """How many of the points, (N, 2), lie under the box or no farther from it than the margin."""
        away = np.abs(points - np.array([self.x, self.y]))  # (N, 2)
        return int(((away[:, 0] < self.width / 2 + margin) & (away[:, 1] < self.height / 2 + margin)).sum())


def place(names: list[str], marks: Points, points: Points, side: float, size: float) -> dict[int, PlacedName]:
    """A box for each name near its mark, (C, 2), on a square sheet: over no mark and no other name.

    Of the free places the one that is near and hides few of the points, (N, 2), is taken, one name after the other.
    A name for which there is none is left out.
    """
    found: dict[int, PlacedName] = {}
    for number, name in enumerate(names):
        width, height = _width(name) * size, 1.25 * size
        best: tuple[float, PlacedName] | None = None
        for radius in RADII:
            if best is not None and best[0] <= radius:
                break  # no place farther out costs less
            for turn in range(TURNS):
                angle = 2 * math.pi * turn / TURNS
                x = float(marks[number, 0]) + math.cos(angle) * (radius + width / 2)
                y = float(marks[number, 1]) + math.sin(angle) * (radius + height / 2)
                if not (width / 2 <= x <= side - width / 2 and height / 2 <= y <= side - height / 2):
                    continue
                box = PlacedName(name, x, y, width, height, size, far=radius > NEAR)
                if box.covered(marks, MARK) or any(box.overlaps(other) for other in found.values()):
                    continue
                cost = radius + 3.0 * box.covered(points)
                if best is None or cost < best[0]:
                    best = cost, box
        if best is not None:
            found[number] = best[1]
    return found


def _width(text: str) -> float:
    """About how wide a text is, in units of its size: a reader's own font draws it."""
    return sum(1.0 if east_asian_width(letter) in "WF" else 0.58 for letter in text) + 0.3
