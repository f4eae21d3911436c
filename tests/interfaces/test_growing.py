"""Exits grown below a classifier that Hugging Face fine-tuned: it answers as before, and texts may leave early."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from offramp import Classifier
from offramp.data.seen import digests, unseen
from offramp.data.sources import read
from offramp.encoder.load import load_backbone, locate
from offramp.errors import ConfigError, DataError, ModelError
from offramp.growing import spelled
from offramp.optimise.journal import Watch

Toy = Callable[..., tuple[list[str], list[str]]]
Grow = Callable[..., Classifier]
NAMES = {0: "good", 1: "bad", 2: "fine"}  # not in the order of the alphabet
SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
KINDS: dict[str, Callable[..., PreTrainedConfig]] = {
    "bert": lambda **more: BertConfig(**SIZES, **more),
    "roberta": lambda **more: RobertaConfig(**SIZES, type_vocab_size=1, **more),
    "electra": lambda **more: ElectraConfig(**SIZES, embedding_size=32, **more),
    "distilbert": lambda **more: DistilBertConfig(
        vocab_size=128, dim=32, n_layers=3, n_heads=4, hidden_dim=48, max_position_embeddings=64, pad_token_id=0, **more
    ),
    "modernbert": lambda **more: ModernBertConfig(**SIZES, **more),
}
QUICK = {"exits.size": 16, "stage2.epochs": 2, "stage2.least_updates": 0, "stage2.batch_size": 16}


@pytest.fixture
def made(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Path]:
    """Writes a random classifier of Hugging Face's and its tokenizer."""

    def make(kind: str = "bert", **fields: Any) -> Path:
        torch.manual_seed(0)
        config = KINDS[kind](**{"num_labels": 3, **fields})
        folder = tmp_path / f"{kind}-classifier"
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


