"""The map of an exit: every text and label embedding is on it, drawn alike each time, with names that can be read."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from offramp.errors import DataError, MissingExtra
from offramp.report import captions
from offramp.report.exit_map import MOST_CLOSE, chosen_depth, draw_map, draw_on, lay_out
from offramp.report.history import History
from offramp.report.page import render

SVG = "{http://www.w3.org/2000/svg}"


def clusters(texts, classes, seed=0, width=16, noise=0.2):
    """Texts around the label embedding of their label, in turn."""
    chance = np.random.default_rng(seed)
    anchors = chance.normal(size=(classes, width)).astype(np.float32)  # (C, D)
    labels = [place % classes for place in range(texts)]
    vectors = anchors[labels] + noise * chance.normal(size=(texts, width)).astype(np.float32)  # (N, D)
    return vectors, anchors, labels, [f"name{k}" for k in range(classes)]


def make(texts, classes, **how):
    return lay_out(2, *clusters(texts, classes, **how))


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def fills(svg):
    """How many marks have each colour: a mark's shape stands once, and is used where the marks are."""
    styles = [use.get("style", "") for use in ElementTree.fromstring(svg).iter(f"{SVG}use")]
    return Counter(re.search(r"fill: (#\w+)", style).group(1) for style in styles)


@pytest.mark.parametrize(("texts", "classes"), [(1, 2), (2, 2), (3, 2), (3, 3), (5, 10), (25, 3), (40, 77)])
def test_any_number_of_texts_and_labels_is_laid_out_and_drawn(texts, classes):
    found = make(texts, classes)
    assert (found.texts.shape, found.anchors.shape) == ((texts, 2), (classes, 2))
    assert np.isfinite(found.texts).all()
    assert np.isfinite(found.anchors).all()
    assert sorted(words(draw_map(found))) == sorted(found.names)


@pytest.mark.parametrize(("apart", "sizes"), [(0.0, [12.0, 7.0]), (1.0, [12.0, 12.0])])
def test_a_star_covers_no_other(apart, sizes):
    found = make(24, 2)
    anchors = np.asarray([[0.0, 0.0], [apart * np.ptp(found.texts), 0.0]], dtype=np.float32)
    axes = Figure().subplots()
    draw_on(axes, replace(found, anchors=anchors))
    assert [line.get_markersize() for line in axes.lines if line.get_marker() == "*"] == sizes


@pytest.mark.parametrize("width", [1, 2])
def test_narrow_representations_are_laid_out(width):
    assert np.isfinite(make(12, 3, width=width).texts).all()


def test_vectors_that_are_all_alike_or_zero_are_laid_out():
    for value in (0.0, 1.0):
        alike = np.full((4, 8), value, dtype=np.float32)
        found = lay_out(1, alike, alike[:2], [0, 1, 0, 1], ["a", "b"])
        assert np.isfinite(found.texts).all()
        draw_map(found)


def test_no_text_is_refused():
    vectors, anchors, labels, names = clusters(3, 3)
    with pytest.raises(DataError, match="at least one text"):
        lay_out(1, vectors[:0], anchors, labels[:0], names)


def test_texts_lie_nearest_to_their_label_embedding_where_classes_are_far_apart():
    found = make(90, 3, noise=0.05)
    distances = np.linalg.norm(found.texts[:, None] - found.anchors[None], axis=2)  # (N, C)
    assert distances.argmin(axis=1).tolist() == found.labels


def test_only_directions_count():
    vectors, anchors, labels, names = clusters(30, 3)
    plain, longer = lay_out(1, vectors, anchors, labels, names), lay_out(1, 8 * vectors, 4 * anchors, labels, names)
    assert (plain.texts == longer.texts).all()  # powers of two change no bits
    assert (plain.anchors == longer.anchors).all()


def test_the_texts_near_their_label_are_counted_label_by_label():
    vectors, anchors, labels, names = clusters(60, 4, noise=1.5)

    def cosine(a, b):
        return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))

    right = Counter()
    for vector, label in zip(vectors, labels, strict=True):
        likeness = [cosine(vector, anchor) for anchor in anchors]
        right[label] += likeness.index(max(likeness)) == label
    found = lay_out(1, vectors, anchors, labels, names)
    assert 0 < sum(right.values()) < 60
    assert found.near_label == [right[k] for k in range(4)]
    assert found.of_label == [15] * 4
    assert found.near == sum(right.values()) / 60


