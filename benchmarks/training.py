"""Throughput of our plain fine-tuning over Hugging Face Trainer's: same backbone, head, batch and texts.

Both train the same classification head on the same tokens with batches of 16 and dynamic padding. The Trainer runs with
its defaults (random batches) and with its length-grouped sampling. Rounds alternate, so that a slow moment of
the machine meets all of them.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.config import load_recipe, override
from offramp.data.tokens import Tokens
from offramp.encoder.load import load_backbone, load_tokenizer, locate, quiet_loading
from offramp.exits.model import build
from offramp.objectives import objective
from offramp.optimise.loop import Loop

TEXTS, BATCH, ROUNDS = 1600, 16, 7


class Rows(Dataset[dict[str, Any]]):
    """Our tokens as the Trainer wants them."""

    def __init__(self, tokens: Tokens) -> None:
        labels = tokens.labels_or_raise()
        self.rows = []
        for row in range(len(tokens)):
            ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
            self.rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels[row]})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]


def ours(data: Tokens, classes: int) -> float:
    settings = [f"optimise.batch_size={BATCH}", "optimise.epochs=1", "exits.kind=linear", "optimise.lr_exit=5e-5"]
    config = override(load_recipe("ce"), [*settings, "optimise.lr_backbone=5e-5"])
    model = build(load_backbone("minilm-l6"), list(range(classes)), exit_kind="linear")
    held = Tokens(data.ids[: data.offsets[8]], data.offsets[:9], data.pad, None, data.labels[:8])
    loop = Loop(model, objective("ce"), config, data, held, lambda truth, found: 0.0)
    start = time.perf_counter()
    loop.run()
    return len(data) / (time.perf_counter() - start)


def theirs(data: Rows, classes: int, sampling: str) -> float:
    place = locate("minilm-l6").name
    with quiet_loading(), tempfile.TemporaryDirectory() as folder:
        model = AutoModelForSequenceClassification.from_pretrained(place, num_labels=classes)
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            train_sampling_strategy=sampling,
            save_strategy="no",
            disable_tqdm=True,
            report_to=[],
        )
        collate = DataCollatorWithPadding(load_tokenizer("minilm-l6"))
        trainer = Trainer(model, arguments, train_dataset=data, data_collator=collate)
        start = time.perf_counter()
        trainer.train()
        return len(data) / (time.perf_counter() - start)


def run() -> list[Ratio]:
    data, labels = tokens(TEXTS)
    rows = Rows(data)
    speeds: dict[str, list[float]] = {"ours": [], "random": [], "group_by_length": []}
    for _ in range(ROUNDS):
        torch.manual_seed(0)
        speeds["ours"].append(ours(data, len(labels)))
        for sampling in ("random", "group_by_length"):
            speeds[sampling].append(theirs(rows, len(labels), sampling))
    detail = {f"{name}, texts per second": sum(values) / len(values) for name, values in speeds.items()}
    against = {"random": ("its default", 1.4), "group_by_length": ("its length-grouped sampling", 1.05)}
    return [
        Ratio(
            f"training throughput, ours over Hugging Face Trainer with {words}",
            [a / b for a, b in zip(speeds["ours"], speeds[name], strict=True)],
            goal,
            at_least=True,
            detail=detail,
        )
        for name, (words, goal) in against.items()
    ]
