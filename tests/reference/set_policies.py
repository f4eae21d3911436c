"""The policies of label sets as slow loops over Python floats, one text at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = Sequence[float]


def scores(name: str, exits: Sequence[Vector], patience: int = 2) -> list[float]:
    """The score of a text at each exit that is read, from the logits of each, by the policy of this name."""
    found: list[float] = []
    told: list[set[int]] = []
    sure: list[float] = []
    for place, logits in enumerate(exits):
        yes = [1.0 / (1.0 + math.exp(-value)) for value in logits]
        told.append({k for k, p in enumerate(yes) if p >= 0.5})
        sure.append(min(max(p, 1.0 - p) for p in yes))
        if name == "confidence":
            found.append(sure[-1])
        elif name == "margin":
            found.append(min(abs(p - (1.0 - p)) for p in yes))
        elif name == "entropy":
            spread = [-(p * math.log(p) + (1.0 - p) * math.log(1.0 - p)) / math.log(2.0) for p in yes]
            found.append(math.fsum(1.0 - each for each in spread) / len(spread))
        elif name == "patience":
            held = 0
            while held <= place and told[place - held] == told[place]:
                held += 1
            found.append(float(held))
        else:
            found.append(min(sure[-patience:]) if len(sure) >= patience else -math.inf)
    return found
