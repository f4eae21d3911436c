"""LOSS -> PARAMETERS: several processes that train one model together.

A batch is the batch of all of them: each process walks its share of the texts, what the exits say of them is gathered,
and every process takes the loss of all texts. So two processes have the losses and the gradients of one. Started by
`torchrun` or `accelerate launch`; alone, nothing here is called.

A text's vector is read by every process's loss, so its gradient is the sum over processes; a parameter's is the mean,
which is right for those above the gathering, such as label embeddings, too: every process has the whole of their
gradient.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor

from offramp.types import ExitOutput

_T = TypeVar("_T")
Counts = tuple[int, ...]
"""How many of a batch's texts each process has; empty: there is one process."""


def rank() -> int:
    """This process's number; 0 is the one that writes and prints."""
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def begin() -> None:
    """Meet the other processes, where there are any."""
    if count() > 1:
        PartialState()


def end() -> None:
    """Part from them."""
    if dist.is_initialized():
        dist.destroy_process_group()


def begin_alike(tensors: Iterable[Tensor]) -> None:
    """Give every process the numbers of the first."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)


def divided(rows: Sequence[int]) -> tuple[list[int], Counts]:
    """This process's texts, in one piece, and how many each process has.

    Who has none of a last, small batch walks one all the same, because all take part in what is gathered.
    """
    every, mine = count(), rank()
    counts = tuple(len(rows) // every + (place < len(rows) % every) for place in range(every))
    start = sum(counts[:mine])
    return list(rows[start : start + counts[mine]]) or list(rows[:1]), counts


def together(output: ExitOutput, counts: Counts, views: int = 1) -> ExitOutput:
    """What an exit says of the texts of all processes. Label embeddings are the same everywhere and stay."""
    if not counts:
        return output
    representation, logits = gathered(output.representation, counts, views), gathered(output.logits, counts, views)
    return ExitOutput(representation, logits, output.label_embeddings)


def gathered(part: Tensor, counts: Counts, views: int = 1) -> Tensor:
    """The processes' rows one after the other: all in their first view, then all in their second."""
    if not counts:
        return part
    mine = torch.stack([view[: counts[rank()]] for view in part.chunk(views)])  # (views, my texts, ...)
    room = torch.nn.functional.pad(mine, (0, 0) * (part.dim() - 1) + (0, max(counts) - mine.shape[1]))
    found: Tensor = _Gather.apply(room)  # type: ignore[no-untyped-call]  # (processes, views, most texts, ...)
    return torch.cat([found[place, view, :have] for view in range(views) for place, have in enumerate(counts)])


class _Gather(torch.autograd.Function):
    """Everybody's tensors of one shape; backwards, the sum of everybody's gradients at mine."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor) -> Tensor:
        found = [torch.empty_like(mine) for _ in range(count())]
        dist.all_gather(found, mine.contiguous())
        return torch.stack(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total[rank()]


def mean(gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The mean over processes of each gradient, in one message per kind of number."""
    kinds = {gradient.dtype for gradient in gradients if gradient is not None}
    found: list[Tensor | None] = [None] * len(gradients)
    for kind in sorted(kinds, key=str):
        places = [place for place, g in enumerate(gradients) if g is not None and g.dtype == kind]
        chosen = [g for g in (gradients[place] for place in places) if g is not None]
        flat = torch.cat([g.flatten() for g in chosen])
        dist.all_reduce(flat)
        parts = (flat / count()).split([g.numel() for g in chosen])
        for place, part, gradient in zip(places, parts, chosen, strict=True):
            found[place] = part.view_as(gradient)
    return found


def total(values: Tensor) -> Tensor:
    """The sum over processes."""
    values = values.clone()
    dist.all_reduce(values)
    return values


def largest(value: int, device: torch.device) -> int:
    """The largest of the processes' numbers."""
    found = torch.tensor(value, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return int(found)


def all_say(yes: bool) -> bool:
    """Whether all processes say so."""
    return all(everybodys(yes))


def everybodys(value: _T) -> list[_T]:
    """What each process has, in the order of their numbers."""
    found: list[Any] = [None] * count()
    dist.all_gather_object(found, value)
    return found


def of_first(value: _T) -> _T:
    """What the first process has; the others' is not looked at."""
    found = [value]
    dist.broadcast_object_list(found, 0)
    return found[0]
