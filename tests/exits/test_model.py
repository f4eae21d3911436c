"""The model: a backbone with an exit after every layer, and a citizen of Hugging Face's library."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.encoder.backbones import FLEXIBLE, KINDS, TYPED, make_backbone, make_batch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)

from offramp.encoder.load import load_backbone
from offramp.errors import ConfigError
from offramp.exits.kinds import EXITS
from offramp.exits.mha import MhaExit
from offramp.exits.model import MultiExitConfig, MultiExitModel, build

Make = Callable[..., MultiExitModel]
FAMILIES = [kind for kind in KINDS if kind != "bert-12"]
FIELDS = set(inspect.signature(MultiExitConfig).parameters) - {"kwargs", "backbone"} | {"id2label", "label2id"}


def make(kind: str, exit_kind: str = "mha", **fields: Any) -> MultiExitModel:
    labels = fields.pop("labels", ("bad", "fine", "good"))
    torch.manual_seed(1)
    model = build(make_backbone(kind), labels, exit_kind=exit_kind, exit_size=8, exit_heads=2, **fields)
    return model.train(False)


def same_answers(one: MultiExitModel, two: MultiExitModel, pairs: bool) -> bool:
    batch = make_batch(one.encoder.backbone, (21, 4, 11), pairs)
    with torch.no_grad():
        first, second = one.outputs(batch), two.outputs(batch)
    return first.keys() == second.keys() and all(torch.equal(first[d].logits, second[d].logits) for d in first)


def same_weights(one: MultiExitModel, two: MultiExitModel) -> bool:
    first, second = one.state_dict(), two.state_dict()
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


# --- layers and exits


@pytest.mark.parametrize("exit_kind", EXITS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_two_layers_or_exits_share_a_parameter(kind: str, exit_kind: str) -> None:
    model = make(kind, exit_kind)
    assert len(model.exits) == model.depth == model.encoder.backbone.config.num_hidden_layers
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    places = {p.untyped_storage().data_ptr() for _, p in model.named_parameters(remove_duplicate=False)}
    assert len(places) == len(names)


@pytest.mark.parametrize("exit_kind", EXITS)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_the_last_exits_output(kind: str, exit_kind: str) -> None:
    model = make(kind, exit_kind)
    batch = make_batch(model.encoder.backbone, (21, 4, 11), pairs=kind in TYPED)
    with torch.no_grad():
        found = model(input_ids=batch.input_ids, attention_mask=batch.mask, token_type_ids=batch.token_types)
        outputs = model.outputs(batch)
    assert list(outputs) == list(range(1, model.depth + 1))
    assert torch.equal(found.logits, outputs[model.depth].logits)
    assert found.loss is None
    assert not torch.equal(found.logits, outputs[model.depth - 1].logits)


def test_without_a_mask_every_token_counts(make_model: Make) -> None:
    model = make_model()
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, model(ids, torch.ones_like(ids)).logits)


@pytest.mark.parametrize("wanted", [[1], [2], [1, 3], [3, 1], {2}, [4], [1, 2, 3, 4], None])
def test_no_layer_above_the_deepest_wanted_exit_is_run(make_model: Make, wanted: list[int] | None) -> None:
    model = make_model()
    runs: Counter[str] = Counter()
    layers = model.encoder.family.layers(model.encoder.backbone)
    for depth in range(1, 5):
        layers[depth - 1].register_forward_hook(lambda *_, d=depth: runs.update([f"layer {d}"]))
        model.exits[depth - 1].register_forward_hook(lambda *_, d=depth: runs.update([f"exit {d}"]))
    batch = make_batch(model.encoder.backbone, (9, 4))
    with torch.no_grad():
        every = model.outputs(batch)
        runs.clear()
        found = model.outputs(batch, wanted)
    depths = set(wanted or range(1, 5))
    truth = {f"layer {d}": 1 for d in range(1, max(depths) + 1)} | {f"exit {d}": 1 for d in depths}
    assert dict(runs) == truth
    assert set(found) == depths
    assert all(torch.equal(found[d].logits, every[d].logits) for d in depths)


@pytest.mark.parametrize("wanted", [[], [0], [5], [-1], [1, 9]])
def test_depths_that_do_not_exist_are_refused(make_model: Make, wanted: list[int]) -> None:
    model = make_model()
    with pytest.raises(ConfigError, match=r"Depths should be between 1 and 4\. Found"):
        model.outputs(make_batch(model.encoder.backbone, (5,)), wanted)


def test_an_unknown_exit_is_refused_with_the_near_names() -> None:
    with pytest.raises(ConfigError, match=r"`lineer` is not a known exit\. Did you mean 'linear'\?"):
        make("bert", "lineer")


def test_an_unknown_way_to_read_is_refused_with_the_near_names() -> None:
    with pytest.raises(ConfigError, match=r"`meen` is not a known way to read a text\. Did you mean 'mean'\?"):
        make("bert", exit_reads="meen")
    with pytest.raises(ConfigError, match=r"`mpl` is not a known projection\. Did you mean 'mlp'\?"):
        make("bert", exit_projection="mpl")


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_loaded_backbone_is_not_touched(kind: str, tmp_path: Path) -> None:
    make_backbone(kind).save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    for exit_kind in EXITS:
        model = build(load_backbone(str(tmp_path)), ("a", "b"), exit_kind=exit_kind)
        found = model.encoder.backbone.state_dict()
        assert found.keys() == {name for name in stored if not name.startswith("pooler.")}
        assert all(torch.equal(value, stored[name]) for name, value in found.items())


def test_new_exits_are_as_torch_draws_them_from_the_seed() -> None:
    backbone = make_backbone("bert")
    torch.manual_seed(3)
    found = build(backbone, ("a", "b"), exit_size=8, exit_heads=2)
    torch.manual_seed(3)
    wanted = nn.ModuleList([MhaExit(32, 2, 8, 2, 0.1) for _ in range(4)])
    assert all(torch.equal(p, q) for p, q in zip(found.exits.parameters(), wanted.parameters(), strict=True))


# --- on disk, as Hugging Face does it


@pytest.mark.parametrize("exit_kind", EXITS)
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_saved_model_comes_back_bit_for_bit(kind: str, exit_kind: str, tmp_path: Path) -> None:
    model = make(kind, exit_kind, trained_exits=[2, 4], max_tokens=31)
    model.save_pretrained(tmp_path)
    for found in (
        MultiExitModel.from_pretrained(tmp_path),
        AutoModelForSequenceClassification.from_pretrained(tmp_path),
    ):
        assert isinstance(found, MultiExitModel)
        assert not found.training
        assert same_weights(model, found)
        assert same_answers(model, found, pairs=kind in TYPED)
        assert (found.config.trained_exits, found.config.max_tokens) == ([2, 4], 31)
        for field in FIELDS:
            assert getattr(found.config, field) == getattr(model.config, field), field
        assert found.config.backbone_config().to_dict() == model.config.backbone_config().to_dict()


def test_a_saved_model_is_safetensors_and_json_only(make_model: Make, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("labels", [("no", "yes"), (3, 1, 2), ("1", 1), ("ä", "with space", "")])
def test_labels_keep_their_order_spelling_and_type(labels: tuple[str | int, ...], tmp_path: Path) -> None:
    make("bert", labels=labels).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is MultiExitConfig
    assert [(label, type(label)) for label in config.labels] == [(label, type(label)) for label in labels]
    assert config.num_labels == len(labels)
    assert config.id2label == {index: str(label) for index, label in enumerate(labels)}


@pytest.mark.parametrize("kind", [k for k in FLEXIBLE if k != "bert-12"])
def test_the_attention_asked_for_reaches_the_backbone(kind: str, tmp_path: Path) -> None:
    model = build(make_backbone(kind, "eager"), ("a", "b")).train(False)
    model.save_pretrained(tmp_path)
    found = MultiExitModel.from_pretrained(tmp_path, attn_implementation="eager")
    assert found.encoder.backbone.config._attn_implementation == "eager"
    assert same_answers(model, found, pairs=kind in TYPED)
    default = MultiExitModel.from_pretrained(tmp_path)
    assert default.encoder.backbone.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("kind", "exit_kind"), [*((kind, "mha") for kind in FAMILIES), *(("bert", name) for name in EXITS if name != "mha")]
)
def test_a_model_runs_in_bfloat16_as_a_whole(kind: str, exit_kind: str, tmp_path: Path) -> None:
    model = make(kind, exit_kind, exit_temperature=1.0)
    model.save_pretrained(tmp_path)
    small = MultiExitModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    batch = make_batch(model.encoder.backbone, (21, 4, 11))
    with torch.no_grad():
        found, wanted = small(batch.input_ids, batch.mask).logits, model(batch.input_ids, batch.mask).logits
    # A cosine is never taken in less than float32.
    assert found.dtype == (torch.float32 if exit_kind in ("match", "fusion") else torch.bfloat16)
    torch.testing.assert_close(found.float(), wanted, atol=0.25, rtol=0)  # eight bits, four layers


@pytest.mark.parametrize("exit_kind", EXITS)
def test_exits_a_file_does_not_hold_begin_as_new_ones_do(exit_kind: str, tmp_path: Path) -> None:
    model = make("bert", exit_kind)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("exits.1.")}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    # Memory that nobody wrote may hold anything, so it is filled with what no exit begins with.
    filler = [torch.full((64, 64), 1e30) for _ in range(50)]
    del filler
    found = MultiExitModel.from_pretrained(tmp_path)
    for name, value in found.state_dict().items():
        if name in kept:
            assert torch.equal(value, weights[name]), name
        else:
            # Weights are drawn from within 1/sqrt(inputs), the attention's from within sqrt(6 / (in + out)).
            assert value.abs().max() <= 0.5, name
            assert value.dim() == 1 or 0 < value.std() < 0.5, name
    ours: list[Any] = list(found.exits)
    assert not torch.equal(ours[1].label_parameter, ours[0].label_parameter)


@pytest.mark.parametrize("exit_kind", [kind for kind in EXITS if kind != "linear"])
def test_a_part_that_a_file_does_not_hold_is_drawn_and_the_others_are_kept(exit_kind: str, tmp_path: Path) -> None:
    model = make("bert", exit_kind)
    with torch.no_grad():
        for parameter in model.exits.parameters():
            parameter.fill_(7.0)  # what no exit begins with
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for missing in (name for name in weights if name.startswith("exits.2.")):
        kept = {name: value for name, value in weights.items() if name != missing}
        save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
        found = MultiExitModel.from_pretrained(tmp_path).state_dict()
        assert found[missing].abs().max() <= 0.6, missing
        assert all(torch.equal(found[name], value) for name, value in kept.items()), missing


@pytest.mark.parametrize("exit_kind", EXITS)
def test_a_model_can_be_loaded_for_other_labels(exit_kind: str, tmp_path: Path) -> None:
    model = make("bert", exit_kind)
    model.save_pretrained(tmp_path)
    found = MultiExitModel.from_pretrained(tmp_path, labels=["a", "b", "c", "d", "e"], ignore_mismatched_sizes=True)
    batch = make_batch(model.encoder.backbone, (21, 4, 11))
    for depth, output in found.outputs(batch).items():
        before = model.exits[depth - 1].state_dict()
        assert output.logits.shape == (3, 5)
        assert output.logits.abs().max() <= 10  # drawn, not left in memory as it was
        for name, value in found.exits[depth - 1].state_dict().items():
            assert torch.equal(value, before[name]) or value.shape[0] == 5, name


# --- in Hugging Face's hands


def test_hugging_faces_pipeline_answers_with_it(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model()
    texts = ["the good film", "the plot was very dull and slow", "bad"]
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        truth = torch.softmax(model(**encoded).logits, dim=1)
    for text, wanted in zip(texts, truth, strict=True):
        (found,) = classify([text])
        assert found["label"] == model.config.labels[int(wanted.argmax())]
        assert found["score"] == pytest.approx(float(wanted.max()), abs=1e-5)
    every = classify(texts, top_k=None, batch_size=3)
    for scores, wanted in zip(every, truth, strict=True):
        by_label = {score["label"]: score["score"] for score in scores}
        assert [by_label[label] for label in model.config.labels] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_hugging_faces_pipeline_loads_it_from_a_folder(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = make_model()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    here = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    there = pipeline("text-classification", model=str(tmp_path), device="cpu")
    assert isinstance(there.model, MultiExitModel)
    assert there("the good film") == here("the good film")


def test_hugging_faces_trainer_trains_it(make_model: Make, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    texts = ["the good film", "a dull plot", "fine", "very bad", "not bad", "quick story", "who", "was it good"]
    rows = [
        {**{key: value[0] for key, value in tokenizer([text], return_tensors="pt").items()}, "labels": index % 3}
        for index, text in enumerate(texts)
    ]
    settings = TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model, settings, train_dataset=rows, processing_class=tokenizer)
    result = trainer.train()
    assert result.global_step == 2
    assert 0 < result.training_loss < 10
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert any(name.startswith("encoder.backbone.encoder.layer.0.") for name in moved)
    assert any(name.startswith("encoder.backbone.embeddings.") for name in moved)
    assert any(name.startswith("exits.3.") for name in moved)
    # Its loss is that of the last exit.
    assert not any(name.startswith(("exits.0.", "exits.1.", "exits.2.")) for name in moved)
    trainer.save_model(str(tmp_path / "trained"))
    assert same_weights(model, MultiExitModel.from_pretrained(tmp_path / "trained"))
