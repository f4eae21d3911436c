"""LOGITS SO FAR -> LEAVE OR STAY: leave when a small head that was fitted for it says the exit is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from offramp.errors import ConfigError
from offramp.policies.confidence import confidence
from offramp.policies.entropy import concentration
from offramp.policies.logistic import fit_logistic, standardised
from offramp.policies.margin import margin
from offramp.policies.replay import Pooled
from offramp.policies.scored import Scored
from offramp.types import ExitOutput

Heads = Mapping[int, tuple[Tensor, Tensor]]
"""By depth: weights (D + 3,) and bias ()."""

STRENGTH = 0.1  # C of the regression: a representation has hundreds of features, held-out texts are few


def features(output: ExitOutput) -> Tensor:
    """What a head reads, (B, D + 3): the representation, the top probability, the margin, the concentration."""
    read = (confidence(output.logits), margin(output.logits), concentration(output.logits))
    return torch.cat([output.representation.float(), torch.stack(read, dim=1)], dim=1)


class Learned(Scored):
    """The probability that the exit is right, by a logistic head of its own.

        score_d = sigmoid(w_d . [h, p_(1), p_(1) - p_(2), 1 - H / log K] + b_d)

    Reference: Xin et al., BERxiT: Early Exiting for BERT with Better Fine-Tuning and Extension to Regression (learning
    to exit).

    Differences: the paper trains one head for all layers, on the state alone, with a squared error and beside the
    exits. Here each exit has its own, which also reads what the exit's probabilities look like, and is fitted by
    maximum likelihood on held-out texts once the exits are trained: on training texts an exit is right too often.

    Inputs: `output.representation` (B, D), `output.logits` (B, C). Needs heads (`fit_heads`); an exit without one is
    not read. Related: `prior` predicts the same before any layer runs.

    >>> import torch
    >>> from offramp.types import ExitOutput
    >>> output = ExitOutput(torch.tensor([[2.0]]), torch.zeros(1, 2), torch.zeros(2, 1))
    >>> policy = Learned(0.5, {1: (torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor(-2.0))})
    >>> policy.score(1, output, torch.empty(1, 0))[0].tolist()
    [0.5]
    """

    def __init__(self, thresholds: float | Mapping[int, float], heads: Heads) -> None:
        super().__init__(thresholds)
        self.heads = {depth: (weight.float(), bias.float()) for depth, (weight, bias) in heads.items()}
        check_fitted("learned", self.thresholds, self.heads)

    def reads(self, depth: int) -> bool:
        """Every exit with a head and a threshold."""
        return depth in self.heads and super().reads(depth)

    def score(self, depth: int, output: ExitOutput, state: Tensor) -> tuple[Tensor, Tensor]:
        """How probably this exit is right of each text."""
        given = features(output)  # (B, D + 3)
        if depth not in self.heads or len(self.heads[depth][0]) != given.shape[1]:
            found = f"one of {len(self.heads[depth][0])}" if depth in self.heads else "none"
            raise ConfigError(
                f"The policy `learned` should have a head of {given.shape[1]} weights for depth {depth}. "
                f"Found {found}. Fit it to this model."
            )
        weight, bias = (part.to(given.device) for part in self.heads[depth])
        with torch.autocast(device_type=given.device.type, enabled=False):
            return torch.sigmoid(given @ weight + bias), state

    def state(self) -> dict[str, Tensor]:
        """The heads as named tensors, to be saved."""
        weights = {f"{depth}.weight": weight for depth, (weight, _) in self.heads.items()}
        return weights | {f"{depth}.bias": bias for depth, (_, bias) in self.heads.items()}

    @classmethod
    def from_state(cls, thresholds: float | Mapping[int, float], tensors: Mapping[str, Tensor]) -> Learned:
        """The policy with the heads that `state` gave."""
        depths = {name.partition(".")[0] for name in tensors}
        wanted = {f"{depth}.{part}" for depth in depths for part in ("weight", "bias")}
        if wanted != set(tensors) or not all(depth.isdecimal() for depth in depths):
            raise ConfigError(
                "The tensors of the policy `learned` should be named DEPTH.weight and DEPTH.bias. "
                f"Found {', '.join(sorted(tensors))}."
            )
        heads = {int(depth): (tensors[f"{depth}.weight"], tensors[f"{depth}.bias"]) for depth in depths}
        return cls(thresholds, dict(sorted(heads.items())))


def check_fitted(name: str, thresholds: float | Mapping[int, float], fitted: Mapping[int, object]) -> None:
    """Refuse a threshold of an exit that was not fitted."""
    lacking = sorted(set(thresholds) - set(fitted)) if isinstance(thresholds, Mapping) else []
    if lacking:
        raise ConfigError(
            f"The policy `{name}` should have thresholds for exits it was fitted to, {sorted(fitted)}. "
            f"Found depth {lacking[0]}."
        )


def fit_heads(pooled: Pooled, labels: Tensor, exits: Sequence[int]) -> dict[int, tuple[Tensor, Tensor]]:
    """A head for each of these exits, from what they said of N held-out texts with these labels, (N,)."""
    heads: dict[int, tuple[Tensor, Tensor]] = {}
    for depth in exits:
        output = pooled.outputs[depth]
        given, mean, deviation = standardised(features(output))  # (N, D + 3), (D + 3,), (D + 3,)
        weight, bias = fit_logistic(given, output.logits.argmax(dim=1) == labels.to(given.device), STRENGTH)
        weight = weight / deviation.cpu()
        heads[depth] = (weight.float(), (bias - weight.double() @ mean.cpu()).float())
    return heads
