"""A ratio, its goal, and where it is written down."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks"


@dataclass(frozen=True)
class Ratio:
    """One measured ratio: ours over a peer's (or a peer's over ours, as `what` says), per round."""

    what: str
    rounds: list[float]
    goal: float
    at_least: bool  # else: at most
    detail: dict[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return median(self.rounds)

    @property
    def met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def line(self) -> str:
        sign = ">=" if self.at_least else "<="
        spread = f"{min(self.rounds):.2f} to {max(self.rounds):.2f}"
        return f"{'met ' if self.met else 'MISS'}  {digits(self.value)} {sign} {self.goal}  ({spread})  {self.what}"


def digits(value: float) -> str:
    """Three digits; a share that is nearly 1 has as many as it takes to tell it from 1."""
    told = (f"{value:.{count}g}" for count in range(3, 18))
    return next(text for text in told if text != "1" or value == 1)


def write(name: str, ratios: list[Ratio]) -> None:
    """Write a benchmark's ratios with what they were measured on."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }
    rows = [{**asdict(ratio), "value": ratio.value, "met": ratio.met} for ratio in ratios]
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "ratios": rows}, indent=1) + "\n", "utf-8")
