"""The papers' exits as slow loops: one text, one head, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class MhaOutput(NamedTuple):
    representation: Tensor  # (B, D)
    logits: Tensor  # (B, C)


def mha(weights: Mapping[str, Tensor], heads: int, states: Tensor, mask: Tensor) -> MhaOutput:
    """ACL section 3.2 with the attention of Vaswani et al. 2017, section 3.2.2.

    Every token is taken down to d_e and through tanh; every token attends to all tokens of its text, head by head; the
    first token's vector goes through tanh: the representation, which a linear layer classifies. Padding does not exist
    here: a text is cut to its own length. `weights` are named as in the exit; queries, keys and values lie one below
    the other in `attention.in_proj_*`.
    """
    size = weights["down.weight"].shape[0]
    width = size // heads
    query, key, value = weights["attention.in_proj_weight"].split(size)
    query_bias, key_bias, value_bias = weights["attention.in_proj_bias"].split(size)
    representations = []
    for text in range(len(states)):
        length = int(mask[text].sum())
        narrow = [torch.tanh(weights["down.weight"] @ states[text, t] + weights["down.bias"]) for t in range(length)]
        attended = []
        for place in range(length):
            parts = []
            for head in range(heads):
                rows = slice(head * width, (head + 1) * width)
                q = query[rows] @ narrow[place] + query_bias[rows]
                keys = [key[rows] @ narrow[t] + key_bias[rows] for t in range(length)]
                values = [value[rows] @ narrow[t] + value_bias[rows] for t in range(length)]
                scores = [math.exp(float(q @ k) / math.sqrt(width)) for k in keys]
                shares = [score / sum(scores) for score in scores]
                parts.append(sum((share * v for share, v in zip(shares, values, strict=True)), torch.zeros(width)))
            attended.append(
                weights["attention.out_proj.weight"] @ torch.cat(parts) + weights["attention.out_proj.bias"]
            )
        representations.append(torch.tanh(attended[0]))
    representation = torch.stack(representations)
    logits = [weights["classifier.weight"] @ h + weights["classifier.bias"] for h in representation]
    return MhaOutput(representation, torch.stack(logits))
