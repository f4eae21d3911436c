"""The page read back with the standard library's parser, as a browser or a screen reader would meet it."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from offramp.config import Config, to_mapping
from offramp.report.chance import in_words
from offramp.report.exit_map import lay_out
from offramp.report.history import History
from offramp.report.page import render

VOID = {"meta", "link", "br", "img"}
CONFIG = to_mapping(Config())


class Outline(HTMLParser):
    """Every element with its attributes and the text in it; fails where tags do not match."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "path": [e["tag"] for e in self.open]}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append({"tag": tag, "attrs": dict(attrs), "text": "", "path": []})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]

    def headings(self):
        return [element["text"] for element in self.all("h2")]


@pytest.fixture(scope="module")
def page(make_evaluation, make_history):
    return render("A run", make_evaluation(), make_history(), CONFIG, {"Backbone": "minilm-l6"})


def test_sections_come_in_the_order_of_the_readers_questions(page):
    outline = Outline(page)
    assert outline.all("title")[0]["text"] == outline.all("h1")[0]["text"] == "A run"
    assert outline.headings() == [
        "Score of each exit",
        "Where texts left",
        "What was confused",
        "Training",
        "Configuration",
    ]
    levels = [int(element["tag"][1]) for element in outline.elements if re.fullmatch("h[1-6]", element["tag"])]
    assert levels == [1, 2, 2, 2, 2, 2]


def test_headline_numbers_are_those_of_the_evaluation(make_evaluation):
    evaluation = make_evaluation()
    outline = Outline(render("A run", evaluation, History(), {}, {}))
    cards = [element["text"] for element in outline.all("dd")]
    assert cards == [
        f"{evaluation.accuracy:.3f}{in_words(evaluation)}",
        *(f"{value:.3f}" for value in (evaluation.macro_f1, evaluation.mcc)),
        f"{evaluation.mean_depth:.2f}of 6 layers",
        "3004 labels",
    ]


def test_every_figure_has_a_role_a_label_and_a_caption_with_numbers(page):
    outline = Outline(page)
    drawn = outline.all("svg")
    assert len(drawn) == len(outline.all("figure")) == len(outline.all("figcaption")) == 7
    for element in drawn:
        assert element["attrs"]["role"] == "img"
        assert element["attrs"]["aria-label"]
        assert "figure" in element["path"]
    for caption in outline.all("figcaption"):
        assert re.search(r"\d", caption["text"])


def test_every_svg_in_the_page_is_well_formed(page):
    for svg in re.findall(r"<svg .*?</svg>", page, flags=re.S):
        ElementTree.fromstring(svg)


def test_every_table_has_a_caption_and_every_heading_cell_a_scope(page):
    outline = Outline(page)
    assert len(outline.all("table")) == len(outline.all("caption")) == 5
    assert {cell["attrs"].get("scope") for cell in outline.all("th")} == {"row", "col"}


def test_ids_are_unique_and_every_label_points_to_one(page):
    outline = Outline(page)
    ids = [element["attrs"]["id"] for element in outline.elements if "id" in element["attrs"]]
    assert len(ids) == len(set(ids))
    assert {e["attrs"]["aria-labelledby"] for e in outline.elements if "aria-labelledby" in e["attrs"]} <= set(ids)


