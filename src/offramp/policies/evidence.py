"""LOGITS SO FAR -> LEAVE OR STAY: what held-out texts tell before any threshold: harm, cost, and scores at each exit.

Letters in the shapes: E exits below the last, N texts, or the words of some texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from offramp.errors import ConfigError, DataError
from offramp.policies.path import Floats

Matrix = ArrayLike | Tensor
Scores = Matrix | Callable[[tuple[int, ...]], Matrix]
"""(E, N) scores; or, for a policy with a state, a function that gives scores of exits when just these are read."""

DROP, DISAGREEMENT, LABEL_DROP = "accuracy drop", "disagreement", "accuracy drop of the worst label"
WORD_DROP, WORD_DISAGREEMENT = "texts with a word answered worse", "texts with a word answered differently"
RISKS = (DROP, DISAGREEMENT, LABEL_DROP, WORD_DROP, WORD_DISAGREEMENT)
"""What may be kept low. All are shares of texts, so that a harm is 0 or 1; that of labels is a share for each label."""


def drops(right: Matrix) -> NDArray[np.bool_]:
    """Harm as `accuracy drop`: right at the last exit and wrong here. `right` is (E + 1, N), the result (E, N).

    Its mean bounds the drop in accuracy from above: texts that are wrong at the last exit and right here would make up
    for some of it, and are not counted.

    >>> drops([[1, 0, 0, 1], [1, 1, 0, 0]]).tolist()
    [[False, True, False, False]]
    """
    told = _array(right).astype(bool)
    found: NDArray[np.bool_] = told[-1] & ~told[:-1]
    return found


def differs(answers: Matrix) -> NDArray[np.bool_]:
    """Harm as `disagreement`: the answer is not the last exit's. `answers` is (E + 1, N), the result (E, N).

    It needs no labels.

    >>> differs([[2, 0, 1], [2, 1, 1]]).tolist()
    [[False, True, False]]
    """
    told = _array(answers)
    found: NDArray[np.bool_] = told[:-1] != told[-1]
    return found


@dataclass(frozen=True, slots=True)
class Evidence:
    """N texts at E exits below the last: what leaving there would harm and cost.

    Where texts have sets of labels, a text may be harmed in each of them, and the label with the most harms counts.
    That is valid for all labels at once: where one of them has too high a risk, its own harms are too few with
    probability delta at most, and the harms that are counted are never fewer.

    Where words have tags, each word leaves by itself, and the N of the shapes are words. Words of a text are not
    independent of each other, so what is counted and divided are texts: one is harmed where any of its words is, and it
    costs what its last word costs, because until then its tokens go through the layers.
    """

    harm: NDArray[np.bool_]  # (E, N), whether there is any
    exits: tuple[int, ...]  # (E,) depths, ascending
    cost: NDArray[np.float64]  # (E + 1,), of a text that leaves at each exit, and at the last
    layers: int  # the depth of the last exit
    right: NDArray[np.bool_] | None = None  # (E + 1, N), for the accuracies in the certificate
    of_label: NDArray[np.bool_] | None = None  # (C, E, N), the harm by label, where there are sets of them
    starts: NDArray[np.int64] | None = (
        None  # (texts + 1,), text i has the words starts[i] to starts[i + 1]; None: texts
    )

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return int(self.harm.shape[1]) if self.starts is None else len(self.starts) - 1

    def answers(self, texts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of these texts among the N, or of their words, text after text."""
        if self.starts is None:
            return texts
        pairs = zip(self.starts[texts].tolist(), self.starts[texts + 1].tolist(), strict=True)
        return np.concatenate([np.empty(0, np.int64), *(np.arange(*pair) for pair in pairs)])

    def worst(self, values: NDArray[Any], texts: NDArray[np.int64]) -> NDArray[Any]:
        """Of each of these texts the largest value of its words, 0 for one without: (P, answers) to (P, texts)."""
        if self.starts is None:
            return values
        sizes = self.starts[texts + 1] - self.starts[texts]  # (texts,)
        found = np.zeros((len(values), len(texts)), dtype=values.dtype)
        some = sizes > 0
        if some.any():
            begin = (np.cumsum(sizes) - sizes)[some]
            found[:, some] = np.maximum.reduceat(values, begin, axis=1)
        return found

    @property
    def counted(self) -> NDArray[np.bool_]:
        """What is counted, of which the worst is told: (1, E, N), or of sets (C, E, N)."""
        return self.harm[None] if self.of_label is None else self.of_label

    @property
    def layer_cost(self) -> float:
        """What one layer costs on average."""
        return float(self.cost[-1]) / self.layers


