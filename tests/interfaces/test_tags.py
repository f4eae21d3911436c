"""Texts whose words have tags, from `fit` to the command line: tags and spans come out, and they are learnt."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp import Classifier
from offramp.config import load_recipe
from offramp.data.sources import Table, read
from offramp.data.tokens import TruncationWarning
from offramp.data.words import spans, split
from offramp.errors import ConfigError, DataError
from offramp.policies.evidence import WORD_DISAGREEMENT, WORD_DROP
from offramp.preparation import as_table
from offramp.report.tag_metrics import TagEvaluation, tag_scores
from offramp.runtime.engine import pool
from offramp.runtime.tag_predictions import TagPrediction
from offramp.types import Example

LABELS = ("bad", "fine", "good")
FILLERS = ("film", "plot", "was", "is", "very", "not", "dull", "bright", "slow", "quick", "story", "who", "where")
TAGS = {
    "data.labels": "tags",
    "optimise.metric": "span_f1",
    "optimise.track": [],
    "exits.size": 16,
    "data.max_length": 64,
}
JOINT = {
    **TAGS,
    "exits.kind": "linear",
    "optimise.strategy": "joint",
    "optimise.epochs": 12,
    "optimise.batch_size": 16,
    "optimise.lr_backbone": 3e-3,
    "optimise.lr_exit": 1e-2,
    "objective.reduction": "mean",
}
QUICK = {**TAGS, "optimise.epochs": 1, "stage2.epochs": 1, "stage2.least_updates": 0, "objective.reduction": "mean"}

Tagged = tuple[list[list[str]], list[list[str]]]


def toy(n: int, seed: int = 0) -> Tagged:
    """A word that is a label begins a span of it, and `story` right behind goes on with it; elsewhere it is outside."""
    chance = random.Random(seed)
    texts: list[list[str]] = []
    every: list[list[str]] = []
    while len(texts) < n:
        words, tags = [], []
        for _ in range(chance.randint(1, 6)):
            if chance.random() < 0.4:
                label = chance.choice(LABELS)
                words.append(label)
                tags.append(f"B-{label}")
                if chance.random() < 0.5:
                    words.append("story")
                    tags.append(f"I-{label}")
            else:
                words.append(chance.choice(FILLERS))
                tags.append("O")
                if words[-1] == "story" and len(tags) > 1 and tags[-2] != "O":
                    tags[-1] = f"I-{tags[-2][2:]}"
        texts.append(words)
        every.append(tags)
    return texts, every


def held_out(n: int, seed: int = 1) -> Table:
    seen = {" ".join(words) for words in toy(320)[0]}
    rows = {" ".join(row[0]): row for row in zip(*toy(3 * n, seed), strict=True) if " ".join(row[0]) not in seen}
    drawn = list(rows.values())[:n]
    return as_table([words for words, _ in drawn], [own for _, own in drawn], "held-out", tags=True)


def own(table: Table) -> list[list[Any]]:
    return [list(example.tags or ()) for example in table.examples]


def words(table: Table) -> list[list[str]]:
    return [list(example.words or ()) for example in table.examples]


@pytest.fixture(scope="module")
def fitted(backbone_folder: Path) -> Classifier:
    """A model of tags, all of whose exits are trained together; what a test sets on it is set back."""
    return Classifier("acl-multi-exit", str(backbone_folder), JOINT).fit(*toy(320))


@pytest.fixture
def classifier(fitted: Classifier) -> Any:
    parameters = fitted.get_params()
    yield fitted
    fitted.set_params(**parameters)
    fitted.certified_ = None


def test_the_tags_are_learnt_far_beyond_the_most_frequent_one(classifier: Classifier) -> None:
    table = held_out(200)
    evaluation = classifier.evaluate(table)
    assert isinstance(evaluation, TagEvaluation)
    outside = Counter(table.labels)["O"] / len(table.labels)
    assert evaluation.accuracy > outside + 0.2
    assert evaluation.span_f1 > 0.8
    # The deeper exits see the word before, which tells a story in a span from another.
    assert evaluation.by_exit[-1].span_f1 > 0.8


def test_the_scores_are_those_of_what_is_predicted(classifier: Classifier) -> None:
    table = held_out(120)
    for policy in ({"policy": "never"}, {"policy": "confidence", "threshold": 0.9}):
        classifier.set_params(**policy)
        evaluation = classifier.evaluate(table)
        assert isinstance(evaluation, TagEvaluation)
        given = classifier.predict(words(table))
        wanted = tag_scores(own(table), given)
        assert (evaluation.accuracy, evaluation.span_f1) == (wanted.accuracy, wanted.span_f1)
        assert classifier.score(words(table), own(table)) == wanted.accuracy
        found = classifier.decide(table.examples)
        depths = [depth for each in found if isinstance(each, TagPrediction) for depth in each.depths]
        assert evaluation.mean_word_depth == pytest.approx(np.mean([d for d in depths if d is not None]))
        assert evaluation.mean_depth == pytest.approx(np.mean([each.depth for each in found]))
    for row in evaluation.by_exit:
        classifier.set_params(policy="fixed", depth=row.depth, threshold=None)
        assert classifier.score(words(table), own(table)) == pytest.approx(row.accuracy)


def test_an_answer_has_words_tags_and_spans_of_the_text(classifier: Classifier) -> None:
    classifier.set_params(policy="confidence", threshold=0.9)
    texts = ["the film,was  good story; not BAD", "dull"]
    chances = classifier.predict_proba(texts)
    for text, chance, found in zip(texts, chances, classifier.decide(texts), strict=True):
        assert isinstance(found, TagPrediction)
        assert (found.text, found.words) == (text, split(text))
        assert list(found.tags) == [classifier.classes_[row.argmax()] for row in chance]
        assert list(found.probabilities) == pytest.approx(chance.max(axis=1).tolist())
        assert found.depth == max(d for d in found.depths if d is not None)
        assert found.probability == pytest.approx(chance.max(axis=1).min())
        assert [(s.label, *s.words) for s in found.spans] == [(s.label, s.first, s.stop) for s in spans(found.tags)]
        for span in found.spans:
            inside = slice(*span.words)
            assert text[span.start : span.end] == span.text
            assert split(span.text) == found.words[inside]
            assert span.depth == max(d or 0 for d in found.depths[inside])
            assert span.probability == pytest.approx(min(p or 0 for p in found.probabilities[inside]))
    assert classifier.predict([]) == []
    assert classifier.predict_proba([]) == []


def test_words_leave_one_by_one_where_their_scores_say(classifier: Classifier) -> None:
    table = held_out(60)
    pooled = pool(classifier.engine_, classifier._tokenise(table.examples), 16)
    sure = {depth: torch.softmax(output.logits, dim=1).amax(dim=1) for depth, output in pooled.outputs.items()}
    mixed = 0
    for threshold in (0.6, 0.9, 0.99):
        classifier.set_params(policy="confidence", threshold=threshold)
        word = 0
        for found in classifier.decide(words(table)):
            assert isinstance(found, TagPrediction)
            mixed += len(set(found.depths)) > 1
            for depth in found.depths:
                each = [sure[d][word].item() for d in (1, 2, 3)]
                if all(abs(score - threshold) > 1e-4 for score in each):
                    assert depth == next((d for d in (1, 2, 3) if each[d - 1] >= threshold), 4)
                word += 1
    assert mixed > 10, "the words of a text always leave together: nothing was put to the test"


def test_the_curve_has_the_accuracy_of_words_and_the_layers_of_texts(classifier: Classifier) -> None:
    table = held_out(40)
    curve = classifier.curve(table, "confidence")
    assert (curve.full.mean_layers, curve.texts) == (4.0, 40)
    point = next(each for each in curve.points if each.threshold is not None and 1 < each.mean_layers < 4)
    evaluation = classifier.set_params(policy="confidence", threshold=point.threshold).evaluate(table)
    assert isinstance(evaluation, TagEvaluation)
    assert (point.accuracy, point.mean_layers) == pytest.approx((evaluation.accuracy, evaluation.mean_depth))
    assert evaluation.mean_word_depth < evaluation.mean_depth


def test_lists_of_words_and_strings_are_answered_alike(classifier: Classifier) -> None:
    texts = toy(20, seed=3)[0]
    joined = [" ".join(text) for text in texts]
    assert classifier.predict(texts) == classifier.predict(joined)
    assert classifier.predict([Example("film good story", words=("film", "good", "story"))]) == classifier.predict(
        ["film good story"]
    )


def test_a_word_behind_the_cut_has_no_tag_and_counts_as_wrong(classifier: Classifier) -> None:
    long = ["good"] * 100
    with pytest.warns(TruncationWarning, match=r"1 of 1 texts .* were cut\. 38 of their words are not read\."):
        (found,) = list(classifier.stream([Example(" ".join(long))]))
    assert isinstance(found, TagPrediction)
    assert found.tags[62:] == (None,) * 38
    assert found.depths[62:] == (None,) * 38
    assert None not in found.tags[:62]
    with pytest.warns(TruncationWarning):
        evaluation = classifier.evaluate(as_table([long], [["B-good"] * 100], "long", tags=True))
    assert isinstance(evaluation, TagEvaluation)
    assert (evaluation.words, evaluation.unread) == (100, 38)
    assert evaluation.accuracy <= 0.62
    with pytest.warns(TruncationWarning):
        assert np.isnan(classifier.predict_proba([long])[0][62:]).all()


def test_a_folder_gives_the_same_answers_and_says_that_they_are_tags(classifier: Classifier, tmp_path: Path) -> None:
    texts = toy(30, seed=4)[0]
    classifier.save(tmp_path / "m")
    loaded = Classifier.load(tmp_path / "m")
    assert loaded.config_.data.labels == "tags"
    assert loaded.predict(texts) == classifier.predict(texts)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["tags"] is True
    around = Classifier.of(classifier.model_, classifier.tokenizer_)
    assert around.predict(texts) == classifier.predict(texts)
    with pytest.raises(ConfigError, match="should be asked through offramp"):
        classifier.model_(torch.ones(1, 3, dtype=torch.int64))


# --- the certificate


def test_the_certificate_is_about_texts_and_says_so(classifier: Classifier, tmp_path: Path) -> None:
    table = held_out(300)
    certificate = classifier.calibrate(table, max_drop=0.1, confidence=0.9)
    assert (certificate.risk, certificate.epsilon) == (WORD_DROP, 0.1)
    assert certificate.thresholds, "no word leaves: nothing was put to the test"
    assert certificate.selection + certificate.certification == 300
    assert certificate.promises().startswith(
        "At most 10 % of the texts have a word that the full model tags rightly and leaving early wrongly, with 90 %"
    )
    assert "accuracy of words" in certificate.promises()
    assert all(found.certified for found in classifier.decide(["the film was good"]))
    classifier.save(tmp_path / "m")
    again = Classifier.load(tmp_path / "m")
    assert again.certificate == certificate
    assert again.decide(words(table)) == classifier.decide(words(table))


def test_the_harms_and_the_depths_are_those_of_texts(classifier: Classifier) -> None:
    table = held_out(300)
    certificate = classifier.calibrate(table, max_drop=0.1, confidence=0.9, policy="confidence")
    early = classifier.decide(table.examples)
    classifier.set_params(policy="never")
    full = classifier.decide(table.examples)
    harmed = [
        any(f == t != e for f, t, e in zip(a.tags, truth, b.tags, strict=True))
        for a, b, truth in zip(full, early, own(table), strict=True)
        if isinstance(a, TagPrediction) and isinstance(b, TagPrediction)
    ]
    from offramp.policies.terms import Terms, divide

    _, certification = divide(300, Terms(epsilon=0.1, delta=0.1), 1)
    assert certificate.harms == sum(harmed[row] for row in certification)
    assert certificate.mean_depth == pytest.approx(np.mean([early[row].depth for row in certification]))


def test_a_disagreement_needs_no_tags(classifier: Classifier) -> None:
    bare = read([Example(example.text) for example in held_out(300).examples], labels_required=False, tags=True)
    certificate = classifier.calibrate(bare, max_disagreement=0.2)
    assert certificate.risk == WORD_DISAGREEMENT
    assert certificate.promises().startswith(
        "At most 20 % of the texts have a word that is not tagged as the full model"
    )
    with pytest.raises(DataError, match="Every word should have a tag"):
        classifier.calibrate(bare, max_drop=0.2)


@pytest.mark.parametrize(
    "policy", ["confidence", "learned", "patience", "vote", "energy", "anchor", "patient-confidence"]
)
def test_a_calibrated_policy_runs_as_it_was_replayed(classifier: Classifier, policy: str) -> None:
    table = held_out(200)
    certificate = classifier.calibrate(table, budget_layers=3.0, policy=policy)
    assert certificate.policy in (policy, "never")
    classifier.evaluate(table)


def test_the_prior_is_refused(classifier: Classifier) -> None:
    with pytest.raises(ConfigError, match="one for words"):
        classifier.calibrate(held_out(200), max_drop=0.2, policy="prior")


# --- training


@pytest.mark.parametrize("kind", ["linear", "mha"])
def test_every_exit_learns_tags_in_two_stages(backbone_folder: Path, kind: str) -> None:
    settings = {**QUICK, "exits.kind": kind, "objective.alike": 8, "stage2.alike": 4}
    classifier = Classifier("acl-multi-exit", str(backbone_folder), settings).fit(*toy(60))
    assert classifier.model_.config.trained_exits == [1, 2, 3, 4]
    assert all(torch.isfinite(p).all() for p in classifier.model_.parameters())


@pytest.mark.parametrize("kind", ["linear", "mha"])
def test_the_exits_learn_the_same_from_cached_states(backbone_folder: Path, kind: str) -> None:
    found = [
        Classifier("acl-multi-exit", str(backbone_folder), {**QUICK, "exits.kind": kind, "stage2.cache_gb": room}).fit(
            *toy(60)
        )
        for room in (1.0, 0.0)
    ]
    texts = toy(20, seed=5)[0]
    for depth in (1, 2, 3):
        cached, fresh = (each.set_params(policy="fixed", depth=depth).predict_proba(texts) for each in found)
        # The cache holds states in half precision.
        np.testing.assert_allclose(np.concatenate(cached), np.concatenate(fresh), atol=2e-2)


@pytest.mark.parametrize("name", ["scl", "acl", "icl", "lcl", "lacon"])
@pytest.mark.parametrize("batch", [0, 32])
def test_other_objectives_and_the_gradient_cache_take_tags(backbone_folder: Path, name: str, batch: int) -> None:
    settings = {**QUICK, "objective.name": name, "optimise.contrast_batch": batch, "optimise.batch_size": 16}
    fitted = Classifier("ce", str(backbone_folder), settings).fit(*toy(60))
    assert all(torch.isfinite(p).all() for p in fitted.model_.parameters())


@pytest.mark.parametrize("scope", ["exact", "exit"])
def test_alignment_takes_tags(backbone_folder: Path, scope: str) -> None:
    settings = {**QUICK, "alignment.scope": scope, "optimise.strategy": "joint", "objective.class_weights": "balanced"}
    fitted = Classifier("acl", str(backbone_folder), settings).fit(*toy(40))
    assert all(torch.isfinite(p).all() for p in fitted.model_.parameters())


def test_the_gradient_cache_gives_the_gradients_of_the_whole_batch(backbone_folder: Path) -> None:
    plain = {**QUICK, "exits.dropout": 0.0, "optimise.batch_size": 60, "data.validation": 0.5}
    parts = {**plain, "optimise.batch_size": 10, "optimise.contrast_batch": 60}
    whole, cached = (Classifier("acl", str(backbone_folder), each).fit(*toy(60)) for each in (plain, parts))
    names = [name for name, _ in whole.model_.named_parameters() if "exits.3" in name]
    assert names
    # The first step of Adam takes every weight up or down by the rate. The backbone's own dropout is on, and another in
    # each, which turns some of them; other gradients would turn half, and be twice as far off.
    moved = [(whole.model_.get_parameter(name) - cached.model_.get_parameter(name)).abs().flatten() for name in names]
    assert torch.cat(moved).mean() < 0.5 * load_recipe("acl").optimise.lr_exit


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exits.kind": "match"}, r"`exits.kind` should be linear or mha or residual for tags"),
        ({"exits.kind": "mha", "exits.last": "lsan"}, r"`exits.last` should be linear or mha or residual for tags"),
        ({"objective.name": "infonce"}, r"see each text once for tags\. Found infonce"),
        ({"optimise.metric": "mcc"}, r"`optimise.metric` should be accuracy or span_f1 for tags"),
        ({"data.sampler": "balanced"}, r"`data.sampler` should be length for tags"),
        ({"data.class_cap": 4}, r"`data.class_cap` should be 0 for tags"),
        ({"data.windows": 2}, r"`data.windows` should be 1 for tags"),
        ({"protocol.word_dropout": 0.1}, r"`protocol.word_dropout` should be 0.0 for tags"),
        ({"compress.method": "truncate"}, r"`compress.method` should be none for tags"),
        ({"data.labels": "one"}, r"`optimise.metric` should be span_f1 for tags of words only"),
    ],
)
def test_settings_that_tags_do_not_have_are_refused(backbone_folder: Path, settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Classifier("ce", str(backbone_folder), {**QUICK, **settings}).fit_table(held_out(40))


def test_what_does_not_fit_is_told(backbone_folder: Path) -> None:
    texts, tags = toy(40)
    tagger = Classifier("ce", str(backbone_folder), QUICK)
    with pytest.raises(DataError, match=r"as many tags as words\. Found 0 tags for .* in the list, row 3"):
        tagger.fit(texts, [*tags[:2], [], *tags[3:]])
    with pytest.raises(ConfigError, match="no weights where words have tags"):
        tagger.fit(texts, tags, sample_weight=[1.0] * 40)
    with pytest.raises(DataError, match="The tags of a text should be a list"):
        tagger.fit([" ".join(text) for text in texts], ["O"] * 40)
    plain = Classifier("ce", str(backbone_folder), {"exits.size": 16})
    with pytest.raises(DataError, match=r"Where words have tags, set data\.labels=tags"):
        plain.fit_table(held_out(20))
    fitted = tagger.fit(texts, tags)
    with pytest.raises(DataError, match=r"seen in training\. Found `B-goud` in other, row 1\. Did you mean `B-good`"):
        fitted.evaluate(as_table([["a"]], [["B-goud"]], "other", tags=True))


# --- the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.jsonl` and `test.conll`."""
    made = tmp_path_factory.mktemp("tags")
    rows = [json.dumps({"tokens": w, "tags": t}) for w, t in zip(*toy(80), strict=True)]
    (made / "train.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    texts = ["\n".join(f"{w}\t{t}" for w, t in zip(*row, strict=True)) for row in zip(*toy(200, seed=9), strict=True)]
    (made / "test.conll").write_text("\n\n".join(texts) + "\n", "utf-8")
    return made


@pytest.fixture(scope="module")
def arguments(backbone_folder: Path) -> Sequence[object]:
    changed = {**QUICK, "optimise.track": "[]", "optimise.lr_exit": 0.02, "exits.kind": "linear"}
    pairs = [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
    return ["--recipe", "acl-tags", "--backbone", backbone_folder, *pairs]


def test_the_verbs_show_tags(
    offramp: Callable[..., Any], folder: Path, arguments: Sequence[object], tmp_path: Path
) -> None:
    model = tmp_path / "m"
    ran = offramp("train", folder / "train.jsonl", "--out", model, *arguments, "--json")
    assert ran.code == 0, ran.err
    assert set(ran.json["validation"]) >= {"span_f1", "accuracy", "by_label", "mean_word_depth", "word_depths"}
    assert ran.json["metric"] == "span_f1"
    assert "How well the spans of each label were found" in (model / "report.html").read_text("utf-8")
    classifier = Classifier.load(model)
    given = b"the film was good story, fine\nslow story\n"
    wanted = classifier.decide(given.decode().splitlines())
    lines = offramp("predict", model, stdin=given).out.splitlines()
    for line, found in zip(lines, wanted, strict=True):
        marked, probability, depth = line.split("\t")
        assert isinstance(found, TagPrediction)
        assert all(f"[{span.text}]({span.label})" in marked for span in found.spans)
        assert (float(probability), int(depth)) == (pytest.approx(found.probability, abs=1e-4), found.depth)
    told = offramp("predict", model, "--json", stdin=given).lines
    assert [each["tags"] for each in told] == [list(found.tags) for found in wanted if isinstance(found, TagPrediction)]
    assert {"words", "tags", "depths", "spans", "certified", "probabilities"} <= set(told[0])
    shown = offramp("evaluate", model, folder / "test.conll", "--report", tmp_path / "r.html", "--curve")
    assert shown.code == 0, shown.err
    assert all(word in shown.out for word in ("word accuracy", "span F1", "words that left", "mean depth"))
    assert offramp("predict", model, folder / "test.conll", "--json").lines[0]["words"]
    for refused in (("--map", 2, "--report", tmp_path / "x.html"),):
        ran = offramp("evaluate", model, folder / "test.conll", *refused)
        assert (ran.code, "Found tags" in ran.err) == (2, True)
    card = offramp("card", model, folder / "test.conll")
    assert card.code == 0, card.err
    assert "span F1" in (model / "README.md").read_text("utf-8")
    ran = offramp("calibrate", model, folder / "test.conll", "--max-disagreement", 0.3)
    assert ran.code == 0, ran.err
    assert "of the texts have a word" in ran.out
    evaluated = offramp("evaluate", model, folder / "test.conll", "--json")
    assert evaluated.code == 0, evaluated.err
    assert evaluated.json["certificate"]["risk"] == WORD_DISAGREEMENT


def test_an_exported_model_answers_the_same_tags(classifier: Classifier, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    table = held_out(40)
    classifier.save(tmp_path / "m")
    measured = classifier.export(tmp_path / "onnx", exits=[1, 4], data=table)
    assert measured["accuracy_before"] == measured["accuracy_after"]
    assert measured["accuracy_before"] == pytest.approx(classifier.score(words(table), own(table)))
    exported = Classifier.load(tmp_path / "onnx")
    for asked in ({"policy": "never"}, {"policy": "fixed", "depth": 1}):
        exported.set_params(**asked)
        classifier.set_params(**asked)
        assert exported.predict(words(table)) == classifier.predict(words(table))
    small = classifier.export(tmp_path / "int8", int8=True, exits=[4], data=table, max_drop=0.2)
    assert small["accuracy_after"] > 0.5
    assert Classifier.load(tmp_path / "int8").predict(words(table)[:3])
