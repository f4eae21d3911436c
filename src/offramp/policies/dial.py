"""LOGITS SO FAR -> LEAVE OR STAY: the dial between quality and speed: a calibrated policy at other points of its path.

Points are tested from the safest on, until one is not certified. Those before it are certified as well, all at once
with the confidence that was asked for, so that a user may turn back from the chosen point towards quality and keep the
promise. Beyond the last certified point nothing is promised, and what stands there was measured only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from offramp.errors import ModelError

POINTS = 21
"""At most so many points, and the chosen one."""


@dataclass(frozen=True, slots=True)
class DialPoint:
    """Thresholds, and what they did to the certification texts."""

    thresholds: Mapping[int, float]  # by depth, where texts may leave
    exits: tuple[int, ...]  # that are read
    mean_depth: float
    harms: int
    accuracy: float | None  # None where the texts had no labels
    certified: bool

    @property
    def rule(self) -> dict[int, float]:
        """The threshold of every exit that is read; infinite where the exit is read for the policy's state alone."""
        return {depth: self.thresholds.get(depth, math.inf) for depth in self.exits}


@dataclass(frozen=True, slots=True)
class Dial:
    """Points of a path from the safest, where nobody leaves, to the boldest."""

    points: tuple[DialPoint, ...]
    chosen: int  # place of the certificate's point
    texts: int  # that all of this was measured on
    by_exit: Mapping[int, float]  # accuracy if every text left there; empty where the texts had no labels

    def to_json(self) -> str:
        """The record as JSON; depths become strings."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Dial:
        """The dial that `to_json` wrote."""
        try:
            record = json.loads(text)
            points = tuple(
                DialPoint(**point | {"thresholds": _by_depth(point["thresholds"]), "exits": tuple(point["exits"])})
                for point in record["points"]
            )
            found = cls(**record | {"points": points, "by_exit": _by_depth(record["by_exit"])})
            found.points[found.chosen]  # it must be there
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ModelError(f"The dial cannot be read: {error}. Run `offramp calibrate` again.") from error
        return found


def spread(depths: Sequence[float], chosen: int, points: int = POINTS) -> list[int]:
    """Places of at most so many points whose mean depths are spread evenly, with the first, the last and the chosen.

    >>> spread([6.0, 5.9, 5.8, 4.0, 2.2, 2.1, 2.0], chosen=1, points=3)
    [0, 1, 3, 6]
    """
    high, low = depths[0], depths[-1]
    targets = [high + (low - high) * step / (points - 1) for step in range(points)]
    near = {min(range(len(depths)), key=lambda place: abs(depths[place] - target)) for target in targets}
    return sorted(near | {0, chosen, len(depths) - 1})


def _by_depth(record: Mapping[str, float]) -> dict[int, float]:
    return {int(depth): float(value) for depth, value in record.items()}
