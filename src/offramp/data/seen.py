"""TEXT -> TOKENS, seen: which texts a model was trained on, as hashes.

A certificate is only true of texts the model has not seen; the hashes go with the model, so that calibration can leave
others out. They are 8 bytes per text, and tell whoever has a text whether it was among them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from offramp.types import Example


def digests(examples: Iterable[Example]) -> Tensor:
    """The sorted hashes of texts, each once, (N,); of a text with noise in it, that of the text it was."""
    return torch.tensor(sorted({digest(example.original or example) for example in examples}), dtype=torch.int64)


def unseen(seen: Tensor, examples: Sequence[Example]) -> tuple[list[int], int]:
    """The rows of texts whose hashes are not among `seen`, each text once, and how many others are among them."""
    known, met = set(seen.tolist()), set[int]()
    rows, count = [], 0
    for row, own in enumerate(map(digest, examples)):
        if own in known:
            count += 1
        elif own not in met:
            met.add(own)
            rows.append(row)
    return rows, count


def digest(example: Example) -> int:
    """The hash of a text, or of a pair."""
    # Neither blanks nor capitals make a text new.
    own = example.text if example.words is None else " ".join(example.words)
    content = [None if text is None else " ".join(text.lower().split()) for text in (own, example.pair)]
    found = hashlib.blake2b(json.dumps(content).encode(), digest_size=8).digest()
    return int.from_bytes(found, "big", signed=True)
