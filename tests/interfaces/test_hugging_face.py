"""A model folder in the hands of Hugging Face's libraries."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from tests.conftest import fresh_texts
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from offramp import Classifier
from offramp.calibration import NotKnown
from offramp.config import PolicyConfig
from offramp.data.sources import read
from offramp.errors import ConfigError, DataError
from offramp.hugging_face import EarlyExitModel, compute_metrics, model_to_train
from offramp.objectives import objective
from offramp.policies.confidence import Confidence
from offramp.runtime.certified import VoidCertificate

Toy = Callable[..., tuple[list[str], list[str]]]
JOINT = {
    "exits.size": 16,
    "optimise.epochs": 10,
    "optimise.batch_size": 16,
    "optimise.lr_backbone": 2e-3,
    "optimise.lr_exit": 2e-3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, backbone_folder: Path, toy: Toy) -> Path:
    """A model all of whose exits were trained; its settings let half of the texts leave at the first of them."""
    home = tmp_path_factory.mktemp("early") / "model"
    classifier = Classifier("jt", str(backbone_folder), JOINT).fit(*toy(240))
    classifier.set_params(policy="fixed", depth=1)
    middle = statistics.median(decision.probability for decision in classifier.decide(toy(40, seed=4)[0]))
    classifier.config_ = replace(classifier.config_, policy=PolicyConfig("confidence", middle))
    classifier.save(home)
    return home


AUTO = "from transformers import AutoModelForSequenceClassification as auto"
ORDERS = [
    f"import offramp; {AUTO}",
    f"{AUTO}; import offramp",
    pytest.param(f"import transformers, offramp; {AUTO}", marks=pytest.mark.long),
    pytest.param(f"from offramp import MultiExitModel; {AUTO}", marks=pytest.mark.long),
    pytest.param(f"from offramp import Classifier; {AUTO}", marks=pytest.mark.long),
]


@pytest.mark.parametrize("order", ORDERS)
def test_auto_classes_know_the_model_in_whichever_order_both_are_imported(folder: Path, order: str) -> None:
    code = f"{order}\nprint(type(auto.from_pretrained({str(folder)!r})).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "EarlyExitModel", ran.stderr


@pytest.mark.parametrize("size", [1, 8])
def test_a_pipeline_lets_texts_leave_as_the_classifier_does(folder: Path, toy: Toy, size: int) -> None:
    texts, _ = toy(40, seed=4)
    classifier = Classifier.load(folder)
    wanted = classifier.decide(texts)
    assert len({decision.depth for decision in wanted}) > 1  # some leave early, and not all at once
    classify = pipeline("text-classification", model=str(folder), device="cpu")
    for found, decision in zip(classify(texts, batch_size=size), wanted, strict=True):
        assert found["label"] == decision.label
        assert found["score"] == pytest.approx(decision.probability, abs=1e-5)
    inputs = classify.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert classify.model(**inputs).depth.tolist() == [decision.depth for decision in wanted]


def test_a_pipeline_answers_under_the_certified_policy(folder: Path, toy: Toy, fresh: Toy, tmp_path: Path) -> None:
    classifier = Classifier.load(folder)
    held = _held(toy)
    classifier.calibrate(_table(held), max_drop=0.1, policy="learned")  # a policy that has tensors of its own
    classifier.save(tmp_path / "certified")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "certified")
    texts = [text for text, _ in held[:50]]
    with torch.no_grad():
        found = model(**classifier.tokenizer_(texts, padding=True, return_tensors="pt"))
    wanted = classifier.decide(texts)
    assert classifier.certificate is not None
    assert found.depth.tolist() == [decision.depth for decision in wanted]
    assert min(found.depth.tolist()) < classifier.engine_.depth


def test_what_is_trained_on_forgets_the_policy_of_the_weights_it_had(folder: Path, toy: Toy, tmp_path: Path) -> None:
    classifier = Classifier.load(folder)
    held = _held(toy)
    classifier.calibrate(_table(held), max_drop=0.1, policy="confidence")
    classifier.save(tmp_path / "certified")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "certified")
    inputs = classifier.tokenizer_([text for text, _ in held[:20]], padding=True, return_tensors="pt")
    labels = torch.zeros(20, dtype=torch.int64)
    with torch.no_grad():
        model.eval()(**inputs, labels=labels)  # is evaluated, not trained
        assert min(model(**inputs).depth.tolist()) < classifier.engine_.depth
    model.train()(**inputs, labels=labels).loss.backward()
    with torch.no_grad():
        found = model.eval()(**inputs)
    assert model.policy is None
    assert not hasattr(found, "depth")


def test_a_certificate_of_another_model_is_void_here_too(folder: Path, toy: Toy, tmp_path: Path) -> None:
    classifier = Classifier.load(folder)
    held = _held(toy)
    classifier.calibrate(_table(held), max_drop=0.1)
    classifier.save(tmp_path / "changed")
    with torch.no_grad():
        classifier.model_.exits[0].classifier.bias.add_(1.0)
    classifier.model_.save_pretrained(tmp_path / "changed")
    with pytest.warns(VoidCertificate):
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "changed")
    assert type(model.policy).__name__ == "Confidence"  # that of the settings


def test_plain_weights_answer_at_full_depth(folder: Path, tmp_path: Path) -> None:
    EarlyExitModel.from_pretrained(folder).save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model.policy is None
    ids = torch.tensor([[2, 7, 8, 3]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, model.outputs(model.batch(ids))[4].logits)


# --- training


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    return TrainingArguments(
        str(folder),
        **{
            "per_device_train_batch_size": 16,
            "learning_rate": 2e-3,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "save_strategy": "no",
            "dataloader_pin_memory": False,
            **more,
        },
    )


def test_to_be_evaluated_with_labels_teaches_no_exit(backbone_folder: Path) -> None:
    model, tokenizer = model_to_train(("bad", "good"), "ce", str(backbone_folder), {"exits.size": 16})
    fresh = EarlyExitModel(model.config, model.encoder.backbone).train(False)  # as it is loaded, without a lesson
    fresh.policy = Confidence(0.0)
    assert fresh.config.trained_exits == [fresh.depth]
    given = tokenizer(["a good film", "bad"], return_tensors="pt", padding=True)
    before, labels = fresh(**given), torch.tensor([1, 0])
    assert before.depth.tolist() == [fresh.depth] * 2
    loss = fresh(**given, labels=labels).loss
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(before.logits, labels))
    assert fresh.config.trained_exits == [fresh.depth]
    assert fresh(**given).depth.tolist() == before.depth.tolist()


def test_a_trainer_trains_every_exit_on_a_data_set(backbone_folder: Path, toy: Toy, tmp_path: Path) -> None:
    names = ("bad", "fine", "good")
    model, tokenizer = model_to_train(names, backbone=str(backbone_folder), settings={"exits.size": 16})

    def rows(n: int, seed: int) -> Dataset:
        texts, labels = toy(n, seed)
        table = Dataset.from_dict({"text": texts, "labels": [names.index(label) for label in labels]})
        return table.map(lambda row: tokenizer(row["text"]), batched=True, remove_columns=["text"])

    trainer = Trainer(
        model,
        arguments(tmp_path, num_train_epochs=10),
        train_dataset=rows(240, 0),
        eval_dataset=rows(60, 1),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.evaluate()["eval_accuracy"] > 0.9
    classifier = Classifier.of(model, tokenizer)
    assert classifier.engine_.trained == (1, 2, 3, 4)
    texts, labels = toy(60, 1)
    classifier.set_params(policy="fixed", depth=2)
    assert classifier.score(texts, labels) > 0.6  # an exit below the last has learnt, too
    with pytest.warns(NotKnown, match="seen=texts"):
        classifier.calibrate(read(list(zip(*fresh_texts(80, 2, 240), strict=True))), max_drop=0.3, policy="confidence")
    knows = Classifier.of(model, tokenizer, seen=toy(240, 0)[0])
    with pytest.raises(DataError, match="not trained on"):
        knows.calibrate(read(list(zip(*toy(240, 0), strict=True))), max_drop=0.3)
    classifier.save(tmp_path / "model")
    assert (
        Classifier.load(tmp_path / "model").predict(texts).tolist()
        == Classifier.of(model, tokenizer).predict(texts).tolist()
    )


def test_the_loss_is_that_of_the_strategy_joint(backbone_folder: Path) -> None:
    settings = {"exits.size": 16, "objective.weight": 0.3, "optimise.strategy": "joint", "alignment.scope": "none"}
    model, _ = model_to_train(("a", "b"), "acl", str(backbone_folder), {**settings, "optimise.depth_weights": "depth"})
    model.eval()
    ids, labels = torch.tensor([[2, 7, 8, 3], [2, 9, 6, 3], [2, 5, 5, 3]]), torch.tensor([0, 1, 1])
    how = {name: getattr(model._lesson[0], name) for name in ("temperature", "reduction", "label_smoothing")}
    acl = objective("acl", weight=0.3, **how)
    outputs = model.outputs(model.batch(ids))
    wanted = sum(depth / 2.5 * acl(outputs[depth], labels).total for depth in outputs)
    torch.testing.assert_close(model(ids, labels=labels).loss, wanted)


def test_accumulated_batches_make_the_update_of_one(backbone_folder: Path, toy: Toy, tmp_path: Path) -> None:
    texts, _ = toy(8)
    ends = []
    for size, times in ((8, 1), (4, 2)):
        model, tokenizer = model_to_train(("a", "b"), "jt", str(backbone_folder), {"exits.dropout": 0.0})
        for module in model.modules():
            module.p = 0.0 if isinstance(module, torch.nn.Dropout) else getattr(module, "p", None)
        for layer in model.encoder.backbone.encoder.layer:
            layer.attention.self.dropout.p = 0.0
        rows = [
            {**tokenizer(text, padding="max_length", max_length=16), "labels": i % 2} for i, text in enumerate(texts)
        ]
        how = arguments(
            tmp_path, max_steps=1, per_device_train_batch_size=size, gradient_accumulation_steps=times, optim="sgd",
            learning_rate=0.1, max_grad_norm=0.0, warmup_steps=0,
        )  # fmt: skip
        Trainer(model, how, train_dataset=rows).train()
        ends.append(model.exits[-1].classifier.weight.detach().clone())
    torch.testing.assert_close(*ends, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "field"),
    [
        ("2st", "optimise.strategy"),
        ("acl", "alignment.scope"),
        ("truncated", "compress.method"),
        ("ce-cl", "each text once"),
    ],
)
def test_what_a_trainer_cannot_do_is_refused(recipe: str, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        model_to_train(("a", "b"), recipe)


def test_columns_of_a_data_set_are_texts_and_labels(fitted: Classifier, toy: Toy) -> None:
    texts, labels = toy(12, seed=2)
    table = Dataset.from_dict({"text": texts, "label": labels})
    assert fitted.predict(table["text"]).tolist() == fitted.predict(texts).tolist()
    assert fitted.score(table["text"], table["label"]) == fitted.score(texts, labels)


def _held(toy: Toy) -> list[tuple[str, str]]:
    """Texts to calibrate on, each once, and none that the model was trained on."""
    seen = set(toy(240)[0])
    return list({row[0]: row for row in zip(*toy(900, seed=11), strict=True) if row[0] not in seen}.values())


def _table(rows: list[tuple[str, str]]) -> Any:
    from offramp.data.sources import read

    return read(rows)
