"""TOKENS -> LAYER STATES: long texts in windows.

A text of several windows stands in a batch as one row of tokens, window after window. The layers see each window as a
text of its own, with positions of its own, and attention stays within it: the cost grows with the length of a text and
not with its square. Whoever reads the states sees the whole row. Windows without any token are not run.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from offramp.types import Batch


def many(width: int, window: int) -> bool:
    """Whether rows of so many tokens hold more than one window; a window of 0 is no limit."""
    return 0 < window < width


def fold(rows: Tensor, window: int, fill: int = 0) -> Tensor:
    """(B, T, ...) to (B * K, window, ...), the last window filled up."""
    texts, width = rows.shape[:2]
    count = -(-width // window)
    missing = rows.new_full((texts, count * window - width, *rows.shape[2:]), fill)
    return torch.cat([rows, missing], dim=1).reshape(texts * count, window, *rows.shape[2:])


def unfold(windows: Tensor, present: Tensor, texts: int, width: int) -> Tensor:
    """The windows that were run, (P, window, H), back in their rows, (B, T, H); zero where none was.

    `present` says of every window, (B * K,), whether it was run.
    """
    every = windows.new_zeros(len(present), *windows.shape[1:])
    every[present] = windows
    return every.reshape(texts, -1, windows.shape[2])[:, :width]


def folded(batch: Batch, window: int, pad: int) -> tuple[Batch, Tensor]:
    """The windows of a batch that hold tokens, as texts of their own, and which of all windows they are, (B * K,)."""
    mask = fold(batch.mask, window)  # (B * K, window)
    present = mask.any(dim=1)  # (B * K,)
    types = None if batch.token_types is None else fold(batch.token_types, window)[present]
    ids = fold(batch.input_ids, window, pad)[present]
    return replace(batch, input_ids=ids, mask=mask[present], token_types=types, labels=None, rows=None), present


def first_tokens(states: Tensor, mask: Tensor, window: int) -> Tensor:
    """The mean of the windows' first tokens, (B, T, H) and (B, T) to (B, H); with one window, its first token."""
    if not many(states.shape[1], window):
        return states[:, 0]
    there = mask[:, ::window, None].to(states.dtype)  # (B, K, 1)
    return (states[:, ::window] * there).sum(dim=1) / there.sum(dim=1)
