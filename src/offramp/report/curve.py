"""DECISIONS -> NUMBERS, PICTURES: speed against quality: what a policy's threshold buys, and what its score knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from offramp.errors import DataError
from offramp.report import marks
from offramp.report.canvas import BLUE, GREEN, INK, ORANGE, WIDTH, svg
from offramp.report.captions import Caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEAR = 0.01  # accuracy that a reader may give away for speed
DASH = "–"  # what has no value


@dataclass(frozen=True, slots=True)
class Point:
    """A policy with its threshold, and what it did."""

    policy: str
    threshold: float | None  # for all exits; None: nobody leaves early, or the policy has not one threshold
    accuracy: float
    mean_layers: float
    seconds: float  # per text, tokens already made

    @classmethod
    def of(
        cls,
        policy: str,
        right: Sequence[bool],
        depths: Sequence[int],
        seconds: float,
        threshold: float | None = None,
    ) -> Point:
        """The point of who was answered right and of the depths where the texts left, both (N,)."""
        return cls(policy, threshold, float(np.mean(right)), float(np.mean(depths)), seconds)


@dataclass(frozen=True)
class Curve:
    """A policy swept over its threshold, beside the full model, the model cut off, and the calibrated policy."""

    policy: str
    points: list[Point]  # from the fewest layers to the most
    full: Point
    truncated: list[Point]  # at every trained depth below the last
    calibrated: Point | None
    auroc: dict[int, float | None]  # by trained depth; None where it is undefined
    layers: int
    texts: int
    timed: int  # texts of which the times are means
    rounds: int  # of which the times are medians
    batch_size: int
    engine: str
    threads: int

    def to_json(self) -> dict[str, Any]:
        """The curve as plain JSON values; the keys of `auroc` become strings."""
        return {**asdict(self), "auroc": {str(depth): value for depth, value in self.auroc.items()}}

    def rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """What, threshold, accuracy, layers and milliseconds of every point, for people."""
        for point in self.points:
            limit = "nobody leaves" if point.threshold is None else f"{point.threshold:.6g}"
            yield _row(point.policy, limit, point)
        for point in self.truncated:
            yield _row(f"cut off after layer {point.mean_layers:g}", DASH, point)
        yield _row("full model", DASH, self.full)
        if self.calibrated is not None:
            yield _row(f"calibrated ({self.calibrated.policy})", "per exit", self.calibrated)

    def judged(self) -> Iterator[tuple[str, str]]:
        """Depth and AUROC of every trained exit, for people."""
        for depth, value in self.auroc.items():
            yield str(depth), DASH if value is None else f"{value:.3f}"


def auroc(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """How often a text that the exit is right about scores higher than one it is wrong about; a tie counts half.

    None where the exit is always right or always wrong, and where the policy has no score yet.

    >>> auroc([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    0.75
    """
    from sklearn.metrics import roc_auc_score

    truth, given = np.asarray(right, dtype=bool), np.asarray(scores, dtype=np.float64)  # (N,)
    if truth.all() or not truth.any() or not np.isfinite(given).all():
        return None
    return float(roc_auc_score(truth, given))


def speed_quality(curve: Curve) -> str:
    """Accuracy against the time a text takes, and against the layers it runs."""
    if not curve.points:
        raise DataError("This figure needs at least a point of the curve. Found none.")

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, place, label in ((left, _milliseconds, "ms per text"), (right, _layers, "mean layers")):

            def points(found: Sequence[Point], place: Any = place) -> marks.Points:
                return [(place(point), point.accuracy) for point in found]

            marks.line(axes, points(curve.points), BLUE, curve.policy, marker="o")
            if curve.truncated:
                marks.hollow(axes, points(curve.truncated), ORANGE, "cut off after a layer", "s")
            marks.hollow(axes, points([curve.full]), INK, "full model", "D", size=7)
            if curve.calibrated is not None:
                named = f"calibrated ({curve.calibrated.policy})"
                axes.plot(*zip(*points([curve.calibrated]), strict=True), "*", color=GREEN, markersize=11, label=named)
            axes.set_xlabel(label)
            axes.set_xlim(left=0)
            axes.grid(axis="y")
            axes.margins(y=0.12)
        marks.at_most_one(left)
        marks.at_most_one(right)
        left.set_ylabel("accuracy")
        # Of the figure and not of a panel, which would shrink for it.
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)

    return svg("curve", 3.4, draw, width=1.6 * WIDTH)


def caption(curve: Curve) -> Caption:
    """For the speed-quality curve."""
    read = (
        f"Each dot on the line is the policy {curve.policy} with another threshold, from everybody leaving as early as "
        "possible to nobody leaving; squares are the model cut off after a trained exit, the diamond is the full "
        "model, which reads no exit but the last"
    )
    if curve.calibrated is not None:
        read += "; the star is the calibrated policy, with the thresholds of its certificate"
    return Caption(f"{read}. {conditions(curve)}", found(curve))


def conditions(curve: Curve) -> str:
    """How the points came about."""
    threads = "1 thread" if curve.threads == 1 else f"{curve.threads} threads"
    return (
        f"The thresholds of {curve.policy} were chosen on the texts they are scored on, which flatters them a little. "
        f"Times are medians of {curve.rounds} rounds over {curve.timed:,} texts in batches of {curve.batch_size}, "
        f"tokens already made, by {curve.engine} with {threads} on this machine."
    )


def found(curve: Curve) -> str:
    """The fewest layers that are nearly as accurate as all."""
    full = f"the full model ({curve.full.accuracy:.3f}, {_milliseconds(curve.full):.3g} ms per text)"
    near = [p for p in curve.points if p.threshold is not None and p.accuracy >= curve.full.accuracy - NEAR]
    if not near:
        return f"No threshold that lets texts leave early comes within {NEAR:g} of {full}, on {curve.texts:,} texts."
    best = min(near, key=lambda point: point.mean_layers)
    return (
        f"Within {NEAR:g} of {full}, {curve.policy} at {best.threshold:.6g} runs {best.mean_layers:.2f} of "
        f"{curve.layers} layers in {_milliseconds(best):.3g} ms ({best.accuracy:.3f}), on {curve.texts:,} texts."
    )


def _row(name: str, limit: str, point: Point) -> tuple[str, str, str, str, str]:
    return name, limit, f"{point.accuracy:.4f}", f"{point.mean_layers:.2f}", f"{_milliseconds(point):.3f}"


def _milliseconds(point: Point) -> float:
    return 1000 * point.seconds


def _layers(point: Point) -> float:
    return point.mean_layers
