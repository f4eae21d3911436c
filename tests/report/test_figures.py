"""Figures read back as XML: well-formed, labelled in text, the same bytes each time, nothing global changed."""

import base64
import io
import math
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import matplotlib.colors
import matplotlib.image
import pytest

from offramp.errors import DataError, MissingExtra
from offramp.report import captions, figures
from offramp.report.history import History
from offramp.report.marks import MOST_POINTS, running_median, thin
from offramp.report.metrics import Evaluation
from offramp.types import StepRecord

OF_HISTORY = [figures.loss_curve, figures.angle_curve, figures.cosine_strips, figures.validation_curve]
OF_EVALUATION = [figures.exit_scores, figures.depth_histogram, figures.confusion_matrix]
SVG = "{http://www.w3.org/2000/svg}"


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def ticks(svg):
    """The whole numbers at the lower edge of a figure."""
    texts = [e for e in ElementTree.fromstring(svg).iter(f"{SVG}text") if e.text]
    lowest = {round(float(e.get("y"))): [] for e in texts}
    for element in texts:
        lowest[round(float(element.get("y")))].append(element)
    rows = [lowest[y] for y in sorted(lowest, reverse=True)]
    return next([int(e.text) for e in row] for row in rows if all(e.text.isdigit() for e in row))


def draw_all(evaluation, history):
    return [draw(history) for draw in OF_HISTORY] + [draw(evaluation) for draw in OF_EVALUATION]


@pytest.fixture(scope="module")
def drawn(make_evaluation, make_history):
    return draw_all(make_evaluation(), make_history())


def test_every_figure_is_one_well_formed_svg_element(drawn):
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert svg.startswith("<svg ")
        assert root.tag == f"{SVG}svg"
        assert "viewBox" in root.attrib


def test_every_figure_is_the_same_to_the_byte_when_drawn_again(drawn, make_evaluation, make_history):
    assert draw_all(make_evaluation(), make_history()) == drawn


def test_figures_share_no_ids_and_every_reference_is_met_inside(drawn):
    seen = set()
    for svg in drawn:
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert len(ids) == len(set(ids))
        assert not seen & set(ids)
        seen |= set(ids)
        assert set(re.findall(r"url\(#([^)]+)\)", svg) + re.findall(r'href="#([^"]+)"', svg)) <= set(ids)


def test_no_figure_has_a_background_or_refers_to_the_network(drawn):
    for svg in drawn:
        sheet = next(ElementTree.fromstring(svg).iter(f"{SVG}path"))
        assert sheet.get("style") == "fill: none"
        assert not re.search(r'(href|src)="(?!#|data:)', svg)
        assert "<metadata" not in svg


def test_drawing_changes_no_global_setting(make_evaluation):
    before = dict(matplotlib.rcParams)
    figures.depth_histogram(make_evaluation())
    assert dict(matplotlib.rcParams) == before


def test_a_readers_own_matplotlib_settings_do_not_change_a_figure(make_evaluation):
    plain = figures.depth_histogram(make_evaluation())
    with matplotlib.rc_context({"font.size": 30.0, "axes.xmargin": 0.4, "xtick.direction": "in"}):
        assert figures.depth_histogram(make_evaluation()) == plain


@pytest.mark.parametrize("classes", [2, 10, 77])
def test_a_confusion_matrix_prints_counts_for_few_labels_and_thins_ticks_for_many(make_evaluation, classes):
    evaluation = make_evaluation(classes=classes, texts=8 * classes, labels=[f"name{i}" for i in range(classes)])
    found = words(figures.confusion_matrix(evaluation))
    ticks = [word for word in found if word.startswith("name")]
    counts = [word for word in found if word.isdigit()]
    if classes <= 15:
        assert ticks == [f"name{i}" for i in range(classes)] * 2
        assert sorted(map(int, counts)) == sorted(count for row in evaluation.confusion for count in row)
    else:
        assert len(ticks) == len(set(ticks)) * 2 <= 60
        assert counts == []


def test_labels_with_markup_dollars_controls_and_other_scripts_come_through(make_evaluation):
    labels = ["<script>", "$5 & $6", "nul\x00\ud800", "退款请求"]
    assert words(figures.confusion_matrix(make_evaluation(labels=labels)))[:4] == [
        "<script>",
        "$5 & $6",
        "nul  ",
        "退款请求",
    ]


def test_a_long_label_is_cut(make_evaluation):
    found = words(figures.confusion_matrix(make_evaluation(labels=["a" * 300, "b", "c", "d"])))
    assert max(map(len, found)) == 22


def test_a_row_without_texts_is_drawn(make_evaluation):
    evaluation = replace(make_evaluation(classes=2), confusion=[[3, 1], [0, 0]])
    assert "3" in words(figures.confusion_matrix(evaluation))


