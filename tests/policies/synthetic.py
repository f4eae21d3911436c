"""A population of texts under a made-up model with exits, and the scores that each kind of policy would give them.

The answers of neighbouring exits go together: a text is easy or hard for all of them, and what misleads one layer is
carried to the next. The last exit is the best but not perfect, and some texts are right early and wrong late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from offramp.policies.evidence import Scores

LAYERS = 6
EXITS = (1, 2, 3, 4, 5)
Floats = NDArray[np.float64]
Scorer = Callable[[Floats, tuple[int, ...]], Floats]


def population(texts: int, seed: int = 0, classes: int = 4) -> tuple[Floats, NDArray[np.bool_]]:
    """Logits at every exit, (L, N, C), and who is right, (L, N)."""
    draw = np.random.default_rng(seed)
    label, ease = draw.integers(classes, size=texts), draw.normal(size=texts)
    carried = draw.normal(size=(texts, classes))
    layers = []
    for depth in range(1, LAYERS + 1):
        carried = 0.8 * carried + 0.6 * draw.normal(size=(texts, classes))
        seen = carried.copy()
        seen[np.arange(texts), label] += np.maximum(0.75 * depth - 0.2 + 0.8 * ease * np.sqrt(depth), -1.0)
        layers.append(seen * (0.7 + 0.3 * depth))
    logits = np.stack(layers)
    return logits, logits.argmax(axis=2) == label


def _probabilities(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return found


def confidence(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """The top probability."""
    found: Floats = _probabilities(logits[[depth - 1 for depth in exits]]).max(axis=2)
    return found


def entropy(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """One minus the entropy, as a share of its largest."""
    p = _probabilities(logits[[depth - 1 for depth in exits]])
    found: Floats = 1 + (p * np.log(np.maximum(p, 1e-30))).sum(axis=2) / np.log(p.shape[2])
    return found


def energy(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """The log of the sum of exponentials, without bounds."""
    found: Floats = np.log(np.exp(logits[[depth - 1 for depth in exits]]).sum(axis=2))
    return found


def patience(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """How many of the exits that were read gave the same answer in a row: whole numbers with many ties."""
    answers = logits[[depth - 1 for depth in exits]].argmax(axis=2)
    held = np.ones(answers.shape)
    for place in range(1, len(exits)):
        held[place] = np.where(answers[place] == answers[place - 1], held[place - 1] + 1, 1)
    return held


def patient_confidence(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """The lower top probability of the last two exits that were read; nobody leaves at the first."""
    tops = confidence(logits, exits)
    before = np.vstack([np.full((1, tops.shape[1]), -np.inf), tops[:-1]])
    return np.minimum(tops, before)


def prior(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """One guess per text, before any layer: correlated with how sure the last exit will be."""
    sure = confidence(logits, (LAYERS,))[0]
    guess = sure + np.random.default_rng(1).normal(scale=0.1, size=len(sure))
    return np.stack([guess + 0.05 * depth for depth in exits])


def margin(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """The top probability less the second."""
    two = np.sort(_probabilities(logits[[depth - 1 for depth in exits]]), axis=2)[:, :, -2:]
    found: Floats = two[:, :, 1] - two[:, :, 0]
    return found


def anchor(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """A margin of cosines: of the logits' direction with the axes, so that their length plays no part."""
    here = logits[[depth - 1 for depth in exits]]
    two = np.sort(here / np.linalg.norm(here, axis=2, keepdims=True), axis=2)[:, :, -2:]
    found: Floats = two[:, :, 1] - two[:, :, 0]
    return found


def learned(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """A probability to be right, weighed from several scores with weights of each exit's own."""
    weights = np.random.default_rng(2).uniform(0.5, 1.5, size=(LAYERS, 2))
    own = weights[[depth - 1 for depth in exits]]
    sure = own[:, :1] * margin(logits, exits) + own[:, 1:] * entropy(logits, exits) + 0.1 * np.array(exits)[:, None]
    found: Floats = 1 / (1 + np.exp(1 - 2 * sure))
    return found


def vote(logits: Floats, exits: tuple[int, ...]) -> Floats:
    """The votes for the answer over the root of how many voted."""
    answers = logits[[depth - 1 for depth in exits]].argmax(axis=2)
    same = [(answers[: place + 1] == answers[place]).sum(axis=0) / np.sqrt(place + 1) for place in range(len(exits))]
    return np.stack(same)


STATELESS: dict[str, Scorer] = {
    "confidence": confidence,
    "entropy": entropy,
    "margin": margin,
    "energy": energy,
    "anchor": anchor,
    "learned": learned,
    "prior": prior,
}
STATEFUL: dict[str, Scorer] = {"patience": patience, "patient-confidence": patient_confidence, "vote": vote}
SCORERS = STATELESS | STATEFUL


class Population:
    """Many texts, to draw from and to know the truth by."""

    def __init__(self, texts: int, seed: int = 0) -> None:
        self.logits, self.right = population(texts, seed)
        self.answers = self.logits.argmax(axis=2)  # (L, N)
        self.texts = texts
        self.scores = cache(self._scores)

    def _scores(self, name: str, exits: tuple[int, ...]) -> NDArray[np.float32]:
        return SCORERS[name](self.logits, exits).astype(np.float32)  # (E, N)

    def given(self, name: str, rows: NDArray[np.int64]) -> Scores:
        """What `calibrate` takes: a matrix, or for a policy with a state a function of the exits that are read."""
        if name in STATELESS:
            return self.scores(name, EXITS)[:, rows]
        return lambda exits: self.scores(name, exits)[:, rows]

    def depths(self, name: str, thresholds: Mapping[int, float], exits: tuple[int, ...]) -> NDArray[np.int64]:
        """Where each text leaves, (N,): going through the exits that are read, from the deepest to the first."""
        found = np.full(self.texts, LAYERS)
        for depth, scores in reversed(list(zip(exits, self.scores(name, exits), strict=True)) if exits else []):
            found = np.where(scores >= np.float32(thresholds.get(depth, np.inf)), depth, found)
        return found