def evidence(
    harm: Matrix,
    exits: Sequence[int],
    layers: int,
    cost: Sequence[float] | None = None,
    right: Matrix | None = None,
    starts: Matrix | None = None,
) -> Evidence:
    """Checked evidence. `cost` has a number per exit and one for the last; without it a layer costs 1.

    `harm` is (E, N), or (C, E, N) where each of C labels has its own. With `starts`, (texts + 1,), the N are words, and
    text i has those from starts[i] to before starts[i + 1].
    """
    depths = tuple(int(depth) for depth in exits)
    if list(depths) != sorted(set(depths)) or any(not 1 <= depth < layers for depth in depths):
        raise ConfigError(f"`exits` should be depths from 1 to {layers - 1}, ascending. Found {list(depths)}.")
    of_label = _array(harm)
    harmed = np.asarray(of_label.any(axis=0)) if of_label.ndim == 3 else of_label
    if harmed.ndim != 2 or len(harmed) != len(depths):
        raise ConfigError(f"`harm` should have a row for each of {len(depths)} exits. Found shape {harmed.shape}.")
    if not np.isin(of_label, (0, 1)).all():
        raise ConfigError("`harm` should be 0 or 1 for every text. Found other values.")
    told = None if right is None else _array(right).astype(bool)
    if told is not None and told.shape != (len(depths) + 1, harmed.shape[1]):
        raise ConfigError(
            f"`right` should have shape {(len(depths) + 1, harmed.shape[1])}: the exits and the last. "
            f"Found {told.shape}."
        )
    costs = np.asarray([*depths, layers] if cost is None else cost, dtype=np.float64)
    if costs.shape != (len(depths) + 1,) or not np.isfinite(costs).all() or (np.diff(costs, prepend=0.0) < 0).any():
        raise ConfigError(
            f"`cost` should be {len(depths) + 1} numbers that do not fall, of the exits and the last. "
            f"Found {costs.tolist()}."
        )
    by_label = of_label.astype(bool) if of_label.ndim == 3 else None
    begun = None if starts is None else _array(starts).astype(np.int64)
    if begun is not None and (
        by_label is not None or begun[0] != 0 or begun[-1] != harmed.shape[1] or (np.diff(begun) < 0).any()
    ):
        raise ConfigError(
            f"`starts` should rise from 0 to the number of words, {harmed.shape[1]}, each of which has one label. "
            f"Found {begun.tolist()[:8]}."
        )
    return Evidence(harmed.astype(bool), depths, costs, layers, told, by_label, begun)


class Scoring:
    """A policy's scores by the exits that are read, each set of exits asked for once."""

    def __init__(self, scores: Scores, evidence: Evidence) -> None:
        self.exits, self.rows = evidence.exits, int(evidence.harm.shape[1])
        self.ask = scores if callable(scores) else None
        self.known = {} if callable(scores) else {self.exits: self._clean(scores, self.exits)}

    @property
    def stateful(self) -> bool:
        """Whether a score depends on the exits that were read before."""
        return self.ask is not None

    def of(self, exits: tuple[int, ...]) -> Floats:
        """Scores of all texts or words when just these exits are read, (E, N), float32."""
        if exits not in self.known:
            if self.ask is None:
                return self.known[self.exits][[self.exits.index(depth) for depth in exits]]
            asked = self.ask(exits) if exits else np.empty((0, self.rows))
            self.known[exits] = self._clean(asked, exits)
        return self.known[exits]

    def _clean(self, scores: Matrix, exits: tuple[int, ...]) -> Floats:
        found = _array(scores).astype(np.float32)
        if found.shape != (len(exits), self.rows):
            raise DataError(
                f"`scores` should have shape {(len(exits), self.rows)}: exits by texts. Found {found.shape}."
            )
        # What is not a number reaches no threshold, and an endless score any: as in `score >= threshold`.
        return np.minimum(np.where(np.isnan(found), -np.inf, found), np.finfo(np.float32).max).astype(np.float32)


def _array(values: Matrix) -> NDArray[Any]:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    plain = values.detach().cpu()
    return np.asarray((plain.float() if plain.is_floating_point() else plain).numpy())  # numpy has no bfloat16
