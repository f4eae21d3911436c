"""The texts the benchmarks run on: TREC-6 where it is there, else the built-in support-desk messages."""

from __future__ import annotations

import os
from pathlib import Path

from offramp.data.labels import Labels
from offramp.data.sources import read
from offramp.data.tokens import Tokens
from offramp.demo import data_file
from offramp.encoder.load import load_tokenizer


def training_file() -> Path:
    """The file of training texts."""
    folder = os.environ.get("OFFRAMP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    trec = Path(folder) / "trec6" / "train.parquet"
    return trec if trec.exists() else data_file("train")


def tokens(n: int) -> tuple[Tokens, Labels]:
    """The first `n` training texts, tokenised for the default backbone."""
    table = read(str(training_file()))
    labels = Labels.of(table.labels)
    examples = table.examples[:n]
    numbers = labels.encode(e.label for e in examples if e.label is not None)
    return Tokens.of(load_tokenizer("minilm-l6"), examples, 256, numbers), labels
