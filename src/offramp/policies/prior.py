"""LOGITS SO FAR -> LEAVE OR STAY: the depth is chosen before any layer runs, from the tokens alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from offramp.errors import ConfigError
from offramp.policies.learned import check_fitted
from offramp.policies.logistic import fit_logistic, standardised
from offramp.policies.replay import Pooled
from offramp.policies.scored import Scored
from offramp.types import Batch, ExitOutput

BUCKETS = 4096
STRENGTH = 1.0  # C of the regression: a bag of tokens has a length of about 1


def buckets(batch: Batch, count: int) -> Tensor:
    """The bucket of each token, (B, T) int64.

    The remainder is hash enough: vocabularies list frequent tokens near each other, and those do not meet.
    """
    return batch.input_ids % count


def lengths(batch: Batch) -> Tensor:
    """How many tokens each text has, (B,) float32, at least 1."""
    return batch.mask.sum(dim=1).clamp(min=1).float()


class Prior(Scored):
    """The probability that an exit will be right, from the text's length n and its tokens t.

        score_d = sigmoid( sum_t w_d[t mod M] / sqrt(n) + v_d log n + b_d ),   M buckets

    All exits are scored at the start, so that a text's depth is known before any layer runs. An exit is read only
    because the one that answers must be.

    Differences: this policy is not from a paper.

    It knows texts only, and not the words of one.

    Inputs: `batch.input_ids` and `batch.mask` (B, T). Needs `tensors` (`fit_prior`): weight (M, L), length (L,) and
    bias (L,), NaN for an exit that was not fitted, which is not read. State (B, L): the scores.
    Related: `learned` predicts the same from the exit's own output.

    >>> import torch
    >>> from offramp.types import Batch
    >>> tensors = {"weight": torch.tensor([[0.0], [4.0]]), "length": torch.zeros(1), "bias": torch.zeros(1)}
    >>> policy = Prior(0.5, tensors)
    >>> policy.start(Batch(torch.tensor([[6, 8], [5, 0]]), torch.tensor([[1, 1], [1, 0]])))
    tensor([[0.5000],
            [0.9820]])
    """

    takes_words: ClassVar[bool] = False

    def __init__(self, thresholds: float | Mapping[int, float], tensors: Mapping[str, Tensor]) -> None:
        super().__init__(thresholds)
        if set(tensors) != {"weight", "length", "bias"}:
            raise ConfigError(
                "The tensors of the policy `prior` should be weight, length and bias. "
                f"Found {', '.join(sorted(tensors))}."
            )
        self.weight, self.length, self.bias = (tensors[name].float() for name in ("weight", "length", "bias"))
        fitted = (~self.bias.isnan()).nonzero()[:, 0] + 1  # depths
        self.fitted = dict.fromkeys(fitted.tolist())
        check_fitted("prior", self.thresholds, self.fitted)

    def reads(self, depth: int) -> bool:
        """Every exit that was fitted and has a threshold."""
        return depth in self.fitted and super().reads(depth)

    def start(self, batch: Batch) -> Tensor:
        """The score of each text at each exit, (B, L)."""
        device = batch.input_ids.device
        weight, length, bias = (part.to(device) for part in (self.weight, self.length, self.bias))
        bag = functional.embedding_bag(
            buckets(batch, len(weight)), weight, mode="sum", per_sample_weights=batch.mask.to(weight.dtype)
        )  # (B, L)
        n = lengths(batch)[:, None]  # (B, 1)
        return torch.sigmoid(bag * n.rsqrt() + length * n.log() + bias)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """What was known of this exit at the start."""
        return state[:, depth - 1], state

    def state(self) -> dict[str, Tensor]:
        """What was fitted as named tensors, to be saved."""
        return {"weight": self.weight, "length": self.length, "bias": self.bias}


def fit_prior(pooled: Pooled, labels: Tensor, exits: Sequence[int]) -> dict[str, Tensor]:
    """The tensors of a `Prior`, from what these exits said of N held-out texts with these labels, (N,)."""
    batch, layers = pooled.batch, max(exits)
    n = lengths(batch).cpu()  # (N,)
    scaled, mean, deviation = standardised(n.log()[:, None])  # (N, 1), (1,), (1,)
    rows, places = batch.mask.cpu().nonzero(as_tuple=True)  # of every token
    columns = buckets(batch, BUCKETS).cpu()[rows, places]
    texts = torch.arange(len(batch))
    # The length stands behind the buckets.
    index = torch.stack([torch.cat([rows, texts]), torch.cat([columns, torch.full_like(texts, BUCKETS)])])
    values = torch.cat([n.rsqrt()[rows].double(), scaled[:, 0]])
    # (N, M + 1); a token that stands twice in a text counts twice.
    given = torch.sparse_coo_tensor(index, values, (len(batch), BUCKETS + 1), check_invariants=True)
    weight, length = torch.zeros(BUCKETS, layers), torch.zeros(layers)
    bias = torch.full((layers,), torch.nan)
    for depth in exits:
        logits = pooled.outputs[depth].logits
        found, offset = fit_logistic(given, logits.argmax(dim=1) == labels.to(logits.device), STRENGTH)
        slope = found[-1] / deviation[0]
        weight[:, depth - 1], length[depth - 1] = found[:-1].float(), slope.float()
        bias[depth - 1] = (offset - slope * mean[0]).float()
    return {"weight": weight, "length": length, "bias": bias}