def test_more_texts_than_a_map_holds_are_drawn_by_the_seed_and_the_caption_says_so(monkeypatch):
    monkeypatch.setattr("offramp.report.exit_map.MOST", 40)
    given = clusters(100, 4)
    found = lay_out(3, *given)
    assert (len(found.texts), len(found.labels), found.total, sum(found.of_label)) == (40, 40, 100, 100)
    assert len(set(Counter(found.labels).values())) > 1  # by chance, not the first forty
    said = captions.exit_map(found)
    assert "40 of 100 texts are shown, drawn at random." in said.read
    assert said.shows.endswith("of 100 texts.")
    assert lay_out(3, *given, seed=1).labels != found.labels
    assert "drawn at random" not in captions.exit_map(lay_out(3, *clusters(40, 4))).read


def test_the_same_seed_gives_the_same_bytes_whatever_the_number_of_threads():
    with threadpool_limits(limits=2):
        one = draw_map(make(300, 3))
    with threadpool_limits(limits=1):
        other = draw_map(make(300, 3))
    assert one == other
    vectors, anchors, labels, names = clusters(300, 3)
    assert draw_map(lay_out(2, vectors, anchors, labels, names, seed=7)) != one


@pytest.mark.parametrize("classes", [3, 12])
def test_each_label_has_one_colour_for_its_texts_and_its_star(classes):
    counts = Counter(fills(draw_map(make(5 * classes, classes))).values())
    assert counts == {6: classes}  # five points and a star of each colour


@pytest.mark.parametrize(("texts", "classes"), [(30, 2), (30, MOST_CLOSE), (600, 77)])
def test_names_lie_on_the_sheet_and_over_no_star_and_no_other_name(texts, classes):
    found = make(texts, classes)
    _, stars = found.on_sheet()
    names = found.placed()
    assert list(names) == list(range(classes))
    for a, b in combinations(names.values(), 2):
        apart_x = abs(a.x - b.x) - (a.width + b.width) / 2
        apart_y = abs(a.y - b.y) - (a.height + b.height) / 2
        assert max(apart_x, apart_y) >= 0, (a, b)
    for name in names.values():
        assert 0 <= name.x - name.width / 2 < name.x + name.width / 2 <= found.side
        assert 0 <= name.y - name.height / 2 < name.y + name.height / 2 <= found.side
        for x, y in stars:
            assert abs(name.x - x) > name.width / 2 or abs(name.y - y) > name.height / 2


def test_label_embeddings_that_coincide_still_have_their_names():
    vectors, anchors, labels, names = clusters(40, 6)
    found = lay_out(1, vectors, np.repeat(anchors[:1], 6, axis=0), labels, names)
    assert sorted(words(draw_map(found))) == sorted(names)


def test_names_without_room_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr("offramp.report.name_places.RADII", (1000.0,))
    found = make(10, 3)
    assert words(draw_map(found)) == []
    assert "3 of 3 names had no room." in captions.exit_map(found).read


def test_both_axes_have_one_scale_and_nothing_lies_at_the_edge():
    found = make(50, 3)
    texts, stars = found.on_sheet()
    before, after = np.concatenate([found.texts, found.anchors]), np.concatenate([texts, stars])
    ratios = np.ptp(after, axis=0) / np.ptp(before, axis=0)  # (2,)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-4)
    assert after.min() >= 10
    assert after.max() <= found.side - 10


def test_names_with_markup_dollars_controls_and_other_scripts_come_through_and_long_ones_are_cut():
    vectors, anchors, labels, _ = clusters(10, 5)
    names = ["<script>", "$5 & $6", "nul\x00", "退款请求", "a" * 300]
    found = words(draw_map(lay_out(1, vectors, anchors, labels, names)))
    assert found[:4] == ["<script>", "$5 & $6", "nul ", "退款请求"]
    assert len(found[4]) == 22


def test_a_label_without_texts_has_a_star_and_an_empty_share():
    vectors, anchors, labels, names = clusters(6, 2)
    anchors = np.concatenate([anchors, -anchors[:1]])
    found = lay_out(1, vectors, anchors, labels, [*names, "nobody's"])
    assert found.of_label == [3, 3, 0]
    assert "nobody's" in words(draw_map(found))
    page = render("A run", None, History(), {}, {}, found)
    assert '<th scope="row">nobody&#x27;s</th><td class="n">0</td><td class="n">0</td><td class="n"></td>' in page


@pytest.mark.parametrize(
    ("trained", "depth"), [([6], 6), ([1, 2], 1), ([1, 2, 3], 2), (list(range(1, 13)), 6), ([2, 9], 2)]
)
def test_the_middle_exit_is_shown_when_nobody_chooses(trained, depth):
    assert chosen_depth(trained) == depth


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    found = make(10, 3)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"offramp\[plots\]"):
        draw_map(found)