def answers_of(folder: Path, texts: list[str]) -> torch.Tensor:
    """The logits of the classifier as Hugging Face runs it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, return_tensors="pt", truncation=True, max_length=60)
    known = {
        key: value for key, value in inputs.items() if key != "token_type_ids" or theirs.config.model_type in TYPED
    }
    with torch.no_grad():
        logits: torch.Tensor = theirs(**known).logits
    return logits


TYPED = ("bert", "electra")


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert"])
def test_the_full_depth_answers_are_the_classifiers_own(made: Callable[..., Path], toy: Toy, kind: str) -> None:
    folder = made(kind, id2label=NAMES)
    grown = Classifier("grow", str(folder), QUICK).fit(*toy(48))
    texts, _ = toy(30, seed=3)
    wanted = answers_of(folder, texts)
    found = grown.set_params(policy="never").predict_proba(texts)
    torch.testing.assert_close(torch.tensor(found), torch.softmax(wanted, dim=1), atol=1e-6, rtol=0)
    assert grown.predict(texts).tolist() == [NAMES[k] for k in wanted.argmax(dim=1).tolist()]
    assert grown.classes_.tolist() == list(NAMES.values())
    assert grown.engine_.trained == (1, 2, 3)


def test_the_classifier_stays_as_it_is_and_the_exits_below_learn(
    made: Callable[..., Path], toy: Toy, tmp_path: Path
) -> None:
    folder = made(id2label=NAMES)
    settings = {**QUICK, "stage2.epochs": 30, "stage2.lr": 1e-2, "stage2.soft": 0.0}  # its own answers are random
    table = read(list(zip(*toy(240), strict=True)))
    result = Classifier("grow", str(folder), settings).fit_table(table, folder=tmp_path / "m")
    assert list(result.by_exit) == ["1", "2", "3"]
    assert result.score == result.by_exit["3"]
    grown, theirs = Classifier.load(tmp_path / "m").model_, AutoModelForSequenceClassification.from_pretrained(folder)
    mine = grown.encoder.backbone.state_dict()
    for name, value in theirs.base_model.state_dict().items():
        assert name.startswith("pooler.") or torch.equal(mine[name], value), name
    assert torch.equal(grown.exits[-1].pool.weight, theirs.bert.pooler.dense.weight)
    assert torch.equal(grown.exits[-1].classifier.weight, theirs.classifier.weight)
    taught = Classifier.load(tmp_path / "m", policy="fixed", depth=2)
    assert taught.score(*toy(60, seed=9)) > 0.6


def test_labels_may_be_the_numbers_of_the_classes(made: Callable[..., Path], toy: Toy) -> None:
    folder = made(id2label=NAMES)
    texts, labels = toy(48)
    numbers = [list(NAMES.values()).index(label) for label in labels]
    by_name, by_number = (Classifier("grow", str(folder), QUICK).fit(texts, given) for given in (labels, numbers))
    assert by_number.predict_proba(texts).tolist() == by_name.predict_proba(texts).tolist()


def test_a_class_that_no_text_has_keeps_its_place(made: Callable[..., Path], toy: Toy) -> None:
    folder = made(id2label=NAMES)
    some = [(text, label) for text, label in zip(*toy(60), strict=True) if label != "bad"]
    grown = Classifier("grow", str(folder), QUICK).fit(*map(list, zip(*some, strict=True)))
    assert grown.classes_.tolist() == list(NAMES.values())


def test_a_classifier_without_names_has_numbers(made: Callable[..., Path], toy: Toy) -> None:
    folder = made()
    texts, labels = toy(48)
    numbers = [list(NAMES.values()).index(label) for label in labels]
    assert Classifier("grow", str(folder), QUICK).fit(texts, numbers).classes_.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="id2label"):
        Classifier("grow", str(folder), QUICK).fit(texts, labels)


def test_a_killed_run_goes_on(made: Callable[..., Path], toy: Toy, tmp_path: Path) -> None:
    table, settings = read(list(zip(*toy(48), strict=True))), {**QUICK, "stage2.epochs": 4}
    folder = str(made(id2label=NAMES))

    class Tired(Watch):
        def start(self, *_: object) -> None: ...
        def step(self, *_: object) -> None: ...
        def epoch(self, record: Any) -> None:
            if record.epoch == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Classifier("grow", folder, settings).fit_table(table, folder=tmp_path / "m", watch=Tired())
    resumed, whole = Classifier("grow", folder, settings), Classifier("grow", folder, settings)
    resumed.fit_table(table, folder=tmp_path / "m", resume=True)
    whole.fit_table(table)
    ends = [classifier.model_.state_dict() for classifier in (resumed, whole)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.slow
def test_an_export_answers_as_the_grown_model(made: Callable[..., Path], toy: Toy, tmp_path: Path) -> None:
    grown = Classifier("grow", str(made(id2label=NAMES)), QUICK).fit(*toy(48))
    grown.export(tmp_path / "onnx")
    texts, _ = toy(20, seed=5)
    asked = {"policy": "confidence", "threshold": 0.5}
    exported = Classifier.load(tmp_path / "onnx", **asked)
    grown.set_params(**asked)
    assert [d.depth for d in exported.decide(texts)] == [d.depth for d in grown.decide(texts)]
    assert exported.predict(texts).tolist() == grown.predict(texts).tolist()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"problem_type": "multi_label_classification"}, "one of two labels or more"),
        ({"num_labels": 1}, "one of two labels or more"),
    ],
)
def test_a_classifier_of_another_kind_is_refused(
    made: Callable[..., Path], toy: Toy, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        Classifier("grow", str(made(**fields)), QUICK).fit(*toy(24))


def test_what_is_not_a_classifier_or_not_of_a_known_family_is_refused(
    made: Callable[..., Path], toy: Toy, backbone_folder: Path
) -> None:
    with pytest.raises(ModelError, match="another recipe"):
        Classifier("grow", str(backbone_folder), QUICK).fit(*toy(24))
    with pytest.raises(ModelError, match="known family"):
        Classifier("grow", str(made("modernbert")), QUICK).fit(*toy(24))


REFUSED = [
    "exits.last=mha",
    "exits.reads=mean",
    "exits.projection=mlp",
    "stage2.objective=acl-cl",
    "exits.labels=names",
]


@pytest.mark.parametrize("setting", REFUSED)
def test_settings_that_do_not_go_with_it_are_refused(toy: Toy, setting: str) -> None:
    with pytest.raises(ConfigError, match="grow"):
        Classifier("grow", settings=[setting]).fit(*toy(24))


@pytest.mark.parametrize("kind", ["linear", "mha"])
def test_a_folder_of_sentence_transformers_is_a_backbone(
    backbone_folder: Path, toy: Toy, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "sentences"
    shutil.copytree(backbone_folder, folder / "0_Transformer")
    modules = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert locate(str(folder)).name == str(folder / "0_Transformer")
    assert torch.equal(
        load_backbone(str(folder)).get_input_embeddings().weight,
        load_backbone(str(backbone_folder)).get_input_embeddings().weight,
    )
    settings = {**QUICK, "exits.kind": kind, "optimise.epochs": 1}
    assert Classifier("2st", str(folder), settings).fit(*toy(24)).engine_.trained == (1, 2, 3, 4)


def test_a_number_that_is_the_name_of_another_label_is_refused() -> None:
    def read_as(*labels: str) -> list[object]:
        return spelled(read([("a text", label) for label in labels]), ("1", "2", "3")).labels

    assert read_as("1", "3") == ["1", "3"]
    with pytest.raises(DataError, match="the name of one and the number of another"):
        read_as("0", "1", "2")


@pytest.mark.slow
def test_a_fine_tuned_minilm_grows_exits_that_are_certified_on_trec(real_data: Path, tmp_path: Path) -> None:
    table = read(real_data / "trec6" / "train.parquet")
    names = json.loads((real_data / "trec6" / "labels.json").read_text())  # the labels of the data are numbers
    place = locate("minilm-l6").name
    tokenizer = AutoTokenizer.from_pretrained(place)
    torch.manual_seed(0)
    theirs = AutoModelForSequenceClassification.from_pretrained(place, num_labels=6, id2label=dict(enumerate(names)))
    learn = table.keep(range(700))
    others = table.keep(range(700, 1800))
    held = others.keep(unseen(digests(learn.examples), others.examples)[0])
    optimizer, rows = torch.optim.AdamW(theirs.parameters(), lr=2e-4), torch.randperm(700)
    theirs.train()
    for part in torch.cat([rows, rows]).split(32):
        batch = [learn.examples[int(row)] for row in part]
        inputs = tokenizer([e.text for e in batch], padding=True, truncation=True, max_length=64, return_tensors="pt")
        theirs(**inputs, labels=torch.tensor([int(e.label) for e in batch])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    theirs.save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")

    grown = Classifier("grow", str(tmp_path / "plain"), {"stage2.epochs": 5, "stage2.least_updates": 0})
    grown.fit_table(learn, folder=tmp_path / "grown")
    texts = [example.text for example in held.examples[:100]]
    with torch.no_grad():
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        wanted = theirs.eval()(**inputs).logits
    grown.set_params(policy="never")
    found = torch.log(torch.tensor(grown.predict_proba(texts)))
    torch.testing.assert_close(found, torch.log_softmax(wanted, dim=1), atol=1e-4, rtol=0)
    assert grown.predict(texts).tolist() == [names[k] for k in wanted.argmax(dim=1).tolist()]
    grown.set_params(policy=None)
    certificate = grown.calibrate(held, max_drop=0.05)
    assert certificate.certified
    test = read(real_data / "trec6" / "test.parquet")
    evaluation = grown.evaluate(test)
    assert evaluation.by_exit[-1].accuracy > 0.7
    assert evaluation.mean_depth < 5.0  # of 6 layers
    assert evaluation.accuracy > evaluation.by_exit[-1].accuracy - 0.05