def test_the_page_fetches_nothing_and_runs_nothing(page):
    outline = Outline(page)
    assert not outline.all("script")
    assert not outline.all("img")
    for element in outline.elements:
        assert not [name for name in element["attrs"] if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert element["attrs"].get(name, "#").startswith(("#", "data:"))
    assert not re.search(r"@import|url\((?!#)", page)
    namespaces = re.sub(r'xmlns(:xlink)?="[^"]+"', "", page)
    assert "http://" not in namespaces
    assert "https://" not in namespaces


def test_whatever_the_user_wrote_is_escaped_everywhere(make_evaluation, make_history):
    bad = "<script>alert('1')</script>\"&\x00"
    evaluation = make_evaluation(labels=[bad, bad + "2", bad + "3", "fine"])
    evaluation = replace(evaluation, policy={"name": bad, bad: bad})
    history = make_history()
    steps = [replace(record, parts={bad: 1.0, "ce": 2.0}, cosines={bad: 0.5}) for record in history.steps]
    epochs = [replace(record, metric=bad) for record in history.epochs]
    found = render(bad, evaluation, History(steps, epochs), {bad: {bad: bad}}, {bad: bad})
    outline = Outline(found)
    assert not outline.all("script")
    assert "<script" not in found
    assert "\x00" not in found
    assert outline.all("h1")[0]["text"] == bad.replace("\x00", " ")


@pytest.mark.parametrize(("classes", "layers"), [(2, 1), (10, 12), (77, 24)])
def test_any_number_of_labels_and_layers_gives_a_whole_page(make_evaluation, make_history, classes, layers):
    evaluation = make_evaluation(classes=classes, layers=layers, texts=4 * classes, trained=[layers])
    found = render("A run", evaluation, make_history(), CONFIG, {})
    assert len(Outline(found).all("svg")) == 7
    found.encode("utf-8")


def test_the_same_run_gives_the_same_page_to_the_byte(page, make_evaluation, make_history):
    assert render("A run", make_evaluation(), make_history(), CONFIG, {"Backbone": "minilm-l6"}) == page


def test_what_has_no_data_is_left_out(make_evaluation, make_history):
    assert Outline(render("A run", None, History(), {}, {})).headings() == []
    assert Outline(render("A run", None, make_history(), {}, {})).headings() == ["Training"]
    unread = replace(make_evaluation(), by_exit=[])
    assert Outline(render("A run", unread, History(), {}, {})).headings() == ["Where texts left", "What was confused"]
    plain = render("A run", None, make_history(angles=False), {}, {})
    assert "Gradient angles" not in plain
    assert "Gradient cosines" not in plain
    assert "Loss by update" in plain


@pytest.fixture(scope="module")
def seen():
    chance = np.random.default_rng(0)
    anchors = chance.normal(size=(3, 8)).astype(np.float32)  # (C, D)
    labels = [i % 3 for i in range(30)]
    vectors = anchors[labels] + 0.1 * chance.normal(size=(30, 8)).astype(np.float32)  # (N, D)
    return lay_out(2, vectors, anchors, labels, ["bad", "fine", "<good>"])


@pytest.fixture(scope="module")
def staged(make_evaluation, make_two_phases, seen):
    return render("A run", make_evaluation(layers=4), make_two_phases(), CONFIG, {}, seen)


def test_a_run_of_two_stages_has_a_section_for_each_and_a_map(staged):
    outline = Outline(staged)
    assert outline.headings() == [
        "Score of each exit",
        "Where texts left",
        "What was confused",
        "Representations",
        "Training",
        "Training of the exits below the last",
        "Configuration",
    ]
    ids = [element["attrs"]["id"] for element in outline.elements if "id" in element["attrs"]]
    assert len(ids) == len(set(ids))
    drawn = outline.all("svg")
    assert len(drawn) == len(outline.all("figcaption")) == 3 + 1 + 2 * 4
    assert all(element["attrs"]["role"] == "img" and element["attrs"]["aria-label"] for element in drawn)
    (found,) = [e for e in drawn if e["attrs"]["aria-label"].startswith("What the exit at depth 2 sees. ")]
    assert found["attrs"]["aria-label"].endswith("is that of its label for 100.0% of 30 texts.")
    assert {"bad", "fine", "<good>"} <= set(found["text"].split())


def test_the_table_of_exits_ends_with_their_mean(make_evaluation, staged):
    exits = make_evaluation(layers=4).by_exit
    means = [sum(getattr(e, name) for e in exits) / 4 for name in ("accuracy", "macro_f1", "mcc")]
    cells = "".join(f'<td class="n">{mean:.3f}</td>' for mean in means)
    assert f'<th scope="row">Mean</th>{cells}<td class="n">4</td>' in staged
    assert ">Mean</th>" not in render("A run", make_evaluation(trained=[6]), History(), {}, {})


def test_the_epochs_of_several_exits_are_tabled_exit_by_exit(staged):
    head = [cell["text"] for cell in Outline(staged).all("th") if cell["attrs"]["scope"] == "col"]
    place = head.index("Mean macro-F1")
    assert head[place - 2 : place + 5] == [
        "Epoch",
        "Update",
        "Mean macro-F1",
        "Depth 1",
        "Depth 2",
        "Depth 3",
        "Training loss",
    ]
    row = "".join(f'<td class="n">{cell}</td>' for cell in ("60", "0.567", "0.300", "0.500", "0.900", "0.250"))
    assert f'<th scope="row">2</th>{row}' in staged


def test_a_map_of_many_labels_folds_its_table_away(seen):
    many = replace(
        seen,
        names=[f"name{k}" for k in range(77)],
        anchors=np.random.default_rng(1).normal(size=(77, 2)).astype(np.float32),
        of_label=[*seen.of_label, *[0] * 74],
        near_label=[*seen.near_label, *[0] * 74],
    )
    assert not Outline(render("A run", None, History(), {}, {}, seen)).all("details")
    (folded,) = Outline(render("A run", None, History(), {}, {}, many)).all("details")
    assert "All 77 labels as a table" in folded["text"]


def test_without_matplotlib_a_map_is_its_numbers(monkeypatch, seen):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outline = Outline(render("A run", None, History(), {}, {}, seen))
    assert outline.all("svg") == []
    assert len(outline.all("table")) == 1
    said = [element["text"] for element in outline.all("p")]
    assert "offramp[plots]" in said[0]
    assert said[1].endswith("for 100.0% of 30 texts.")


def test_a_perfect_evaluation_shows_no_empty_table_of_pairs(make_evaluation):
    perfect = replace(make_evaluation(classes=2), confusion=[[5, 0], [0, 5]])
    assert "Most confused pairs" not in render("A run", perfect, History(), {}, {})


def test_the_angles_are_drawn_with_the_configured_threshold(make_history):
    found = render("A run", None, make_history(), {"alignment": {"threshold": 77.0}}, {})
    assert "threshold 77°" in found


def test_an_aggregator_has_no_threshold(make_history):
    found = render("A run", None, make_history(), {"alignment": {"threshold": 77.0, "aggregator": "mgda"}}, {})
    assert "threshold 77°" not in found
    assert "above 77°" not in found
    assert "an aggregator weighed the two" in found


def test_the_cosines_caption_names_the_parts_that_agree_most_and_least(make_history):
    history = make_history(groups=("embeddings", "layer-1", "exit-1"))
    cosines = {"embeddings": -0.25, "layer-1": 0.125, "exit-1": 0.5}
    wild = dict.fromkeys(cosines, 1.0)
    steps = [replace(r, cosines=wild if r.step % 3 == 0 else cosines) for r in history.steps]
    found = Outline(render("A run", None, History(steps, []), {}, {}))
    captions = [caption["text"] for caption in found.all("figcaption")]
    wanted = "Over the run the median is highest in exit-1 (0.50) and lowest in embeddings (-0.25)."
    assert [caption for caption in captions if caption.endswith(wanted)]


def test_the_whole_configuration_is_folded_away_field_by_field(page):
    outline = Outline(page)
    rows = [cell["text"] for cell in outline.all("th") if "details" in cell["path"] and "tbody" in cell["path"]]
    assert {
        f"{stage}.{name}" for stage, fields in CONFIG.items() if isinstance(fields, dict) for name in fields
    } <= set(rows)
    assert not any("open" in element["attrs"] for element in outline.all("details"))


def test_without_matplotlib_the_page_has_the_tables_and_names_the_extra(monkeypatch, make_evaluation, make_history):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outline = Outline(render("A run", make_evaluation(), make_history(), CONFIG, {}))
    assert outline.all("svg") == outline.all("figure") == []
    assert len(outline.all("table")) == 5
    assert any("offramp[plots]" in element["text"] for element in outline.all("p"))
    assert len(outline.headings()) == 5