def test_exits_that_were_not_trained_are_said_to_be_so(make_evaluation):
    assert "not trained (hollow)" in words(figures.exit_scores(make_evaluation(trained=[6])))
    assert "not trained (hollow)" not in words(figures.exit_scores(make_evaluation()))
    assert "accuracy" not in words(figures.exit_scores(make_evaluation(trained=[])))


@pytest.mark.parametrize("trained", [[1, 2], [2, 4, 6], range(1, 7)])
def test_the_mean_over_the_trained_exits_is_named(make_evaluation, trained):
    evaluation = make_evaluation(trained=trained)
    right = [exit.accuracy for exit in evaluation.by_exit if exit.depth in trained]
    found = words(figures.exit_scores(evaluation))
    assert f"mean accuracy {sum(right) / len(right):.3f}" in found
    assert f"the mean over {len(right)} exits is {sum(right) / len(right):.3f}" in captions.exits(evaluation).shows


def test_the_axis_of_scores_ends_at_one(make_evaluation, make_history):
    truth, exits = [0, 1] * 20, {depth: [0, 1] * 20 for depth in range(1, 5)}
    perfect = Evaluation.of(truth, truth, [4] * 40, exits, range(1, 5), 4, ["no", "yes"], {"name": "never"})
    history = make_history()
    scored = History(history.steps, [replace(record, score=1.0) for record in history.epochs])
    for drawn in (figures.exit_scores(perfect), figures.validation_curve(scored)):
        shown = [float(word) for word in words(drawn) if re.fullmatch(r"\d\.\d+", word)]
        assert 1.0 in shown
        assert max(shown) == 1.0


def test_one_exit_or_none_has_no_mean(make_evaluation):
    for trained in ([6], []):
        evaluation = make_evaluation(trained=trained)
        assert not [word for word in words(figures.exit_scores(evaluation)) if "mean" in word]
        assert "mean" not in captions.exits(evaluation).shows


def test_each_phase_has_its_own_updates_and_epochs_along_its_axes(make_two_phases):
    first, second = make_two_phases(first=400, second=300).phases.values()
    for draw in (figures.loss_curve, figures.angle_curve, figures.cosine_strips):
        before, after = ticks(draw(first)), ticks(draw(second))
        assert before
        assert after
        assert max(before) <= 400 <= min(after) < max(after) <= 700
    epochs = [ticks(figures.validation_curve(phase)) for phase in (first, second)]
    assert epochs == [[1, 2], [1, 2, 3]]


def test_the_figures_of_two_phases_share_no_ids(make_two_phases):
    first, second = make_two_phases().phases.values()
    for draw in OF_HISTORY:
        ids = [set(re.findall(r'\bid="([^"]+)"', draw(phase))) for phase in (first, second)]
        assert not ids[0] & ids[1]


def test_a_phase_of_several_exits_shows_their_mean_and_range_and_no_best_epoch(make_two_phases):
    first, second = make_two_phases().phases.values()
    one, several = words(figures.validation_curve(first)), words(figures.validation_curve(second))
    assert "kept: 0.820" in one
    assert "mean of the exits" not in one
    assert {"mean of the exits", "lowest to highest exit"} <= set(several)
    assert not [word for word in several if word.startswith("kept")]
    said = captions.validation(second)
    assert "the mean of 3 exits" in said.read
    assert "each exit keeps an epoch of its own" in said.read
    assert said.shows == "The mean of 3 exits was highest after epoch 2 of 3 (0.567)."
    alone = History(second.steps[:10], second.epochs[:1])
    assert "lowest to highest exit" in words(figures.validation_curve(alone))


def test_exits_that_learn_together_share_a_best_epoch(make_two_phases):
    epochs = [replace(record, phase="joint") for record in make_two_phases().phases["exits"].epochs]
    history = History([], [epochs[0], epochs[1], replace(epochs[2], best=False)])
    assert {"kept: 0.567", "lowest to highest exit"} <= set(words(figures.validation_curve(history)))
    assert captions.validation(history).shows == "Of 3 epochs, epoch 2 is kept (0.567); the last one scored 0.500."


def test_the_histogram_says_the_counts_and_the_mean(make_evaluation):
    evaluation = make_evaluation(layers=12)
    found = words(figures.depth_histogram(evaluation))
    assert f"mean depth {evaluation.mean_depth:.2f}" in found
    assert {str(count) for count in evaluation.depths.values() if count} <= set(found)


def test_the_angles_say_the_threshold_and_the_share_kept(make_history):
    history = make_history()
    found = words(figures.angle_curve(history, threshold=85.0))
    kept = sum(record.angle <= 90 for record in history.steps) / len(history.steps)
    assert "threshold 85°" in found
    assert f"kept ({kept:.1%})" in found


def test_without_a_threshold_none_is_drawn(make_history):
    assert not [word for word in words(figures.angle_curve(make_history(), threshold=None)) if "threshold" in word]


