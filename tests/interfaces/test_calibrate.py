"""`offramp calibrate`: the certified policy is in force from then on, as long as the model is the one it is about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from offramp import Classifier
from offramp.calibration import SCORED
from offramp.data.sources import read
from offramp.errors import ConfigError, DataError, ModelError
from offramp.policies.terms import Terms, divide
from offramp.runtime.certified import VoidCertificate
from offramp.runtime.certified import read as read_certificate
from offramp.types import Example

Run = Callable[..., Any]

LAX = ("--max-drop", 0.2)


@pytest.fixture
def folder(staged: Any, tmp_path: Path) -> Path:
    """A model whose exits are all trained, to calibrate."""
    return Path(shutil.copytree(staged.folder, tmp_path / "model"))


@pytest.fixture(scope="session")
def certified_once(staged: Any, held_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Path(shutil.copytree(staged.folder, tmp_path_factory.mktemp("certified") / "model"))
    classifier = Classifier.load(made)
    classifier.calibrate(read(held_out), max_drop=0.2, policy="confidence")
    classifier.save_certificate(made)
    return made


@pytest.fixture
def certified(certified_once: Path, tmp_path: Path) -> Path:
    """A model that was calibrated with `confidence`, to change."""
    return Path(shutil.copytree(certified_once, tmp_path / "model"))


def slow_depths(classifier: Classifier, texts: list[str]) -> list[int]:
    """Where texts leave when each runs alone, exit by exit, under the certificate in force."""
    assert classifier.certified_ is not None
    certificate, policy = classifier.certified_.certificate, classifier.certified_.policy()
    found = []
    for text in texts:
        batch = classifier._tokenise([text]).batch([0])
        outputs = classifier.engine_.outputs(batch)
        state = policy.start(batch)
        depth = classifier.engine_.depth
        for exit in certificate.exits:
            leaves, state = policy.leave(exit, outputs[exit], state)
            if leaves.item():
                depth = exit
                break
        found.append(depth)
    return found


# What is in force.


@pytest.mark.parametrize("name", ["auto", *SCORED])
def test_every_policy_can_be_calibrated_and_runs_as_it_was_certified(
    offramp: Run, folder: Path, held_out: Path, name: str
) -> None:
    ran = offramp("calibrate", folder, held_out, *LAX, "--policy", name, "--json")
    assert (ran.code, ran.err) == (0, "")
    told, table = ran.json, read(held_out)
    assert told["policy"] in (SCORED if name == "auto" else (name, "never"))
    assert (told["engine"], told["layers"], told["epsilon"], told["selection"]) == ("torch", 4, 0.2, 72)
    classifier = Classifier.load(folder)
    assert json.loads(classifier.certificate.to_json()) == told
    answers = classifier.decide(table.examples)
    texts = [example.text for example in table.examples]
    assert [answer.depth for answer in answers[:60]] == slow_depths(classifier, texts[:60])

    # What the certificate says of the certification texts, text by text.
    _, rows = divide(len(texts), Terms(epsilon=0.2))
    full = Classifier.load(folder, policy="never").decide(table.examples)
    early_right = [answers[row].label == table.labels[row] for row in rows]
    full_right = [full[row].label == table.labels[row] for row in rows]
    assert told["certification"] == len(rows) == 168
    assert told["accuracy_early"] == pytest.approx(sum(early_right) / 168, abs=1e-12)
    assert told["accuracy_full"] == pytest.approx(sum(full_right) / 168, abs=1e-12)
    assert told["mean_depth"] == pytest.approx(sum(answers[row].depth for row in rows) / 168, abs=1e-12)
    assert told["harms"] == sum(a and not b for a, b in zip(full_right, early_right, strict=True))


def test_the_patience_of_a_model_is_the_one_that_is_certified(folder: Path, held_out: Path) -> None:
    classifier = Classifier.load(folder)
    classifier.config_ = replace(classifier.config_, policy=replace(classifier.config_.policy, patience=1))
    told = classifier.calibrate(read(held_out), max_drop=0.2, policy="patient-confidence")
    assert told.settings["patience"] == 1
    alone = classifier.calibrate(read(held_out), max_drop=0.2, policy="confidence")  # which patience 1 is
    assert (told.thresholds, told.harms) == (alone.thresholds, alone.harms)


def test_the_same_texts_give_the_same_certificate(offramp: Run, folder: Path, held_out: Path) -> None:
    assert offramp("calibrate", folder, held_out, *LAX).code == 0
    first = {
        name: (folder / name).read_bytes()
        for name in ("certificate.json", "policy.safetensors")
        if (folder / name).exists()
    }
    assert offramp("calibrate", folder, held_out, *LAX).code == 0
    assert {name: (folder / name).read_bytes() for name in first} == first


def test_the_certified_policy_is_in_force_without_options(
    offramp: Run, certified: Path, held_out: Path, tables: Path
) -> None:
    memory = Classifier.load(certified, certificate=False)
    memory.calibrate(read(held_out), max_drop=0.2, policy="confidence")
    told = memory.certificate
    assert told is not None
    assert told.thresholds
    texts = read(tables / "test.csv").examples
    truth = memory.decide(texts)
    assert {answer.certified for answer in truth} == {True}
    assert min(answer.depth for answer in truth) < 4
    lines = offramp("predict", certified, tables / "test.csv", "--json").lines
    assert [(line["label"], line["depth"], line["certified"]) for line in lines] == [
        (answer.label, answer.depth, True) for answer in truth
    ]
    evaluated = offramp("evaluate", certified, tables / "test.csv", "--json").json
    assert evaluated["mean_depth"] == sum(answer.depth for answer in truth) / len(truth)
    assert evaluated["policy"] == {
        "name": "confidence",
        "thresholds": {str(depth): threshold for depth, threshold in told.thresholds.items()},
        "certified": True,
    }
    assert told.promises() in offramp("evaluate", certified, tables / "test.csv").out


@pytest.mark.parametrize("chosen", [("--policy", "confidence"), ("--threshold", 0.5), ("--depth", 2)])
def test_a_policy_that_is_named_is_not_certified(
    offramp: Run, certified: Path, tables: Path, chosen: tuple[object, ...]
) -> None:
    ran = offramp("predict", certified, tables / "test.csv", *chosen, "--json")
    assert (ran.code, {line["certified"] for line in ran.lines}) == (0, {False})
    evaluated = offramp("evaluate", certified, tables / "test.csv", *chosen, "--json").json
    assert "certified" not in evaluated["policy"]


@pytest.mark.parametrize("chosen", [("--policy", "never"), ("--depth", 4), ("--policy", "fixed", "--depth", 4)])
def test_answers_after_all_layers_keep_every_promise(
    offramp: Run, certified: Path, staged: Any, tables: Path, chosen: tuple[object, ...]
) -> None:
    lines = offramp("predict", certified, tables / "test.csv", *chosen, "--json").lines
    assert {(line["depth"], line["certified"]) for line in lines} == {(4, True)}
    evaluated = offramp("evaluate", certified, tables / "test.csv", *chosen, "--json").json
    assert "certificate" not in evaluated  # which tells of the thresholds, and they are not in force
    lines = offramp("predict", staged.folder, tables / "test.csv", *chosen, "--json").lines
    assert {line["certified"] for line in lines} == {False}  # where there is no certificate, nothing is kept


def test_a_budget_alone_promises_nothing(offramp: Run, folder: Path, held_out: Path, tables: Path) -> None:
    ran = offramp("calibrate", folder, held_out, "--budget-layers", 3)
    assert ran.code == 0
    assert "No risk is promised, the thresholds are for a budget of 3;" in ran.out
    lines = offramp("predict", folder, tables / "test.csv", "--json").lines
    assert {line["certified"] for line in lines} == {False}
    assert sum(line["depth"] for line in lines) / len(lines) < 4  # it is in force nevertheless
    assert offramp("evaluate", folder, tables / "test.csv", "--json").json["policy"]["certified"] is False
    assert Classifier.load(folder).certificate is None


@pytest.mark.parametrize("name", ["learned", "prior"])
def test_what_was_fitted_comes_back_from_disk(offramp: Run, folder: Path, held_out: Path, name: str) -> None:
    assert offramp("calibrate", folder, held_out, "--budget-layers", 3.5, "--policy", name).code == 0
    memory = Classifier.load(folder, certificate=False)
    memory.calibrate(read(held_out), budget_layers=3.5, policy=name)
    loaded, texts = Classifier.load(folder), read(held_out).examples
    assert loaded.certified_ is not None
    assert loaded.certified_.certificate == memory.certified_.certificate  # type: ignore[union-attr]
    assert loaded.certified_.certificate.policy == name
    assert (folder / "policy.safetensors").exists()
    assert loaded.decide(texts) == memory.decide(texts)
    # The same heads with a threshold of the caller's own.
    free = Classifier.load(folder, policy=name, threshold=0.0)
    assert {answer.depth for answer in free.decide(texts)} == {1}
    other = Classifier.load(folder, policy="prior" if name == "learned" else "learned")
    with pytest.raises(ConfigError, match="should be fitted to held-out texts first"):
        other.decide(texts)


def test_another_calibration_takes_the_place_of_the_first(offramp: Run, folder: Path, held_out: Path) -> None:
    assert offramp("calibrate", folder, held_out, "--budget-layers", 3.5, "--policy", "prior").code == 0
    assert offramp("calibrate", folder, held_out, "--budget-layers", 3.5, "--policy", "margin").code == 0
    assert not (folder / "policy.safetensors").exists()
    assert Classifier.load(folder).policy_in_force()["name"] == "margin"
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


def test_a_disagreement_needs_no_labels(
    offramp: Run, folder: Path, write_table: Run, fresh: Run, tmp_path: Path
) -> None:
    texts = fresh(240)[0]
    bare = write_table(tmp_path / "bare.csv", [(text,) for text in texts], ("text",))
    ran = offramp("calibrate", folder, bare, "--max-disagreement", 0.2, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert (told["risk"], told["accuracy_full"], told["accuracy_early"]) == ("disagreement", None, None)
    early, full = Classifier.load(folder).predict(texts), Classifier.load(folder, policy="never").predict(texts)
    _, rows = divide(240, Terms(epsilon=0.2))
    assert told["harms"] == (early != full)[rows].sum()
    ran = offramp("calibrate", folder, bare, *LAX)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: A column should hold the labels")


# When it ends.


def test_training_again_leaves_no_certificate(
    offramp: Run, train_arguments: Run, certified: Path, tables: Path
) -> None:
    (certified / "policy.safetensors").write_bytes(b"old")
    ran = offramp(*train_arguments(certified, "--overwrite", **{"optimise.epochs": 1}))
    assert (ran.code, "void" in ran.err) == (0, False)
    assert not (certified / "certificate.json").exists()
    assert not (certified / "policy.safetensors").exists()
    assert {line["certified"] for line in offramp("predict", certified, tables / "test.csv", "--json").lines} == {False}


def test_an_overwriting_run_that_is_killed_leaves_no_certificate(
    train_arguments: Run, certified: Path, monkeypatch: pytest.MonkeyPatch, tables: Path, backbone_folder: Path
) -> None:
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.optimise.loop.Loop.run", kill)
    again = Classifier("ce", str(backbone_folder), {"optimise.epochs": 1})
    with pytest.raises(KeyboardInterrupt):
        again.fit_table(read(tables / "train.csv"), None, certified, overwrite=True)
    assert not (certified / "certificate.json").exists()
    with pytest.raises(ModelError, match="half-written"):
        Classifier.load(certified)


def test_resuming_a_run_that_was_finished_keeps_its_certificate(offramp: Run, staged: Any, certified: Path) -> None:
    arguments = [certified if word == staged.folder else word for word in staged.arguments]
    assert offramp(*arguments, "--resume").code == 0
    assert Classifier.load(certified).certificate is not None


def test_saving_another_model_over_it_removes_the_certificate_and_its_own_goes_along(
    quick: Run, toy: Run, certified: Path, tmp_path: Path
) -> None:
    Classifier.load(certified).save(tmp_path / "copy")
    assert Classifier.load(tmp_path / "copy").certificate == Classifier.load(certified).certificate is not None
    quick().fit(*toy(24)).save(tmp_path / "copy")
    assert not (tmp_path / "copy" / "certificate.json").exists()


def test_a_classifier_that_is_fitted_again_has_no_certificate(certified: Path, toy: Run) -> None:
    classifier = Classifier.load(certified, settings={"optimise.epochs": 1}, recipe="ce")
    assert classifier.certificate is not None
    classifier.set_params(backbone=classifier.config_.encoder.backbone)
    classifier.fit(*toy(24))
    assert classifier.certificate is None
    assert {answer.certified for answer in classifier.decide(["film good"])} == {False}


@pytest.mark.parametrize("change", ["weights", "trained", "temperature"])
def test_beside_another_model_a_certificate_is_void_and_says_so(
    offramp: Run, certified: Path, tables: Path, tmp_path: Path, change: str
) -> None:
    other = Classifier.load(certified, certificate=False)
    if change == "weights":
        with torch.no_grad():
            other.model_.exits[0].classifier.bias[0] += 1e-3
    elif change == "trained":
        other.model_.config.trained_exits = [2, 3, 4]
    else:
        other.model_.config.exit_temperature = 0.3
    other.save(tmp_path / "other")
    shutil.copy(certified / "certificate.json", tmp_path / "other")
    with pytest.warns(VoidCertificate, match="is void: it is about another model"):
        loaded = Classifier.load(tmp_path / "other")
    assert loaded.certificate is None
    assert loaded.policy_in_force() == {"name": "never"}
    ran = offramp("predict", tmp_path / "other", tables / "test.csv", "--json")
    assert ran.code == 0
    assert ran.err.startswith("warning: The certificate in `")
    assert ran.err.count("\n") == 1
    assert {(line["certified"], line["depth"]) for line in ran.lines} == {(False, 4)}


# Damage.


def refused(ran: Any, message: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"null", b'{"policy": 1}', b"\xff\xfe", b"[" * 10_000, b'{"epsilon": NaN}']
)
def test_a_certificate_that_is_nonsense_is_refused_and_can_be_made_again(
    offramp: Run, certified: Path, tables: Path, held_out: Path, content: bytes
) -> None:
    (certified / "certificate.json").write_bytes(content)
    for verb in ("evaluate", "predict"):
        refused(offramp(verb, certified, tables / "test.csv"), "Run `offramp calibrate` again.")
    assert offramp("calibrate", certified, held_out, *LAX, "--policy", "confidence").code == 0
    assert offramp("predict", certified, tables / "test.csv").code == 0


def test_a_certificate_that_was_cut_or_changed_anywhere_is_refused(certified: Path) -> None:
    file = certified / "certificate.json"
    whole = file.read_bytes()
    classifier = Classifier.load(certified)
    for place in range(0, len(whole) - 2, 7):
        file.write_bytes(whole[:place])
        with pytest.raises(ModelError, match="cannot be read"):
            read_certificate(certified, classifier.engine_.name, classifier.fingerprint())
        changed = bytearray(whole)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(ModelError, match="cannot be read"):
            read_certificate(certified, classifier.engine_.name, classifier.fingerprint())


def test_a_promise_that_was_changed_by_hand_is_refused(offramp: Run, certified: Path, tables: Path) -> None:
    file = certified / "certificate.json"
    record = json.loads(file.read_text("utf-8"))
    record["thresholds"] = {depth: threshold / 2 for depth, threshold in record["thresholds"].items()}
    file.write_text(json.dumps(record))
    refused(offramp("predict", certified, tables / "test.csv"), "it is not what was written")


@pytest.mark.parametrize("damage", ["cut", "changed", "absent", "nonsense", "other"])
def test_fitted_tensors_that_are_not_those_of_the_certificate_are_refused(
    offramp: Run, folder: Path, held_out: Path, tables: Path, damage: str
) -> None:
    assert offramp("calibrate", folder, held_out, "--budget-layers", 3.5, "--policy", "learned").code == 0
    file = folder / "policy.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "absent":
        file.unlink()
    elif damage == "nonsense":
        file.write_bytes(b"nonsense")
    else:
        save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file)
    refused(offramp("predict", folder, tables / "test.csv"), "policy.safetensors` ")


def test_a_calibration_that_is_killed_leaves_no_certificate_beside_other_tensors(
    folder: Path, held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = Classifier.load(folder)
    classifier.calibrate(read(held_out), budget_layers=3.5, policy="prior")
    classifier.save_certificate(folder)
    classifier.calibrate(read(held_out), budget_layers=3.5, policy="learned")
    moves: list[str] = []

    def killed(source: Path, target: Path) -> None:
        moves.append(Path(target).name)
        raise KeyboardInterrupt

    monkeypatch.setattr("offramp.disk.os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        classifier.save_certificate(folder)
    assert moves == ["policy.safetensors"]
    assert Classifier.load(folder).certified_ is None


# Misuse.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-drop", 0.1, "--max-disagreement", 0.1), "There should be one risk"),
        (("--max-drop", 0), "`max_drop` should be between 0 and 1, both excluded. Found 0."),
        (("--max-drop", "nan"), "`max_drop` should be between 0 and 1, both excluded. Found nan."),
        (("--max-disagreement", 1.5), "`max_disagreement` should be between 0 and 1, both excluded. Found 1.5."),
        (("--confidence", 1), "`confidence` should be between 0 and 1, both excluded. Found 1."),
        (("--budget-layers", -1), "should be above 0. Found -1."),
        (("--budget-layers", 0.5), "should be at least 1.06"),
        (("--policy", "fixed"), "`fixed` is not a known policy that can be calibrated."),
        (("--policy", "never"), "`never` is not a known policy that can be calibrated."),
        (("--policy", "confidense"), "Did you mean 'confidence'"),
        (("--policy", "lerned"), "'learned'"),
        ((), "at least 582 held-out texts"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence_and_nothing_is_written(
    offramp: Run, certified: Path, held_out: Path, options: tuple[object, ...], message: str
) -> None:
    before = {file: file.read_bytes() for file in certified.rglob("*") if file.is_file()}
    refused(offramp("calibrate", certified, held_out, *options), message)
    assert {file: file.read_bytes() for file in certified.rglob("*") if file.is_file()} == before


def test_too_few_texts_are_refused_before_a_layer_runs(
    offramp: Run, folder: Path, write_table: Run, fresh: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = write_table(tmp_path / "few.csv", list(zip(*fresh(30), strict=True)))
    monkeypatch.setattr("offramp.calibration.pool", lambda *_: pytest.fail("the layers ran"))
    refused(offramp("calibrate", folder, few, "--max-drop", 0.02), "Found 30. Give at least ")


def test_texts_of_the_training_and_repeated_ones_are_no_evidence(
    offramp: Run, folder: Path, tables: Path, write_table: Run, toy: Run, fresh: Run, tmp_path: Path
) -> None:
    refused(
        offramp("calibrate", folder, tables / "train.csv", "--budget-layers", 3.5),
        "should have texts that the model was not trained on. Found 120 of 120 in train.csv",
    )
    known, new = (list(zip(*found, strict=True)) for found in (toy(3), fresh(237)))
    again = [(f" {text.upper()} ", label) for text, label in new[:100]]
    mixed = write_table(tmp_path / "mixed.csv", [*known, *new, *again])
    ran = offramp("calibrate", folder, mixed, *LAX, "--policy", "confidence", "--json")
    assert ran.code == 0
    told = "Of 340 texts in mixed.csv, 3 that the model was trained on and 100 that repeat others are left out"
    assert told in ran.err
    alone = write_table(tmp_path / "alone.csv", new)
    plain = offramp("calibrate", folder, alone, *LAX, "--policy", "confidence", "--json")
    assert (plain.code, plain.err) == (0, "")
    named = {"data": "mixed.csv"}
    assert json.loads(plain.out) | named == json.loads(ran.out) | named
    few = write_table(tmp_path / "few.csv", new[:20] * 12)
    ran = offramp("calibrate", folder, few, *LAX)
    assert (ran.code, ran.out) == (2, "")
    assert "220 that repeat others are left out" in ran.err
    assert "Found 20. Give at least" in ran.err
    Classifier.load(folder).save(tmp_path / "copy")
    ran = offramp("calibrate", tmp_path / "copy", tables / "train.csv", "--budget-layers", 3.5)
    refused(ran, "Found 120 of 120 in train.csv")


def test_the_fingerprint_knows_how_texts_are_read(folder: Path) -> None:
    classifier = Classifier.load(folder)
    before = classifier.fingerprint()
    classifier.max_tokens_ -= 1
    shorter = classifier.fingerprint()
    classifier.max_tokens_ += 1
    assert classifier.fingerprint() == before != shorter
    classifier.tokenizer_.add_tokens(["unheard"])
    assert classifier.fingerprint() != before


def test_a_model_with_one_trained_exit_cannot_be_calibrated(offramp: Run, model: Path, held_out: Path) -> None:
    refused(offramp("calibrate", model, held_out, *LAX), "should have a trained exit below the last")
    assert not (model / "certificate.json").exists()


def test_labels_that_are_absent_or_unknown_are_a_sentence(
    offramp: Run, folder: Path, write_table: Run, fresh: Run, tmp_path: Path
) -> None:
    classifier = Classifier.load(folder)
    bare = read([Example(text) for text in fresh(240)[0]], labels_required=False)
    with pytest.raises(DataError, match="Every text should have a label"):
        classifier.calibrate(bare, max_drop=0.2)
    odd = write_table(tmp_path / "odd.csv", [("film", "bad"), ("plot", "superb")])
    refused(offramp("calibrate", folder, odd, *LAX), "superb")


def test_a_folder_that_cannot_be_written_is_a_sentence(folder: Path, held_out: Path, tmp_path: Path) -> None:
    classifier = Classifier.load(folder)
    classifier.calibrate(read(held_out), max_drop=0.2, policy="confidence")
    with pytest.raises(ModelError, match="The certificate cannot be written to"):
        classifier.save_certificate(tmp_path / "absent" / "model")


def test_a_classifier_that_was_not_fitted_has_no_certificate_to_show() -> None:
    with pytest.raises(ModelError, match="fitted or loaded first"):
        _ = Classifier().certificate


@pytest.mark.parametrize("name", ["learned", "prior"])
def test_a_policy_that_calibration_fits_cannot_be_that_of_a_recipe(
    offramp: Run, train_arguments: Run, tmp_path: Path, name: str
) -> None:
    ran = offramp(*train_arguments(tmp_path / "m", **{"policy.name": name}))
    refused(ran, f"The policy `{name}` should be fitted to held-out texts first.")
    assert list(tmp_path.iterdir()) == []


def test_few_texts_are_enough_for_a_budget(
    offramp: Run, folder: Path, write_table: Run, fresh: Run, tmp_path: Path
) -> None:
    few = write_table(tmp_path / "few.csv", list(zip(*fresh(4), strict=True)))
    ran = offramp("calibrate", folder, few, "--budget-layers", 3.5, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["selection"], ran.json["certification"]) == (1, 3)


def test_people_read_a_policy_and_a_promise(offramp: Run, folder: Path, held_out: Path) -> None:
    ran = offramp("calibrate", folder, held_out, *LAX, "--policy", "confidence")
    assert (ran.code, ran.err) == (0, "")
    first, second = ran.out.splitlines()
    told = Classifier.load(folder).certificate
    assert told is not None
    assert first.startswith("policy  confidence, thresholds ")
    assert second == told.promises()
