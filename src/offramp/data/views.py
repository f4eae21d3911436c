"""TEXT -> TOKENS, views: the same text seen otherwise, for objectives that contrast two views of it.

`dropout` leaves the text as it is: the backbone's own dropout makes the difference (SimCSE). The others are ConSERT's:
`shuffle` changes the order of the tokens, `token-cutoff` erases the embeddings of some tokens, `feature-cutoff` erases
some features of all the text's embeddings. ConSERT shuffles the positions and leaves the tokens; to a backbone that
knows the order by positions alone, that is the same.

What is random comes from torch's own generator, as dropout does, and so is the same again where that generator is put
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from offramp.errors import unknown_name
from offramp.types import Batch, States


def shuffle(batch: Batch) -> Batch:
    """The tokens of each text in another order; the first and the last, which are special, stay in place."""
    places = torch.arange(batch.mask.shape[1], device=batch.mask.device)  # (T,)
    lengths = batch.mask.sum(dim=1, keepdim=True)  # (B, 1)
    inner = (places > 0) & (places < lengths - 1)  # (B, T)
    draws = torch.rand(batch.mask.shape, device=batch.mask.device)  # (B, T), below 1
    # Sorted, the draws give the inner tokens new places; whoever stands before or after them keeps its own.
    keys = torch.where(inner, draws + 1.0, torch.where(places > 0, places + 2.0, 0.0))
    order = keys.argsort(dim=1)  # (B, T)
    types = None if batch.token_types is None else batch.token_types.gather(1, order)
    return replace(batch, input_ids=batch.input_ids.gather(1, order), token_types=types)


def token_cutoff(hidden: Tensor, mask: Tensor, share: float) -> Tensor:
    """Zero for a share of each text's tokens, never the first: (B, T, H), (B, T) to (B, T, H)."""
    eligible = mask.bool().clone()  # (B, T)
    eligible[:, 0] = False
    draws = torch.rand(mask.shape, device=mask.device).masked_fill(~eligible, 2.0)  # (B, T)
    rank = draws.argsort(dim=1).argsort(dim=1)  # (B, T)
    erased = rank < _part(eligible.sum(dim=1, keepdim=True), share)  # (B, T)
    return hidden.masked_fill(erased[:, :, None], 0.0)


def feature_cutoff(hidden: Tensor, mask: Tensor, share: float) -> Tensor:
    """Zero for a share of the features, the same for all tokens of a text: (B, T, H) to (B, T, H)."""
    texts, _, width = hidden.shape
    rank = torch.rand(texts, width, device=hidden.device).argsort(dim=1).argsort(dim=1)  # (B, H)
    return hidden.masked_fill((rank < _part(torch.tensor(width), share))[:, None, :], 0.0)


def _part(whole: Tensor, share: float) -> Tensor:
    """This share of a count, rounded down; 0.29 of 100 is 29, though in floating point it is a little less."""
    return (whole.double() * share + 1e-9).floor()


ORDERS: dict[str, Callable[[Batch], Batch]] = {"shuffle": shuffle}
ERASURES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "token-cutoff": token_cutoff,
    "feature-cutoff": feature_cutoff,
}
VIEWS = ("dropout", *ERASURES, *ORDERS)
"""The names of the views."""


@dataclass(frozen=True, slots=True)
class Views:
    """How the texts of a batch are seen: once per name."""

    names: tuple[str, ...]
    cutoff: float = 0.15  # share that a cutoff erases

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in VIEWS:
                raise unknown_name("view", name, VIEWS)

    def batch(self, batch: Batch) -> Batch:
        """Every text once per view: all texts of the first view, then all of the second; (V B, T)."""
        seen = [ORDERS[name](batch) if name in ORDERS else batch for name in self.names]

        def joined(parts: list[Tensor | None]) -> Tensor | None:
            present = [part for part in parts if part is not None]
            return torch.cat(present) if present else None

        return Batch(
            input_ids=torch.cat([one.input_ids for one in seen]),
            mask=torch.cat([one.mask for one in seen]),
            token_types=joined([one.token_types for one in seen]),
            labels=joined([one.labels for one in seen]),
            rows=joined([one.rows for one in seen]),
            weights=joined([one.weights for one in seen]),
        )

    def erase(self, states: States) -> States:
        """The embeddings of such a batch without what the views erase of them."""
        if not ERASURES.keys() & set(self.names):
            return states
        hidden = states.hidden.chunk(len(self.names))
        masks = states.mask.chunk(len(self.names))
        changed = [
            ERASURES[name](part, mask, self.cutoff) if name in ERASURES else part
            for name, part, mask in zip(self.names, hidden, masks, strict=True)
        ]
        together = torch.cat(changed)  # (V B, T, H)
        return replace(states, hidden=together, output=together)