def pixels(svg):
    """The one picture inside a figure, (rows, columns, RGBA)."""
    (data,) = re.findall(r'href="data:image/png;base64,([^"]+)"', svg, flags=re.S)
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("updates", [1, 7, 80, 81, 500])
def test_a_strip_is_blue_where_gradients_agree_orange_where_they_conflict_and_grey_without_one(updates):
    middle = updates // 2
    steps = [
        StepRecord(
            step=n,
            epoch=1.0,
            loss=1.0,
            parts={},
            lr=1.0,
            cosines={"layer-1": -0.6, "exit-1": 0.6 if n <= middle else -0.6, "exit-2": math.nan if n > 1 else 0.6},
        )
        for n in range(1, updates + 1)
    ]
    svg = figures.cosine_strips(History(steps, []))
    assert [word for word in words(svg) if "-" in word] == ["layer-1", "exit-1", "exit-2"]
    assert {"−0.6 conflict", "0", "agreement 0.6"} <= set(words(svg))
    found = pixels(svg)
    height = len(found)
    top, turning, idle = (found[int(height * (row + 0.5) / 3)] for row in range(3))
    orange, blue, grey = (matplotlib.colors.to_rgb(c) for c in (figures.ORANGE, figures.BLUE, figures.FAINT))
    near = {"abs": 0.02}  # a byte per colour
    assert tuple(top[0, :3]) == tuple(top[-1, :3]) == pytest.approx(orange, **near)
    assert tuple(turning[-1, :3]) == pytest.approx(orange, **near)
    assert tuple(turning[0, :3]) == pytest.approx(blue if middle else orange, **near)
    assert tuple(idle[0, :3]) == pytest.approx(blue, **near)
    assert tuple(idle[-1, :3]) == pytest.approx(grey if updates > 1 else blue, **near)


def test_each_part_of_a_loss_has_its_panel(make_history):
    assert {"loss", "ce", "contrast"} <= set(words(figures.loss_curve(make_history())))


def test_updates_of_fewer_texts_are_left_out_of_the_loss_and_said_to_be(make_history):
    history = make_history(updates=100, epochs=4)
    full = [replace(record, texts=32) for record in history.steps]
    small = {"texts": 3, "loss": 0.0, "parts": {"ce": 0.0, "contrast": 0.0}}
    spiked = [replace(record, **small) if record.step % 25 == 7 else record for record in full]
    rest = [record for record in full if record.step % 25 != 7]
    assert figures.loss_curve(History(spiked, history.epochs)) == figures.loss_curve(History(rest, history.epochs))
    assert "fewer texts than the others are left out (4 of 100)" in captions.loss(History(spiked, history.epochs)).read
    assert "left out" not in captions.loss(History(full, history.epochs)).read
    assert "left out" not in captions.loss(history).read  # an older log does not tell


def test_the_losses_of_tenths_and_of_epochs_are_told_apart(make_history):
    history = make_history(updates=100, epochs=4)
    steps = [replace(r, loss=14.7 if r.step <= 10 else 8.9 if r.step > 90 else 12.0) for r in history.steps]
    epochs = [replace(r, loss=loss) for r, loss in zip(history.epochs, (19.5, 12.0, 8.0, 6.76), strict=True)]
    assert captions.loss(History(steps, epochs)).shows == (
        "Its median over the first tenth of 100 updates is 14.7, over the last tenth 8.9; "
        "its mean over the first epoch is 19.5, over the last 6.76."
    )
    assert captions.loss(History(steps, [])).shows.endswith("over the last tenth 8.9.")


def test_a_long_run_does_not_make_a_large_file(make_history):
    short, long = make_history(updates=600), make_history(updates=6000)
    for draw in (figures.loss_curve, figures.angle_curve, figures.cosine_strips):
        assert len(draw(long)) < 1.3 * len(draw(short))


def test_numbers_that_are_not_finite_are_passed_over(make_history):
    history = make_history()
    none = dict.fromkeys(history.steps[0].cosines, float("nan"))
    steps = [replace(r, loss=float("nan"), angle=float("inf"), cosines=none) for r in history.steps[:5]]
    broken = History([*steps, *history.steps[5:]], history.epochs)
    for draw in OF_HISTORY:
        ElementTree.fromstring(draw(broken))


def test_thinning_keeps_both_ends_and_the_order():
    found = thin(list(range(10_000)))
    assert (len(found), found[0], found[-1]) == (MOST_POINTS, 0, 9_999)
    assert found == sorted(set(found))
    assert thin([3, 1, 2]) == [3, 1, 2]


def test_a_running_median_ignores_one_wild_value():
    points = [(float(x), 1.0) for x in range(50)]
    points[20] = (20.0, 1e9)
    assert running_median(points) == [(float(x), 1.0) for x in range(50)]


@pytest.mark.parametrize("draw", OF_HISTORY)
def test_a_figure_without_data_is_refused(draw):
    with pytest.raises(DataError, match="Found none"):
        draw(History())


def test_without_matplotlib_the_extra_is_named(monkeypatch, make_evaluation):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"offramp\[plots\]"):
        figures.depth_histogram(make_evaluation())
