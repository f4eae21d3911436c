"""A small backbone and its texts on disk, and runs that take seconds."""

from __future__ import annotations

import csv
from pathlib import Path

from offramp.data.tasks import TASKS
from offramp.study.drawn import draw_backbone, drawn_table
from offramp.types import Example

TEXTS = 40  # 36 to learn from: 5 updates per epoch
COMMON = ["optimise.epochs=2", "optimise.batch_size=8", "optimise.checkpoint_steps=2", "exits.size=16"]
STAGES = [*COMMON, "stage2.epochs=2", "stage2.least_updates=0", "stage2.batch_size=12"]
QUESTIONS = ["badaba bedebe", "bidibi bodobo dadada", "bububu fafafa"]


class Small:
    """What the runs are made of; dropout is on, as it is by default."""

    def __init__(self, home: Path) -> None:
        task = TASKS["sst2"]
        train, held = drawn_table(task, "train").examples, drawn_table(task, "test").examples
        home.mkdir(parents=True, exist_ok=True)
        self.backbone, self.data, self.held_out = home / "backbone", home / "train.csv", home / "held-out.csv"
        draw_backbone(self.backbone, [example.text for example in train])
        _write(self.data, train[:TEXTS])
        _write(self.held_out, held)
        self.recipes = {"single": "acl", "joint": "jt", "alternating": "alt", "two-stage": "acl-multi-exit"}
        self.settings = {
            "single": COMMON,
            "joint": COMMON,
            "alternating": COMMON,
            "two-stage": STAGES,
        }


def _write(file: Path, examples: list[Example]) -> None:
    with file.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([("text", "label"), *((e.text, e.label) for e in examples)])
