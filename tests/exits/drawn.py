"""Exits with random weights, none of them 0, and random states for them."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import BertConfig

from offramp.exits.base import Exit
from offramp.exits.kinds import EXITS
from offramp.exits.model import MultiExitConfig

HIDDEN = 12
LENGTHS = (7, 1, 4)

E = TypeVar("E", bound=Exit)


def drawn(exit: E, seed: int = 0) -> E:
    """The exit with every weight drawn anew, dropout off."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in exit.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draw))
    return exit.train(False)


def new_exit(kind: str, classes: int = 3, **fields: Any) -> Exit:
    """An exit of a kind as the model builds it, without dropout unless asked."""
    settings = {"exit_size": 8, "exit_heads": 2, "exit_window": 3, "exit_dropout": 0.0, **fields}
    config = MultiExitConfig(labels=[f"label {k}" for k in range(classes)], **settings)
    return EXITS[kind](config, BertConfig(hidden_size=HIDDEN, num_attention_heads=2))


def make_exit(kind: str, classes: int = 3, **fields: Any) -> Exit:
    """The same with every weight drawn anew, dropout off."""
    return drawn(new_exit(kind, classes, **fields))


def make_states(lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> tuple[Tensor, Tensor]:
    """States (B, T, H) that are random in the padding too, and their mask (B, T)."""
    states = torch.randn(len(lengths), max(lengths), HIDDEN, generator=torch.Generator().manual_seed(seed))
    return states, (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
