"""The speed-quality curve: what a slow replay of single texts gives, point by point, and AUROC by counting pairs."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from tests.conftest import LABELS, fresh_texts, small_bert, toy_texts

from offramp import Classifier
from offramp.config import load_recipe
from offramp.data.seen import digests
from offramp.errors import ConfigError, DataError
from offramp.exits import checkpoint
from offramp.exits.model import build
from offramp.preparation import as_table
from offramp.report.curve import Curve, Point, auroc, caption, speed_quality
from offramp.report.history import History
from offramp.report.page import render
from offramp.runtime import sweep
from offramp.types import ExitOutput

TEXTS = 60
WITHOUT_MEMORY = ("confidence", "entropy", "margin", "energy", "anchor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A random model on disk that says of its exits 1, 3 and 4 that they were trained."""
    with torch.random.fork_rng():
        model = build(small_bert(), LABELS, exit_size=16, exit_heads=2).train(False)
    model.config.trained_exits, model.config.max_tokens = [1, 3, 4], 32
    place = tmp_path_factory.mktemp("curve") / "model"
    checkpoint.save(place, model, tokenizer, load_recipe("ce"), seen=digests([]))
    return place


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tests look at times."""
    monkeypatch.setattr(sweep, "ROUNDS", 1)
    monkeypatch.setattr(sweep, "MOST_TIMED", 4)


@pytest.fixture
def classifier(folder: Path) -> Classifier:
    return Classifier.load(folder, batch_size=25)


@pytest.fixture(scope="module")
def data() -> Any:
    return as_table(*toy_texts(TEXTS, seed=3), "texts")


@pytest.fixture(scope="module")
def alone(folder: Path, data: Any) -> list[dict[int, ExitOutput]]:
    """What every exit says of each text when it has a batch to itself."""
    classifier = Classifier.load(folder)
    tokens = classifier._tokenise(data.examples)
    with torch.no_grad():
        return [classifier.model_.outputs(tokens.batch([row])) for row in range(len(tokens))]


def score(name: str, output: ExitOutput) -> float:
    """The formulas again, for one text."""
    logits = [float(value) for value in output.logits[0]]
    top = max(logits)
    total = math.fsum(math.exp(value - top) for value in logits)
    p = sorted((math.exp(value - top) / total for value in logits), reverse=True)
    if name == "confidence":
        return p[0]
    if name == "margin":
        return p[0] - p[1]
    if name == "entropy":
        return 1 + math.fsum(q * math.log(q) for q in p) / math.log(len(p))
    return top + math.log(total)


def replayed(name: str, threshold: float | None, alone: list[Any], truth: list[int]) -> tuple[float, float]:
    """Accuracy and mean depth, text by text."""
    right, layers = 0, 0
    for outputs, wanted in zip(alone, truth, strict=True):
        left = 4
        for depth in (3, 1):
            if threshold is not None and score(name, outputs[depth]) >= threshold:
                left = depth
        right += int(outputs[left].logits.argmax()) == wanted
        layers += left
    return right / len(truth), layers / len(truth)


@pytest.mark.parametrize("name", ["confidence", "margin", "entropy", "energy"])
def test_every_point_is_what_a_slow_replay_gives(classifier: Classifier, data: Any, alone: Any, name: str) -> None:
    curve = classifier.curve(data, name)
    truth = classifier.labels_.encode(data.labels)
    assert len(curve.points) == 15
    for point in curve.points:
        assert (point.accuracy, point.mean_layers) == pytest.approx(
            replayed(name, point.threshold, alone, truth), abs=1e-12
        )
    assert {point.policy for point in curve.points} == {name}


@pytest.mark.parametrize("name", [*WITHOUT_MEMORY, "patience", "patient-confidence", "vote"])
def test_points_go_from_everybody_leaving_to_nobody_by_rising_thresholds(
    classifier: Classifier, data: Any, name: str
) -> None:
    points = classifier.curve(data, name).points
    layers = [point.mean_layers for point in points]
    limits = [point.threshold for point in points if point.threshold is not None]
    assert layers == sorted(set(layers))
    assert limits == sorted(set(limits))
    # Two exits in a row are read first at depth 3.
    assert layers[0] == (3.0 if name == "patient-confidence" else 1.0)
    assert (points[-1].threshold, layers[-1]) == (None, 4.0)
    if name in WITHOUT_MEMORY:
        gaps = [after - before for before, after in itertools.pairwise(layers)]
        assert max(gaps) <= 3 / 14 + 2 * 3 / TEXTS  # even, up to a text on either side


def test_a_threshold_of_the_curve_gives_the_same_when_it_is_set(classifier: Classifier, data: Any) -> None:
    for point in classifier.curve(data, "margin").points[:-1]:
        found = classifier.set_params(policy="margin", threshold=point.threshold).evaluate(data)
        assert (found.accuracy, found.mean_depth) == (point.accuracy, point.mean_layers)


def test_the_full_model_and_the_cut_ones_are_the_exits_of_the_evaluation(classifier: Classifier, data: Any) -> None:
    curve = classifier.curve(data)
    never = classifier.set_params(policy="never").evaluate(data)
    assert (curve.full.accuracy, curve.full.mean_layers) == (never.accuracy, never.mean_depth)
    exits = {exit.depth: exit.accuracy for exit in never.by_exit}
    assert {p.mean_layers: p.accuracy for p in curve.truncated} == {1.0: exits[1], 3.0: exits[3]}
    assert curve.points[0].accuracy == exits[1]
    assert curve.points[-1].accuracy == exits[4] == curve.full.accuracy


def test_auroc_counts_pairs_of_a_right_and_a_wrong_answer(classifier: Classifier, data: Any, alone: Any) -> None:
    truth = classifier.labels_.encode(data.labels)
    curve = classifier.curve(data, "margin")
    assert list(curve.auroc) == [1, 3, 4]
    for depth, found in curve.auroc.items():
        right, wrong = [], []
        for outputs, wanted in zip(alone, truth, strict=True):
            side = right if int(outputs[depth].logits.argmax()) == wanted else wrong
            side.append(score("margin", outputs[depth]))
        won = sum(a > b for a in right for b in wrong)
        assert found == pytest.approx(won / (len(right) * len(wrong)), abs=1e-12)


def test_auroc_counts_a_tie_half_and_is_undefined_where_an_exit_is_always_right_or_wrong_or_unsaid() -> None:
    assert auroc([1.0, 1.0], [True, False]) == 0.5
    assert auroc([0.2, 0.9], [True, False]) == 0.0
    assert auroc([0.1, 0.9], [True, True]) is None
    assert auroc([0.1, 0.9], [False, False]) is None
    assert auroc([-math.inf, -math.inf], [True, False]) is None


def test_the_policy_is_the_one_in_force_if_it_has_a_threshold(classifier: Classifier, data: Any) -> None:
    assert classifier.curve(data).policy == "confidence"  # `never` has none
    assert classifier.set_params(policy="energy").curve(data).policy == "energy"
    assert classifier.curve(data, "vote").policy == "vote"
    with pytest.raises(ConfigError, match="`fixed` is not a known policy with a threshold"):
        classifier.curve(data, "fixed")


def test_the_calibrated_policy_is_a_point_of_its_own(classifier: Classifier, data: Any) -> None:
    assert classifier.curve(data).calibrated is None
    held_out = as_table(*fresh_texts(200, 9, trained=0), "held out")
    certificate = classifier.calibrate(held_out, max_disagreement=0.5)
    assert certificate.thresholds
    own = classifier.curve(data)
    found = classifier.evaluate(data)
    assert own.policy == own.calibrated.policy == certificate.policy
    assert (own.calibrated.accuracy, own.calibrated.mean_layers) == (found.accuracy, found.mean_depth)
    # It stays beside a policy that somebody names.
    other = classifier.set_params(policy="energy").curve(data)
    assert (other.policy, other.calibrated.policy) == ("energy", certificate.policy)


@pytest.mark.parametrize("name", ["learned", "prior"])
def test_a_policy_that_is_fitted_is_swept_once_it_is(classifier: Classifier, data: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="should be fitted to held-out texts first"):
        classifier.curve(data, name)
    certificate = classifier.calibrate(as_table(*fresh_texts(200, 9, trained=0), "held out"), 0.5, policy=name)
    assert certificate.policy == name
    curve = classifier.curve(data)
    assert curve.policy == name
    assert len(curve.points) > 5
    assert curve.auroc[4] is None  # nobody asks it of the last exit
    assert None not in (curve.auroc[1], curve.auroc[3])


def test_a_model_whose_last_exit_alone_was_trained_has_nothing_to_sweep(classifier: Classifier, data: Any) -> None:
    classifier.model_.config.trained_exits = [4]
    with pytest.raises(ConfigError, match="Found none, so that there is nothing to sweep: train with a recipe"):
        classifier.curve(data)


@pytest.mark.slow
def test_an_exported_model_has_the_same_curve(classifier: Classifier, data: Any, tmp_path: Path) -> None:
    classifier.export(tmp_path / "onnx")
    exported = Classifier.load(tmp_path / "onnx", threads=1, batch_size=25).curve(data)
    curve = classifier.curve(data)
    assert (exported.engine, exported.threads) == ("onnx", 1)
    for ours, theirs in zip(
        [*curve.points, curve.full, *curve.truncated],
        [*exported.points, exported.full, *exported.truncated],
        strict=True,
    ):
        assert theirs.accuracy == pytest.approx(ours.accuracy, abs=1 / TEXTS)
        assert theirs.mean_layers == pytest.approx(ours.mean_layers, abs=3 / TEXTS)
    assert exported.auroc == pytest.approx(curve.auroc, abs=1e-2)


# Time.


class Clock:
    """Time that passes only when something is run: as long as the script says."""

    def __init__(self, taken: list[float]) -> None:
        self.now, self.taken, self.order = 0.0, iter(taken), []

    def run(self, engine: Any, tokens: Any, policy: Any, batch_size: int) -> Any:
        self.order.append(policy)
        self.now += next(self.taken)
        return policy

    def read(self) -> float:
        return self.now


def test_rounds_are_interleaved_after_a_warm_up_and_a_slow_round_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm_up, slow = [100.0, 100.0, 100.0], [50.0, 50.0, 50.0]
    # Every other round goes backwards.
    rounds = [[1.0, 2.0, 3.0], [3.5, 2.5, 1.5], slow, [2.0, 1.0, 0.5], [1.0, 2.0, 3.0]]
    clock = Clock([*warm_up, *itertools.chain(*rounds)])
    monkeypatch.setattr(sweep, "ROUNDS", 5)
    monkeypatch.setattr(sweep, "run", clock.run)
    monkeypatch.setattr(sweep, "perf_counter", clock.read)
    found = sweep.measure(None, range(9), range(2), ["a", "b", "c"], 8)
    assert "".join(clock.order) == "abc" + "abc" + "cba" + "abc" + "cba" + "abc"
    assert [ran.decision for ran in found] == ["a", "b", "c"]
    # Two texts; the medians of 1, 1.5, 50, 0.5, 1 and so on.
    assert [ran.seconds for ran in found] == [0.5, 1.0, 1.5]


def test_many_texts_are_timed_on_some_from_all_over(classifier: Classifier, data: Any) -> None:
    tokens = classifier._tokenise(data.examples)
    some = sweep._some(tokens, 7)
    rows = [round(place * (TEXTS - 1) / 6) for place in range(7)]
    assert sweep._some(tokens, TEXTS) is tokens
    assert len(some) == 7
    for field in ("input_ids", "mask", "token_types"):
        assert torch.equal(getattr(some.batch(range(7)), field), getattr(tokens.batch(rows), field))


def test_times_are_those_of_the_sweep(classifier: Classifier, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "MOST_TIMED", 20)
    monkeypatch.setattr(sweep, "ROUNDS", 2)
    curve = classifier.curve(data)
    assert (curve.texts, curve.timed, curve.rounds, curve.batch_size) == (TEXTS, 20, 2, 25)
    assert all(point.seconds > 0 for point in [*curve.points, *curve.truncated, curve.full])


# Thresholds.


def test_thresholds_stand_between_scores_and_never_on_one() -> None:
    scores = torch.rand(3, 50, generator=torch.Generator().manual_seed(0))
    found = sweep.even_thresholds(scores, [1, 2, 3], 4, lowest=0.0)
    known = set(scores.flatten().tolist())
    assert (len(found), found[0], found[-1]) == (15, 0.0, None)
    assert not known & set(found)


def test_scores_of_few_values_give_few_thresholds() -> None:
    scores = torch.tensor([[1.0, 1.0, 1.0], [2.0, 1.0, 2.0]])
    assert sweep.even_thresholds(scores, [1, 2], 3, lowest=1.0) == [1.0, 1.5, None]


def test_where_no_exit_has_a_score_nobody_leaves() -> None:
    assert sweep.even_thresholds(torch.full((1, 3), -math.inf), [1], 2, lowest=0.0) == [None]


# The page.

CURVE = Curve(
    policy="confidence",
    points=[
        Point("confidence", 0.0, 0.5, 1.0, 0.001),
        Point("confidence", 0.75, 0.795, 2.5, 0.0025),
        Point("confidence", 0.9, 0.81, 3.0, 0.003),
        Point("confidence", None, 0.8, 4.0, 0.0042),
    ],
    full=Point("never", None, 0.8, 4.0, 0.004),
    truncated=[Point("fixed", None, 0.5, 1.0, 0.0009)],
    calibrated=Point("margin", None, 0.8, 2.0, 0.002),
    auroc={1: 0.625, 4: None},
    layers=4,
    texts=1200,
    timed=512,
    rounds=5,
    batch_size=64,
    engine="torch",
    threads=2,
)


def words(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_figure_has_two_panels_and_names_its_marks() -> None:
    found = Counter(words(speed_quality(CURVE)))
    named = ("ms per text", "mean layers", "accuracy", "confidence", "cut off after a layer", "full model")
    assert [found[name] for name in (*named, "calibrated (margin)")] == [1] * 7
    assert "calibrated (margin)" not in words(speed_quality(replace(CURVE, calibrated=None)))
    assert speed_quality(CURVE) == speed_quality(CURVE)


def test_a_curve_without_points_is_refused() -> None:
    with pytest.raises(DataError, match="Found none"):
        speed_quality(replace(CURVE, points=[]))


def test_the_caption_names_the_fewest_layers_that_nearly_keep_the_accuracy_and_says_what_flatters() -> None:
    said = caption(CURVE)
    assert "chosen on the texts they are scored on, which flatters them a little" in said.read
    assert (
        "medians of 5 rounds over 512 texts in batches of 64, tokens already made, by torch with 2 threads" in said.read
    )
    assert said.shows == (
        "Within 0.01 of the full model (0.800, 4 ms per text), confidence at 0.75 runs 2.50 of 4 layers in 2.5 ms "
        "(0.795), on 1,200 texts."
    )
    poor = replace(CURVE, points=[CURVE.points[0], CURVE.points[-1]], calibrated=None)
    assert caption(poor).shows.startswith("No threshold that lets texts leave early comes within 0.01 of the full")
    assert "star" not in caption(poor).read


def test_the_page_has_the_figure_the_folded_points_and_the_auroc() -> None:
    page = render("A run", None, History(), {}, {}, curve=CURVE)
    assert re.findall("<h2.*?>(.*?)</h2>", page) == ["Speed and quality"]
    assert f'<svg role="img" aria-label="Speed and quality. {caption(CURVE).shows}"' in page
    folded = re.search("<details>(.*?)</details>", page, re.DOTALL)
    assert folded is not None
    assert "All 7 points as a table" in folded[1]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page)
    cells = {name + "".join(re.findall("<td.*?>(.*?)</td>", rest)[:1]): rest for name, rest in rows}
    assert list(cells)[:4] == ["confidence0", "confidence0.75", "confidence0.9", "confidencenobody leaves"]
    assert list(cells)[4:7] == ["cut off after layer 1–", "full model–", "calibrated (margin)per exit"]
    assert list(cells)[7:] == ["10.625", "4–"]
    assert re.findall("<td.*?>(.*?)</td>", cells["confidence0.75"]) == ["0.75", "0.7950", "2.50", "2.500"]


def test_without_matplotlib_the_page_has_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = render("A run", None, History(), {}, {}, curve=CURVE)
    assert "<svg" not in page
    assert "offramp[plots]" in page
    assert page.count("<table>") == 2


def test_the_curve_as_json_is_plain() -> None:
    found = json.loads(json.dumps(CURVE.to_json(), allow_nan=False))
    assert found["auroc"] == {"1": 0.625, "4": None}
    assert found["points"][-1] == {
        "policy": "confidence",
        "threshold": None,
        "accuracy": 0.8,
        "mean_layers": 4.0,
        "seconds": 0.0042,
    }
    assert (found["full"]["policy"], found["truncated"][0]["policy"], found["calibrated"]["policy"]) == (
        "never",
        "fixed",
        "margin",
    )
