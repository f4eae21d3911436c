"""LOSS -> PARAMETERS: AdamW with a rate for the backbone and one for the exits, clipped and scheduled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from offramp.config import OptimiseConfig
from offramp.exits.model import MultiExitModel
from offramp.optimise import processes
from offramp.optimise.row_gradients import RowGradients


def rate(update: int, updates: int, warmup: float) -> float:
    """The share of the peak learning rate at an update: a linear rise, then a linear fall to 0."""
    rise = warmup * updates
    if update < rise:
        return (update + 1) / (rise + 1)
    return max(0.0, (updates - update) / max(1.0, updates - rise))


class Update:
    """Turns gradients into parameters."""

    def __init__(
        self, model: MultiExitModel, trainable: Iterable[Tensor], config: OptimiseConfig, apart: Sequence[str] = ()
    ) -> None:
        """`apart` names, for each trainable parameter, the part whose gradients are clipped by their own norm."""
        listed = list(trainable)
        chosen = {id(parameter) for parameter in listed}
        self.part_of = dict(zip(map(id, listed), apart, strict=True)) if apart else {}
        self.config = config
        self.parameters: list[nn.Parameter] = []
        groups: list[dict[str, object]] = []
        for part, peak in ((model.encoder, config.lr_backbone), (model.exits, config.lr_exit)):
            mine = [p for p in part.parameters() if id(p) in chosen]
            for decays in (True, False):
                # Biases and normalisations are one-dimensional and are not decayed.
                members = [p for p in mine if (p.ndim > 1) == decays]
                if members:
                    decay = config.weight_decay if decays else 0.0
                    groups.append({"params": members, "lr": peak, "peak": peak, "weight_decay": decay})
                    self.parameters += members
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        words = model.encoder.family.word_embeddings(model.encoder.backbone)
        # Processes that train together touch each other's rows.
        here = words.weight.device.type == "cpu" and id(words.weight) in chosen and processes.count() == 1
        self.rows = RowGradients(words) if here else None

    def share_out(self) -> None:
        """Give every process the gradients of all processes."""
        gradients = processes.mean([parameter.grad for parameter in self.parameters])
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def apply(self, share: float) -> float:
        """One update at this share of the peak rates; the gradients are used up. Returns their norm.

        Where the norm is not finite, the parameters stay as they are.
        """
        self._lay_out()
        norm = self._clip()
        if not math.isfinite(norm):
            self.clear()
            return norm
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        if self.rows is not None:
            self.rows.spread()
        self.optimizer.step()
        self.clear()
        return norm

    def clear(self) -> None:
        """Forget the gradients."""
        if self.rows is not None:
            self.rows.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def close(self) -> None:
        """Leave the model as it was found, parameters apart."""
        self.clear()
        if self.rows is not None:
            self.rows.close()

    def _lay_out(self) -> None:
        """Let every gradient lie in memory as its parameter does.

        torch's fused update goes through both from end to end and looks at neither's strides, and a gradient that was
        not left by `backward` may be a transposed one: its numbers would move parameters that they are not of.
        """
        for parameter in self.parameters:
            gradient = parameter.grad
            if gradient is not None and not gradient.is_sparse and gradient.stride() != parameter.stride():
                parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(gradient)

    def _clip(self) -> float:
        """Shorten the gradients, those of each part that learns apart by themselves; the norm of all."""
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for p in self.parameters:
            if p.grad is not None and not p.grad.is_sparse:
                parts[self.part_of.get(id(p), "")].append(p.grad)
        if self.rows is not None and (values := self.rows.values()) is not None:
            parts[""].append(values)
        norms = []
        for gradients in parts.values():
            norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
            if self.config.clip and norm > self.config.clip:
                torch._foreach_mul_(gradients, self.config.clip / (norm + 1e-6))
            norms.append(norm)
        return math.hypot(*norms)
