"""The pictures of the concept pages, drawn by `python -m docs render`.

What they show is computed, not placed by eye: who is in a batch at which depth, how large an angle is, which point of a
path passes its test.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import atan2, cos, degrees, hypot, radians, sin

from scipy.stats import beta as beta_distribution
from scipy.stats import binom

STYLE = """  <style>
    text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #6b7280 }
    .strong { font-weight: 600 }
    .small { font-size: 12px }
    .dark { fill: #1f2937 }
    .token { fill: #e0e7ff; stroke: #6366f1 }
    .padding { fill: none; stroke: #9ca3af; stroke-dasharray: 2 2 }
    .leaves { fill: #d1fae5; stroke: #10b981 }
    .axis { stroke: #9ca3af; fill: none }
    .limit { stroke: #ef4444; fill: none; stroke-dasharray: 5 4 }
    .one { fill: #6366f1 } .two { fill: #10b981 } .three { fill: #f59e0b }
    .pull { stroke: #9ca3af; fill: none }
    .ce { stroke: #6366f1; stroke-width: 3; fill: none; marker-end: url(#ce) }
    .contrast { stroke: #10b981; stroke-width: 3; fill: none; marker-end: url(#contrast) }
    .step { stroke: #6b7280; stroke-width: 3; stroke-dasharray: 6 4; fill: none; marker-end: url(#step) }
  </style>"""


TIPS = {"ce": "#6366f1", "contrast": "#10b981", "step": "#6b7280"}
"""Arrows by their class, and the colour of their tips."""

TEXTS = {"a": (6, 4), "b": (12, 2), "c": (4, 1), "d": (9, 3), "e": (3, 1), "f": (5, 2)}
"""Texts of a batch: tokens, and the depth at which each leaves."""


def drawn() -> dict[str, str]:
    """Each picture by its place below `docs`."""
    return {
        "images/compaction.svg": compaction(),
        "images/aligned-contrast.svg": aligned_contrast(),
        "images/certificate.svg": certificate(),
    }


def compaction() -> str:
    """A batch at every depth: who left is taken out, and the rest is trimmed to its longest."""
    size, gap, left, top = 13, 34, 40, 64
    parts, x = [], left
    depths = max(depth for _, depth in TEXTS.values())
    whole = depths * len(TEXTS) * max(tokens for tokens, _ in TEXTS.values())
    run = 0
    for depth in range(1, depths + 1):
        there = {name: text for name, text in TEXTS.items() if text[1] >= depth}
        width = max(tokens for tokens, _ in there.values())
        run += width * len(there)
        parts.append(_words(x, top - 32, f"layer {depth}", "strong"))
        parts.append(_words(x, top - 14, f"{len(there)} x {width} tokens"))
        for row, (name, (tokens, leaves)) in enumerate(there.items()):
            y = top + row * (size + 6)
            parts.append(_words(x - 14, y + 11, name))
            kind = "leaves" if leaves == depth else "token"
            for column in range(width):
                shown = kind if column < tokens else "padding"
                parts.append(_box(shown, x + column * size, y, size - 2, size - 1))
        x += width * size + gap
    bottom = top + len(TEXTS) * 19
    told = ("Green: leaves at the exit after this layer. Dashed: padding.",
            f"Run through the layers: {run} places, against {whole} if nobody were taken out.")  # fmt: skip
    for line, words in enumerate(told):
        parts.append(_words(left, bottom + 22 + 18 * line, words))
    says = "A batch of six texts at four depths. Texts that leave are taken out; the rest is trimmed to its longest."
    return _svg(x, bottom + 56, says, parts)


def aligned_contrast() -> str:
    """Left, what the contrast asks for; middle and right, when it takes part in a step."""
    parts = [_words(30, 28, "1. what the contrast asks for", "strong")]
    centre, radius = (170, 165), 105
    parts.append(f'<circle class="axis" cx="{centre[0]}" cy="{centre[1]}" r="{radius}"/>')
    for kind, angle, spread in (("one", -75, (-26, -9, 17)), ("two", 45, (-24, 8, 28)), ("three", 170, (-19, 13, 30))):
        label = _at(centre, radius, angle)
        for away in spread:
            text = _at(centre, radius, angle + away)
            parts.append(f'<path class="pull" d="M{_point(text)} L{_point(label)}"/>')
            parts.append(f'<circle class="{kind}" cx="{text[0]:.1f}" cy="{text[1]:.1f}" r="5"/>')
        parts.append(
            f'<rect class="{kind}" x="{label[0] - 7:.1f}" y="{label[1] - 7:.1f}" width="14" height="14" '
            f'transform="rotate(45 {_point(label, " ")})"/>'
        )
    parts.append(_words(30, 300, "Circles: texts. Squares: label embeddings, one per label."))
    parts.append(_words(30, 318, "Like is drawn to like, and away from all others."))
    parts += _step(400, "2. they agree: both count", 35.0, kept=True)
    parts += _step(650, "3. they disagree: one counts", 125.0, kept=False)
    says = "Texts are drawn to their label embedding; the contrast is dropped when its gradient turns away."
    return _svg(920, 334, says, parts)


def _step(x: float, title: str, angle: float, kept: bool) -> list[str]:
    """Two gradients from one point, and the step that is taken."""
    start, long, short = (x + 60.0, 200.0), 120.0, 75.0
    ce, contrast = _at(start, long, -20), _at(start, short, -20 - angle)
    turned = degrees(atan2(contrast[1] - start[1], contrast[0] - start[0]) - atan2(ce[1] - start[1], ce[0] - start[0]))
    assert abs(abs(turned) - angle) < 1e-6
    step = (ce[0] + contrast[0] - start[0], ce[1] + contrast[1] - start[1]) if kept else _at(start, long * 0.8, -20)
    scale = 0.8 * long / hypot(step[0] - start[0], step[1] - start[1])
    end = (start[0] + scale * (step[0] - start[0]), start[1] + scale * (step[1] - start[1]))
    shift = 0.0 if kept else 12.0  # beside the gradient that it equals
    return [
        _words(x, 28, title, "strong"),
        f'<path class="ce" d="M{_point(start)} L{_point(ce)}"/>',
        f'<path class="contrast" d="M{_point(start)} L{_point(contrast)}"/>',
        f'<path class="step" d="M{_point((start[0], start[1] + shift))} L{_point((end[0], end[1] + shift))}"/>',
        f'<path class="axis" d="M{_point(_at(start, 30, -20))} A30 30 0 0 0 {_point(_at(start, 30, -20 - angle))}"/>',
        _words(start[0] - 10, start[1] + 34, f"angle {angle:.0f} degrees"),
        _words(x, 282, "Indigo: cross entropy. Green: contrast."),
        _words(x, 300, f"Dashed: the step, {'of both' if kept else 'without the contrast'}."),
    ]


TESTED, EPSILON, DELTA = 350, 0.02, 0.05
HARMED = (0, 0, 1, 1, 2, 4, 7, 12)
"""Texts of those tested that each point of a path harms, from nobody leaving to the boldest."""


def certificate() -> str:
    """A path of thresholds, tested point by point up to the first that does not pass."""
    left, bottom, wide, high = 70.0, 240.0, 74.0, 180.0
    most = 0.06
    levels = [binom.cdf(harmed, TESTED, EPSILON) for harmed in HARMED]
    failed = next(place for place, level in enumerate(levels) if level > DELTA)
    parts = [
        f'<path class="axis" d="M{left:.0f} {bottom - high:.0f} V{bottom:.0f} H{left + wide * len(HARMED):.0f}"/>',
        _words(left, bottom - high - 12, "harmed texts: measured (dot), and how many it may be (bar)"),
    ]
    for place, harmed in enumerate(HARMED):
        x = left + wide * (place + 0.5)
        upper = beta_distribution.ppf(1 - DELTA, harmed + 1, TESTED - harmed)
        kind = "leaves" if place < failed else "padding"
        y = bottom - high * min(upper, most) / most
        parts.append(_box(kind, x - 16, y, 32, bottom - y))
        dot = bottom - high * harmed / TESTED / most
        parts.append(f'<circle class="{"two" if place < failed else "one"}" cx="{x:.1f}" cy="{dot:.1f}" r="4"/>')
        if place == failed - 1:
            parts.append(_words(x - 22, y - 18, "chosen", "small strong"))
        if place == failed:
            parts.append(_words(x - 30, y - 8, "first to fail"))
    limit = bottom - high * EPSILON / most
    parts += [
        f'<path class="limit" d="M{left:.0f} {limit:.1f} H{left + wide * len(HARMED):.0f}"/>',
        _words(10, limit + 4, f"{EPSILON:.0%} risk"),
        _words(left, bottom + 20, "nobody leaves"),
        _words(left + wide * len(HARMED) - 60, bottom + 20, "boldest"),
        _words(
            left,
            bottom + 46,
            f"Tested from the left on {TESTED} texts, each point at level {DELTA:.0%}, up to the first that fails.",
        ),
        _words(left, bottom + 64, "From there on nothing is promised, whatever was measured."),
    ]
    says = "Points of a threshold path with their measured and possible risk; the last that passes is chosen."
    return _svg(left + wide * len(HARMED) + 20, bottom + 80, says, parts)


Point = tuple[float, float]


def _at(centre: Point, radius: float, angle: float) -> Point:
    return centre[0] + radius * cos(radians(angle)), centre[1] + radius * sin(radians(angle))


def _point(point: Point, between: str = " ") -> str:
    return f"{point[0]:.1f}{between}{point[1]:.1f}"


def _words(x: float, y: float, words: str, kind: str = "small") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{words}</text>'


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width}" height="{height:.1f}" rx="3"/>'


def _tip(name: str, colour: str) -> str:
    shape = 'viewBox="0 0 8 8" refX="6" refY="4" markerWidth="5" markerHeight="5" orient="auto"'
    return f'  <marker id="{name}" {shape}><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'


def _svg(width: float, height: float, says: str, parts: Iterable[str]) -> str:
    shape = f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{says}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>'
    tips = ["<defs>", *(_tip(name, colour) for name, colour in TIPS.items()), "</defs>"]
    return "\n".join([head, STYLE, *(f"  {part}" for part in (*tips, *parts)), "</svg>"]) + "\n"
