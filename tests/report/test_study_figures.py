"""What a study's figures draw: every method, the same bytes each time, as SVG and as PNG."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from offramp.errors import DataError
from offramp.report.canvas import Picture
from offramp.report.exit_map import lay_out
from offramp.report.study_figures import Panel, Point, angle_histograms, curves, maps

SVG = "{http://www.w3.org/2000/svg}"
LINE = [Point(depth, 50.0 + depth, 1.0) for depth in range(1, 7)]
COUNTS = [0] * 80 + [3, 5, 8, 5] + [0] * 10 + [2] + [0] * 85


def words(drawn: Picture) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn.svg()).iter(f"{SVG}text")]


def one_map(seed: int = 0) -> object:
    chance = np.random.default_rng(seed)
    vectors = chance.normal(size=(24, 6)).astype(np.float32)
    return lay_out(3, vectors, vectors[:2], [k % 2 for k in range(24)], ["no", "yes"])


PICTURES = {
    "layers": lambda: curves("a", [Panel("rte", {"ACL": LINE}, {"TinyBERT": Point(3, 52.0)})], "depth", "score (%)"),
    "several tasks": lambda: curves(
        "b", [Panel(task, {"ACL": LINE, "2ST": LINE[:3]}) for task in ("rte", "mrpc", "sst2", "cola")], "depth", "score"
    ),
    "an axis": lambda: curves(
        "c",
        [Panel("rte", {"CE": [Point(20, 50.0), Point(1000, 70.0)]}, {}, {"CE": [Point(20, 48.0)]})],
        "texts",
        "score",
    ),
    "tasks": lambda: curves("d", [Panel("", {"CE": LINE[:2]}, ticks=["rte", "sst2"])], "", "score", joined=False),
    "angles": lambda: angle_histograms("e", {"after training": {"CE": COUNTS, "SCL": COUNTS[::-1]}, "while": {}}),
    "maps": lambda: maps("f", {"CE": one_map(), "LaCon": one_map(1), "SCL": one_map(2)}),
}
NAMED = {
    "layers": {"rte", "ACL", "TinyBERT", "depth", "score (%)"},
    "several tasks": {"rte", "mrpc", "sst2", "cola", "ACL", "2ST"},
    "an axis": {"CE", "texts", "the paper's"},
    "tasks": {"rte", "sst2", "CE"},
    "angles": {"after training", "CE: 9 % above 90°", "SCL: 91 % above 90°"},
    "maps": {"CE", "LaCon", "SCL", "no", "yes"},
}


def test_a_line_far_below_leaves_the_height_to_the_others_and_its_depth_is_told() -> None:
    high = {"ACL": LINE, "2ST": [Point(point.x, point.y - 1.0) for point in LINE]}
    far = {"linear": [Point(1, 20.0), Point(6, 56.0)]}

    def ticks(drawn: Picture) -> set[float]:
        return {float(word) for word in words(drawn) if word.replace(".", "").isdigit() and float(word) > 6}

    cut = curves("a", [Panel("rte", {**high, **far})], "depth", "score")
    assert "linear goes down to 20" in words(cut)
    assert min(ticks(cut)) > 45.0  # of the axis: what it goes down to is not on it
    whole = curves("a", [Panel("rte", {**high, "near": [Point(1, 48.0), Point(6, 56.0)]})], "depth", "score")
    assert not any("goes down to" in word for word in words(whole))
    dots = {label: Point(3, 50.0) for label in ("TinyBERT", "DistilBERT", "LayerDrop")}
    assert set(words(curves("a", [Panel("rte", {}, dots)], "depth", "score"))) >= set(dots)


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_names_all_that_it_draws(name: str) -> None:
    assert set(words(PICTURES[name]())) >= NAMED[name]


def test_values_far_apart_stand_on_the_axis_as_they_are() -> None:
    values = (0.005, 0.01, 0.5, 1.0)
    drawn = curves("a", [Panel("rte", {"CE": [Point(value, 50.0) for value in values]})], "weight", "score")
    assert {"0.005", "0.01", "0.5", "1"} <= set(words(drawn))
    assert not any("$" in word for word in words(drawn))


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_data_give_the_same_bytes(name: str) -> None:
    assert PICTURES[name]().svg() == PICTURES[name]().svg()


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_is_also_a_png(name: str) -> None:
    drawn = PICTURES[name]().png(dots=40)
    assert drawn.startswith(b"\x89PNG\r\n")
    assert drawn == PICTURES[name]().png(dots=40)


def test_a_figure_of_nothing_is_refused() -> None:
    for draw in (
        lambda: curves("x", [Panel("rte")], "depth", "score"),
        lambda: angle_histograms("x", {"after": {"CE": [0] * 180}}),
        lambda: maps("x", {}),
    ):
        with pytest.raises(DataError, match=r"run the study first"):
            draw()
