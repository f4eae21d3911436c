"""What a job on Ray takes, rendered from the benchmark's results: measured with few workers, computed for more."""

from __future__ import annotations

from docs.benchmarks import found

TEXTS = (100_000, 1_000_000, 10_000_000)
WORKERS = (1, 8, 64)


def cost() -> str:
    """The cost model with its numbers, and what it says of larger jobs."""
    if "cluster" not in found():
        return "Not measured yet: `python -m benchmarks cluster` measures it."
    detail = found()["cluster"]["ratios"][0]["detail"]
    start, block = detail["one worker, seconds to start"], detail["texts in a block"]
    text = detail["one worker, milliseconds of a text"] / 1000
    handed = detail["milliseconds of a block for who hands it out"] / 1000
    heads = " | ".join(f"{workers} workers" if workers > 1 else "1 worker" for workers in WORKERS)
    lines = [
        f"Measured: {start:.3g} s to start, {1000 * text:.3g} ms for a text in a worker, {1000 * handed:.3g} ms for a",
        f"block of {block:.0f} texts in the process that hands them out. That process is as busy as its workers with",
        f"{block * text / handed:.3g} of them; more do not help.",
        "",
        f"| texts | {heads} |",
        f"|{' --- |' * (len(WORKERS) + 1)}",
    ]
    for texts in TEXTS:
        cells = [_seconds(start + texts * text / workers + texts / block * handed) for workers in WORKERS]
        lines.append(f"| {texts:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"
