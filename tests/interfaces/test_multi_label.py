"""Texts with sets of labels, from `fit` to the command line: what comes out is a set again, and it is learnt."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from sklearn.preprocessing import MultiLabelBinarizer

from offramp import Classifier
from offramp.data.sources import Table, columns, read
from offramp.errors import ConfigError, DataError
from offramp.policies.evidence import LABEL_DROP
from offramp.preparation import as_table
from offramp.reading import answers
from offramp.report.set_metrics import SetEvaluation
from offramp.runtime.engine import pool
from offramp.runtime.predictions import SetPrediction
from offramp.types import Example

LABELS = ("bad", "fine", "good")
FILLERS = ("film", "plot", "was", "is", "very", "not", "dull", "bright", "slow", "quick", "story", "who", "where")
SETS = {"data.labels": "set", "optimise.metric": "micro_f1", "optimise.track": [], "exits.size": 16}
JOINT = {
    **SETS,
    "optimise.strategy": "joint",
    "optimise.epochs": 15,
    "optimise.batch_size": 32,
    "optimise.lr_backbone": 3e-3,
    "optimise.lr_exit": 1e-2,
}
QUICK = {**SETS, "optimise.epochs": 1, "stage2.epochs": 1, "stage2.least_updates": 0}

Sets = list[list[str]]


def toy(n: int, seed: int = 0) -> tuple[list[str], Sets]:
    """Texts that have each label whose word stands in them, and their labels."""
    chance = random.Random(seed)
    texts: list[str] = []
    labels: Sets = []
    while len(texts) < n:
        own = [label for label in LABELS if chance.random() < 0.4]
        words = [*chance.choices(FILLERS, k=chance.randint(3, 9)), *own]
        chance.shuffle(words)
        texts.append(" ".join(words))
        labels.append(own)
    return texts, labels


def held_out(n: int, seed: int = 1) -> Table:
    seen = set(toy(320)[0])
    rows = {text: own for text, own in zip(*toy(2 * n, seed), strict=True) if text not in seen}
    return as_table(list(rows)[:n], list(rows.values())[:n], "held-out", "|")


def own(table: Table) -> Sets:
    return [[str(label) for label in found or ()] for found in table.label_sets()]


def texts_of(table: Table) -> list[str]:
    return [example.text for example in table.examples]


@pytest.fixture(scope="module")
def fitted(backbone_folder: Path) -> Classifier:
    """A model of sets, all of whose exits are trained together; what a test sets on it is set back."""
    return Classifier("acl-multi-exit", str(backbone_folder), JOINT).fit(*toy(320))


@pytest.fixture
def classifier(fitted: Classifier) -> Any:
    parameters = fitted.get_params()
    yield fitted
    fitted.set_params(**parameters)
    fitted.certified_ = None


def test_the_sets_are_learnt_far_beyond_the_best_constant_answer(classifier: Classifier) -> None:
    table = held_out(200)
    constant = Counter(map(tuple, own(table))).most_common(1)[0][1] / 200
    evaluation = classifier.evaluate(table)
    assert isinstance(evaluation, SetEvaluation)
    assert evaluation.accuracy > constant + 0.2
    # The best a constant can do for micro-F1 is to give every label always.
    share = len([label for labels in own(table) for label in labels]) / 600
    assert evaluation.micro_f1 > 2 * share / (1 + share) + 0.15


def test_the_scores_are_scikit_learns(classifier: Classifier) -> None:
    table = held_out(120)
    evaluation = classifier.evaluate(table)
    assert isinstance(evaluation, SetEvaluation)
    binary = MultiLabelBinarizer(classes=list(LABELS))
    truth, given = binary.fit_transform(own(table)), binary.transform(classifier.predict(texts_of(table)))
    assert evaluation.accuracy == pytest.approx(metrics.accuracy_score(truth, given))
    assert evaluation.micro_f1 == pytest.approx(metrics.f1_score(truth, given, average="micro"))
    assert evaluation.macro_f1 == pytest.approx(metrics.f1_score(truth, given, average="macro"))
    assert evaluation.hamming_loss == pytest.approx(metrics.hamming_loss(truth, given))
    assert classifier.score(texts_of(table), own(table)) == pytest.approx(evaluation.accuracy)
    for row in evaluation.by_exit:
        classifier.set_params(policy="fixed", depth=row.depth)
        assert classifier.score(texts_of(table), own(table)) == pytest.approx(row.accuracy)


def test_a_label_is_given_where_its_probability_is_one_half_or_more(classifier: Classifier) -> None:
    texts = toy(40, seed=3)[0]
    chances = classifier.predict_proba(texts)  # (N, C)
    wanted = [[LABELS[k] for k in range(3) if row[k] >= 0.5] for row in chances]
    assert classifier.predict(texts) == wanted
    assert chances.shape == (40, 3)
    assert np.abs(chances.sum(axis=1) - 1.0).max() > 0.1
    for row, found in zip(chances, classifier.decide(texts), strict=True):
        assert isinstance(found, SetPrediction)
        assert list(found.probabilities) == pytest.approx([p for p in row.tolist() if p >= 0.5])
        assert found.probability == pytest.approx(min(max(p, 1 - p) for p in row.tolist()))
    assert classifier.predict([]) == []
    assert classifier.predict_proba([]).shape == (0, 3)


def test_a_text_leaves_where_its_least_sure_label_is_sure_enough(classifier: Classifier) -> None:
    table = held_out(60)
    pooled = pool(classifier.engine_, classifier._tokenise(table.examples), 16)
    for threshold in (0.6, 0.9, 0.99):
        classifier.set_params(policy="confidence", threshold=threshold)
        for row, found in enumerate(classifier.decide(texts_of(table))):
            sure = {}
            for depth in (1, 2, 3):
                yes = torch.sigmoid(pooled.outputs[depth].logits[row])
                sure[depth] = torch.maximum(yes, 1 - yes).min().item()
            if all(abs(each - threshold) > 1e-4 for each in sure.values()):
                assert found.depth == next((depth for depth in sure if sure[depth] >= threshold), 4)


def test_a_policy_that_cannot_read_sets_is_refused_before_and_after_training(
    classifier: Classifier, backbone_folder: Path
) -> None:
    classifier.set_params(policy="vote", threshold=1.0)
    with pytest.raises(ConfigError, match="one for sets of labels: never, fixed, confidence"):
        classifier.predict(["the film"])
    with pytest.raises(ConfigError, match="Found `energy`"):
        classifier.calibrate(held_out(200), max_drop=0.2, policy="energy")
    with pytest.raises(ConfigError, match="Found `anchor`"):
        Classifier("ce", str(backbone_folder), {**QUICK, "policy.name": "anchor"}).fit(*toy(40))


def test_a_folder_gives_the_same_answers_and_says_that_they_are_sets(classifier: Classifier, tmp_path: Path) -> None:
    texts = toy(30, seed=4)[0]
    classifier.save(tmp_path / "m")
    loaded = Classifier.load(tmp_path / "m")
    assert loaded.config_.data.labels == "set"
    assert loaded.predict(texts) == classifier.predict(texts)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["problem_type"] == "multi_label_classification"


def test_hugging_faces_pipeline_reads_independent_probabilities(classifier: Classifier, tmp_path: Path) -> None:
    from transformers import pipeline

    classifier.save(tmp_path / "m")
    texts = toy(6, seed=4)[0]
    told = pipeline("text-classification", str(tmp_path / "m"), top_k=None)(texts)
    for row, found in zip(classifier.predict_proba(texts), told, strict=True):
        by_name = {each["label"]: each["score"] for each in found}
        assert [by_name[label] for label in LABELS] == pytest.approx(row.tolist(), abs=1e-5)


# --- the certificate


def test_the_certificate_is_kept_for_every_label_and_says_so(classifier: Classifier, tmp_path: Path) -> None:
    table = held_out(300)
    certificate = classifier.calibrate(table, max_drop=0.1, confidence=0.9)
    assert (certificate.risk, certificate.epsilon) == (LABEL_DROP, 0.1)
    assert certificate.thresholds, "nobody leaves: nothing was put to the test"
    assert certificate.promises().startswith(
        "For every label, leaving early makes a right decision about it wrong for at most 10 % of the texts, against "
        "the full model, with 90 % confidence"
    )
    assert (
        f"{certificate.harms} of {certificate.certification} texts harmed at the worst label" in certificate.promises()
    )
    assert certificate.harms <= certificate.bound * certificate.certification
    assert all(found.certified for found in classifier.decide(["the film was good"]))
    classifier.save(tmp_path / "m")
    again = Classifier.load(tmp_path / "m")
    assert again.certificate == certificate
    texts = texts_of(table)
    assert [found.depth for found in again.decide(texts)] == [found.depth for found in classifier.decide(texts)]


def test_the_harms_of_the_certificate_are_those_of_its_worst_label(classifier: Classifier) -> None:
    table = held_out(300)
    certificate = classifier.calibrate(table, max_drop=0.1, confidence=0.9, policy="confidence")
    truth = torch.tensor(classifier.truth(table))
    early = answers(classifier._run(classifier._tokenise(table.examples)).logits, sets=True)
    classifier.set_params(policy="never")
    full = answers(classifier._run(classifier._tokenise(table.examples)).logits, sets=True)
    harmed = ((full == truth) & (early != truth)).sum(dim=0)  # (C,), of both parts of the texts
    assert certificate.harms <= int(harmed.max())
    assert int(harmed.max()) - certificate.harms <= certificate.selection


def test_a_disagreement_needs_no_labels_and_counts_whole_sets(classifier: Classifier) -> None:
    bare = read([Example(text) for text in texts_of(held_out(300))], labels_required=False, separator="|")
    certificate = classifier.calibrate(bare, max_disagreement=0.2)
    assert certificate.promises().startswith("At most 20 % of the answers differ from the full model's")
    with pytest.raises(DataError, match="Every text should have a set of labels"):
        classifier.calibrate(bare, max_drop=0.2)


# --- training


@pytest.mark.parametrize("kind", ["linear", "mha", "residual", "match", "fusion", "leam", "lsan"])
def test_every_exit_learns_sets_in_two_stages(backbone_folder: Path, kind: str) -> None:
    classifier = Classifier("acl-multi-exit", str(backbone_folder), {**QUICK, "exits.kind": kind}).fit(*toy(60))
    assert classifier.model_.config.trained_exits == [1, 2, 3, 4]
    assert all(torch.isfinite(p).all() for p in classifier.model_.parameters())


def test_the_exits_learn_the_same_from_cached_states(backbone_folder: Path) -> None:
    found = [
        Classifier("acl-multi-exit", str(backbone_folder), {**QUICK, "stage2.cache_gb": room}).fit(*toy(60))
        for room in (1.0, 0.0)
    ]
    texts = toy(20, seed=5)[0]
    for depth in (1, 2, 3):
        cached, fresh = (each.set_params(policy="fixed", depth=depth).predict_proba(texts) for each in found)
        np.testing.assert_allclose(cached, fresh, atol=2e-2)  # the cache holds states in half precision


@pytest.mark.parametrize("name", ["scl", "infonce"])
@pytest.mark.parametrize("batch", [0, 32])
def test_other_objectives_and_the_gradient_cache_take_sets(backbone_folder: Path, name: str, batch: int) -> None:
    settings = {**QUICK, "objective.name": name, "optimise.contrast_batch": batch, "optimise.batch_size": 16}
    fitted = Classifier("ce", str(backbone_folder), settings).fit(*toy(60))
    assert all(torch.isfinite(p).all() for p in fitted.model_.parameters())


def test_batches_in_which_nobody_has_a_label_do_no_harm(backbone_folder: Path) -> None:
    texts, labels = toy(60)
    sparse = [found if row % 20 == 0 else [] for row, found in enumerate(labels)]
    sparse[0], sparse[20] = ["bad", "fine"], ["good", "fine"]
    fitted = Classifier("acl-multi-exit", str(backbone_folder), {**QUICK, "optimise.batch_size": 4}).fit(texts, sparse)
    assert all(torch.isfinite(p).all() for p in fitted.model_.parameters())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"objective.name": "lacon"}, r"`objective.name` should be one for sets of labels: ce, scl, acl, acl-cl"),
        ({"stage2.objective": "icl"}, r"`stage2.objective` should be one for sets of labels"),
        ({"optimise.metric": "mcc"}, r"`optimise.metric` should be accuracy or macro_f1 or micro_f1 for sets"),
        ({"objective.class_weights": "balanced"}, r"`objective.class_weights` should be none for sets of labels"),
        ({"data.sampler": "balanced"}, r"`data.sampler` should be length for sets of labels"),
        ({"protocol.label_noise": 0.1}, r"`protocol.label_noise` should be 0.0 for sets of labels"),
        ({"data.labels": "one"}, r"`optimise.metric` should be micro_f1 for sets of labels only"),
    ],
)
def test_settings_that_sets_do_not_have_are_refused(backbone_folder: Path, settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Classifier("ce", str(backbone_folder), {**QUICK, **settings}).fit_table(held_out(40))


def test_lists_of_labels_without_the_setting_are_told_of_it(backbone_folder: Path) -> None:
    plain = Classifier("ce", str(backbone_folder), {"exits.size": 16})
    with pytest.raises(DataError, match=r"set data\.labels=set"):
        plain.fit(*toy(20))
    with pytest.raises(DataError, match=r"A text should have one label\. Found a set of them in held-out, row 1"):
        plain.fit_table(held_out(20))


def test_a_matrix_of_0_and_1_is_not_taken_for_labels(backbone_folder: Path) -> None:
    texts, labels = toy(20)
    rows = MultiLabelBinarizer().fit_transform(labels)
    with pytest.raises(DataError, match="Found a matrix: write the names"):
        Classifier("ce", str(backbone_folder), QUICK).fit(texts, rows)


def test_class_weights_by_label_are_refused_and_weights_of_texts_are_not(backbone_folder: Path) -> None:
    texts, labels = toy(40)
    with pytest.raises(ConfigError, match="`class_weight` should be None where texts have sets"):
        Classifier("ce", str(backbone_folder), QUICK, class_weight={"bad": 2.0}).fit(texts, labels)
    Classifier("ce", str(backbone_folder), QUICK).fit(texts, labels, sample_weight=[1.0, 2.0] * 20)


# --- the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.csv` and `test.csv`, whose labels stand in one cell."""
    made = tmp_path_factory.mktemp("sets")
    for name, (texts, labels) in {"train": toy(80), "test": toy(20, seed=9)}.items():
        with (made / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = zip(texts, ("; ".join(found) for found in labels), strict=True)
            csv.writer(file).writerows([("text", "label"), *rows])
    return made


@pytest.fixture(scope="module")
def arguments(backbone_folder: Path) -> Sequence[object]:
    changed = {**QUICK, "data.label_separator": ";", "optimise.track": "[]", "optimise.lr_exit": 0.05}
    pairs = [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
    return ["--recipe", "acl-multi-exit", "--backbone", backbone_folder, *pairs]


def test_the_verbs_show_sets(
    offramp: Callable[..., Any], folder: Path, arguments: Sequence[object], tmp_path: Path
) -> None:
    out = tmp_path / "m"
    ran = offramp("train", folder / "train.csv", "--out", out, *arguments, "--json")
    assert ran.code == 0, ran.err
    assert set(ran.json["validation"]) >= {"micro_f1", "macro_f1", "accuracy", "hamming_loss", "by_label"}
    assert "How well each label was told" in (out / "report.html").read_text("utf-8")
    classifier = Classifier.load(out)
    given = b"the film was good and fine\nslow story\n"
    wanted = classifier.predict(given.decode().splitlines())
    lines = offramp("predict", out, stdin=given).out.splitlines()
    assert [line.split("\t")[0] for line in lines] == [";".join(found) for found in wanted]
    told = offramp("predict", out, "--json", stdin=given).lines
    assert [each["labels"] for each in told] == wanted
    assert [len(each["probabilities"]) for each in told] == [len(found) for found in wanted]
    shown = offramp("evaluate", out, folder / "test.csv")
    assert shown.code == 0, shown.err
    assert all(word in shown.out for word in ("subset accuracy", "micro-F1", "Hamming loss"))
    curve = offramp("evaluate", out, folder / "test.csv", "--curve", "--json")
    assert curve.json["curve"]["full"]["accuracy"] == pytest.approx(curve.json["accuracy"])
    refused = offramp("evaluate", out, folder / "test.csv", "--map", 2, "--report", tmp_path / "r.html")
    assert refused.code == 2
    assert "Found sets" in refused.err
    card = offramp("card", out, folder / "test.csv")
    assert card.code == 0, card.err
    assert "subset accuracy" in (out / "README.md").read_text("utf-8")


def test_a_blank_may_stand_between_labels() -> None:
    for settings in ({"data.label_separator": " "}, ["data.label_separator= "]):
        config = Classifier("acl-multi-label", settings=settings).config()
        assert read([("a text", "x y")], **columns(config.data)).examples[0].labels == ("x", "y")


def test_an_exported_model_answers_the_same_sets(classifier: Classifier, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    table = held_out(40)
    classifier.save(tmp_path / "m")
    measured = classifier.export(tmp_path / "onnx", data=table)
    assert measured["accuracy_before"] == measured["accuracy_after"] == classifier.score(texts_of(table), own(table))
    exported = Classifier.load(tmp_path / "onnx", policy="confidence", threshold=0.8)
    classifier.set_params(policy="confidence", threshold=0.8)
    assert exported.predict(texts_of(table)) == classifier.predict(texts_of(table))
    np.testing.assert_allclose(
        exported.predict_proba(texts_of(table)), classifier.predict_proba(texts_of(table)), atol=1e-4
    )
