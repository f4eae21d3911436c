"""LOGITS SO FAR -> LEAVE OR STAY: a policy over outputs that were kept, to try any thresholds without a model.

`depths(scores(policy, pooled, exits), thresholds, exits, last)` are the depths at which the texts would have left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.scored import Scored
from offramp.types import Batch, ExitOutput


@dataclass(frozen=True, slots=True)
class Pooled:
    """What every exit said of N texts, or of the words of some texts, none of which left."""

    batch: Batch  # the tokens of the N texts, padded to the longest; where words have tags, with their marks
    outputs: Mapping[int, ExitOutput]  # by depth: representation (N, D), logits (N, C), label embeddings (C, D)


@torch.no_grad()
def scores(policy: Scored, pooled: Pooled, exits: Sequence[int]) -> Tensor:
    """The score of each text at each of these exits, (E, N), when just these are read and nobody leaves."""
    _check_rising(exits)
    state = pooled.batch.to_answers(policy.start(pooled.batch))  # (N, S)
    found: list[Tensor] = []
    for depth in exits:
        score, state = policy.score(depth, pooled.outputs[depth], state.to(pooled.outputs[depth].logits.device))
        found.append(score)
    return torch.stack(found) if found else torch.empty(0, pooled.batch.answers)


def depths(scores: Tensor, thresholds: Tensor, exits: Sequence[int], last: int) -> Tensor:
    """Where each text leaves, (N,) int64: the first exit whose score reaches its threshold, else `last`.

    `scores` (E, N), `thresholds` (E,).
    """
    _check_rising(exits)
    # As a policy compares: in the precision of the scores.
    reached = scores >= thresholds.to(scores)[:, None]  # (E, N)
    stops = torch.tensor([*exits, last], device=scores.device)[:, None]  # (E + 1, 1)
    everybody = reached.new_ones(1, scores.shape[1])  # leaves at the last
    return stops.where(torch.cat([reached, everybody]), last).amin(dim=0)


def _check_rising(exits: Sequence[int]) -> None:
    if any(shallow >= deep for shallow, deep in pairwise(exits)):
        raise ConfigError(f"Exits should be given once each, from the shallowest to the deepest. Found {list(exits)}.")
