"""Static models: each method makes a smaller model out of the one loop, and it is what its paper says it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from offramp.classifier import Classifier
from offramp.config import CHOICES, CompressConfig, Config
from offramp.data.tokens import Tokens
from offramp.errors import ConfigError, ModelError
from offramp.exits.heads import head_counts
from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import thinned
from offramp.objectives.ce import CrossEntropy
from offramp.optimise import distilbert, theseus, tinybert
from offramp.optimise.journal import Watch
from offramp.optimise.layerdrop import LayerDrop
from offramp.optimise.loop import Result
from offramp.optimise.stage import FULL, Lessons
from offramp.optimise.static import METHODS, Static, check_static, full_model, remove_stages
from offramp.optimise.strategies import Phase
from offramp.optimise.theseus import Replacing
from offramp.optimise.tinybert import layer_loss
from offramp.types import EpochRecord, ExitOutput, StepRecord

SMALLER = {
    "truncate": {"layers": 2},
    "layerdrop": {"layers": 2},
    "heads": {"heads": [1, 2, 3]},
    "distil": {"layers": 2},
    "tiny": {"layers": 2},
    "theseus": {"layers": 2},
}
"""What is left of a model with four layers of four heads."""
STAGES = {
    "truncate": ["single"],
    "layerdrop": ["single"],
    "heads": ["single", "single"],
    "distil": ["single", "student"],
    "tiny": ["single", "layers", "answers"],
    "theseus": ["single", "replacing", "single"],
}
"""The phases that one sees go by."""


class Diary(Watch):
    """Whoever watches."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.epochs: list[EpochRecord] = []

    def step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)


def accuracy(truth: Any, predicted: Any) -> float:
    return sum(a == b for a, b in zip(truth, predicted, strict=True)) / len(truth)


Run = Callable[..., tuple[MultiExitModel, Result, Diary]]


@pytest.fixture
def run(make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], configure: Any) -> Run:
    """Makes a small model smaller."""

    def run(method: str, model: MultiExitModel | None = None, train: int = 48, **settings: Any) -> Any:
        quick = {"optimise__epochs": 2, "optimise__lr_backbone": 1e-3, "optimise__lr_exit": 1e-2, "compress__epochs": 2}
        config = configure(**{"compress__method": method, "objective__name": "ce", **quick, **settings})
        diary = Diary()
        static = Static(config, CrossEntropy(), toy_tokens(train), toy_tokens(24, 1), accuracy, None, watch=diary)
        made, result = static.run(model or make_model(layers=4))
        return made, result, diary

    return run


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def copied(model: MultiExitModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


# --- all of them


def test_every_method_has_its_name_in_the_configuration() -> None:
    assert CHOICES["compress.method"] == ("none", *METHODS)
    assert METHODS.keys() == SMALLER.keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_leaves_a_smaller_model_whose_last_exit_is_trained(run: Run, method: str) -> None:
    made, result, diary = run(method)
    assert made.depth == len(made.exits) == SMALLER[method].get("layers", 4)
    if method == "heads":
        assert sum(head_counts(made)) == 8
        assert made.config.layer_heads == head_counts(made)
    assert made.config.trained_exits == [made.depth]
    assert list(result.by_exit) == [str(made.depth)]
    assert result.by_exit[str(made.depth)] == result.score
    assert made.encoder.instead is None
    assert not made.training
    assert all(parameter.requires_grad for parameter in made.parameters())
    seen = [record.phase for record in diary.steps]
    assert [phase for place, phase in enumerate(seen) if not place or phase != seen[place - 1]] == [
        phase for place, phase in enumerate(STAGES[method]) if not place or phase != STAGES[method][place - 1]
    ]
    assert len(diary.epochs) == 2 * len(STAGES[method])


@pytest.mark.parametrize("method", METHODS)
def test_a_method_gives_the_same_bits_again(run: Run, method: str) -> None:
    first, second = (run(method, optimise__seed=3)[0] for _ in range(2))
    assert same(first.state_dict(), second.state_dict())
    assert not same(first.state_dict(), run(method, optimise__seed=4)[0].state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_a_small_task(run: Run, method: str) -> None:
    # A backbone at random has no layers that could do without each other: it is left with nearly all of them.
    epochs = {"optimise__epochs": 20, "compress__drop": 0.1} if method == "layerdrop" else {"optimise__epochs": 10}
    _, result, _ = run(method, train=320, compress__epochs=6, **epochs)
    assert result.score > 0.9  # three labels


@pytest.mark.parametrize("method", ["heads", "distil", "tiny", "theseus"])
def test_a_full_model_that_is_given_is_not_trained_and_stands_still(
    run: Run, make_model: Callable[..., MultiExitModel], method: str
) -> None:
    model = make_model(layers=4)
    before = copied(model)
    made, _, diary = run(method, model, compress__teacher="given")
    assert [record.phase for record in diary.epochs][::2] == STAGES[method][1:]
    assert same(copied(model), before)
    assert not same(copied(made), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_a_smaller_model_is_an_ordinary_model_folder(
    backbone_folder: Path,
    toy_texts: Callable[..., tuple[list[str], list[str]]],
    tmp_path: Path,
    method: str,
) -> None:
    quick = {"optimise.epochs": 1, "compress.epochs": 1, "objective.name": "ce", "alignment.scope": "none"}
    settings = {**quick, "compress.method": method, "optimise.strategy": "single"}
    classifier = Classifier(backbone=str(backbone_folder), settings=settings)
    texts, labels = toy_texts(40)
    classifier.fit(texts, labels)
    depth = SMALLER[method].get("layers", 4)
    classifier.save(tmp_path / "model")
    back = Classifier.load(tmp_path / "model")
    assert [found.depth for found in back.decide(texts[:3])] == [depth] * 3
    torch.testing.assert_close(
        torch.from_numpy(back.predict_proba(texts)), torch.from_numpy(classifier.predict_proba(texts))
    )
    assert back.config_.compress.method == method


def test_the_full_model_comes_from_a_folder_with_the_same_labels(
    backbone_folder: Path, toy_texts: Callable[..., tuple[list[str], list[str]]], tmp_path: Path
) -> None:
    quick = {"optimise.epochs": 1, "compress.epochs": 1}
    texts, labels = toy_texts(40)
    Classifier("ce", str(backbone_folder), quick).fit(texts, labels).save(tmp_path / "full")
    settings = {**quick, "compress.method": "distil", "compress.teacher": str(tmp_path / "full")}
    student = Classifier("ce", str(backbone_folder), settings).fit(texts, labels)
    assert (student.model_.depth, student.model_.config.trained_exits) == (2, [2])
    with pytest.raises(ModelError, match=r"`compress\.teacher` should be .* labels .*, a, b\. `.*` has bad, fine"):
        full_model(tmp_path / "full", ["a", "b"])


@pytest.mark.parametrize("layers", [4, 5])
def test_as_many_layers_as_there_are_or_more_are_refused(
    make_model: Callable[..., MultiExitModel], configure: Callable[..., Config], layers: int
) -> None:
    config = configure(compress__method="truncate", compress__layers=layers)
    with pytest.raises(ConfigError, match=rf"`compress\.layers` should be between 1 and 3, .* Found {layers}\."):
        check_static(config, make_model(layers=4))
    check_static(configure(compress__method="heads", compress__layers=layers), make_model(layers=4))
    check_static(configure(compress__method="tiny", compress__layers=3), make_model(layers=4))


def test_the_models_of_stages_are_removed_and_their_logs_stay(tmp_path: Path) -> None:
    (tmp_path / "full" / "model").mkdir(parents=True)
    (tmp_path / "full" / "log.jsonl").touch()
    (tmp_path / "log.jsonl").touch()
    remove_stages(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "log.jsonl", "log.jsonl"]


# --- truncation and LayerDrop


def test_truncation_begins_as_the_first_layers_and_their_exit(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], configure: Callable[..., Config]
) -> None:
    model, batch = make_model(layers=4), toy_tokens(6).batch(range(6))
    config = configure(compress__method="truncate", compress__layers=3)
    (stage,) = METHODS["truncate"](Lessons(config, CrossEntropy(), toy_tokens(6)))
    with torch.no_grad():
        torch.testing.assert_close(
            stage.begin({FULL: model}).outputs(batch)[3].logits, model.outputs(batch, [3])[3].logits
        )


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_layerdrop_leaves_out_layers_at_its_rate(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens], rate: float
) -> None:
    model, batch = make_model(layers=4), toy_tokens(2).batch(range(2))
    model.encoder.instead = LayerDrop(rate, (1, 3))
    ran = [0] * 4
    layers = model.encoder.backbone.encoder.layer
    for place, layer in enumerate(layers):
        layer.register_forward_hook(lambda *_, place=place: ran.__setitem__(place, ran[place] + 1))
    torch.manual_seed(0)
    model.train()
    for _ in range(200):
        model.outputs(batch, [4])
    # Four standard errors of a share of 200.
    assert all(abs(count / 200 - (1 - rate)) <= 4 * (rate * (1 - rate) / 200) ** 0.5 for count in ran)
    ran[:] = [0] * 4
    model.train(False)
    model.outputs(batch, [4])
    assert ran == [1, 0, 1, 0]


def test_validation_sees_the_model_that_layerdrop_will_leave(
    run: Run, toy_tokens: Callable[..., Tokens], make_model: Callable[..., MultiExitModel]
) -> None:
    made, result, _ = run("layerdrop")
    tokens = toy_tokens(24, 1)
    with torch.no_grad():
        answers = made.outputs(tokens.batch(range(24)), [2])[2].logits.argmax(dim=1).tolist()
    assert accuracy(tokens.labels_or_raise(), answers) == result.score


# --- distillation


@pytest.fixture
def lesson(
    make_model: Callable[..., MultiExitModel], toy_tokens: Callable[..., Tokens]
) -> tuple[MultiExitModel, MultiExitModel, Any]:
    """A teacher with four layers, another model's first and third, and a batch of texts of several lengths."""
    return make_model(layers=4), thinned(make_model(layers=4, seed=1), (1, 3), top=4), toy_tokens(6).batch(range(6))


def last_phase(method: Any, config: Config, student: MultiExitModel, teacher: MultiExitModel, number: int) -> Phase:
    stage = method.stages(Lessons(config, CrossEntropy(), None))[number]
    found: Phase = stage.phase(student, {FULL: teacher})
    return found


def hugging_face(model: MultiExitModel, batch: Any) -> tuple[Tensor, ...]:
    """The states that Hugging Face's own forward pass finds, below the first layer and after each."""
    states: tuple[Tensor, ...] = model.encoder.backbone(
        batch.input_ids, batch.mask, batch.token_types, output_hidden_states=True
    ).hidden_states
    return states


def answered(model: MultiExitModel, states: Tensor, batch: Any) -> ExitOutput:
    output: ExitOutput = model.exits[-1](states, batch.mask)
    return output


def test_the_loss_of_distil_is_the_sum_of_its_three_terms(
    lesson: tuple[MultiExitModel, MultiExitModel, Any], configure: Callable[..., Config]
) -> None:
    teacher, student, batch = lesson
    settings = {"compress__soft": 0.3, "compress__temperature": 2.0, "compress__cosine": 0.7}
    phase = last_phase(distilbert, configure(compress__method="distil", **settings), student, teacher, 1)
    assert phase.loss is not None
    with torch.no_grad():
        found = phase.loss(student, batch)
        above, own = hugging_face(teacher, batch)[-1], hugging_face(student, batch)[-1]
        wanted, logits = answered(teacher, above, batch).logits, answered(student, own, batch).logits
        entropy = functional.cross_entropy(logits, batch.labels)
        p, q = (wanted / 2).softmax(dim=1), (logits / 2).softmax(dim=1)
        soft = 4 * (p * (p.log() - q.log())).sum(dim=1).mean()
        inside = batch.mask.bool()
        cosine = 1 - functional.cosine_similarity(own[inside], above[inside]).mean()
    torch.testing.assert_close(found.total, 0.7 * entropy + 0.3 * soft + 0.7 * cosine, atol=1e-5, rtol=1e-5)
    assert set(found.parts) == {"ce", "soft", "cosine"}


def test_the_loss_of_tinys_layers_is_the_distance_to_every_other_layer_above(
    lesson: tuple[MultiExitModel, MultiExitModel, Any],
) -> None:
    teacher, student, batch = lesson
    weights = CompressConfig(embedding=0.5, attention=2.0, hidden=3.0)
    with torch.no_grad():
        found = layer_loss(student, teacher, batch, weights)
        theirs, own = hugging_face(teacher, batch), hugging_face(student, batch)

        def scores(model: MultiExitModel, depth: int, below: Tensor, text: int, head: int, length: int) -> Tensor:
            inner = model.encoder.backbone.encoder.layer[depth - 1].attention.self
            rows, tokens = slice(8 * head, 8 * head + 8), below[text, :length]
            query = tokens @ inner.query.weight[rows].T + inner.query.bias[rows]
            key = tokens @ inner.key.weight[rows].T + inner.key.bias[rows]
            return query @ key.T / 8**0.5

        lengths = batch.mask.sum(dim=1).tolist()
        inside = batch.mask.bool()
        embedding = functional.mse_loss(own[0][inside], theirs[0][inside])
        hidden = sum(functional.mse_loss(own[m][inside], theirs[2 * m][inside]) for m in (1, 2))
        attention = 0.0
        for m in (1, 2):
            squares = []
            for text, length in enumerate(lengths):
                for head in range(4):
                    mine = scores(student, m, own[m - 1], text, head, length)
                    wanted = scores(teacher, 2 * m, theirs[2 * m - 1], text, head, length)
                    squares += (mine - wanted).square().flatten().tolist()
            attention += sum(squares) / len(squares)
    assert float(found.parts["embedding"]) == pytest.approx(float(embedding), rel=1e-4)
    assert float(found.parts["attention"]) == pytest.approx(attention, rel=1e-4)
    assert float(found.parts["hidden"]) == pytest.approx(float(hidden), rel=1e-4)
    assert float(found.total) == pytest.approx(float(0.5 * embedding + 2 * attention + 3 * hidden), rel=1e-4)


def test_the_loss_of_tinys_answers_is_the_soft_targets_alone(
    lesson: tuple[MultiExitModel, MultiExitModel, Any], configure: Callable[..., Config]
) -> None:
    teacher, student, batch = lesson
    config = configure(compress__method="tiny", compress__temperature=1.0)
    phase = last_phase(tinybert, config, student, teacher, 2)
    assert phase.loss is not None
    with torch.no_grad():
        p = answered(teacher, hugging_face(teacher, batch)[-1], batch).logits.softmax(dim=1)
        q = answered(student, hugging_face(student, batch)[-1], batch).logits.softmax(dim=1)
        found = phase.loss(student, replace(batch, labels=None))
    torch.testing.assert_close(found.total, (p * (p.log() - q.log())).sum(dim=1).mean(), atol=1e-5, rtol=1e-5)


def test_tinys_layers_learn_without_the_exit_and_the_last_epoch_is_kept(
    lesson: tuple[MultiExitModel, MultiExitModel, Any], configure: Callable[..., Config]
) -> None:
    teacher, student, _ = lesson
    phase = last_phase(tinybert, configure(compress__method="tiny", optimise__patience=1), student, teacher, 1)
    exits = {id(parameter) for parameter in student.exits.parameters()}
    assert not exits & {id(parameter) for parameter in phase.trainable}
    assert len(phase.groups) == len(phase.trainable)
    assert phase.newest


def test_tinys_layers_come_nearer_to_the_teachers(run: Run) -> None:
    _, _, diary = run("tiny", compress__epochs=4)
    distances = [record.loss for record in diary.epochs if record.phase == "layers"]
    assert len(distances) == 4
    assert all(after < before for before, after in pairwise(distances))


# --- BERT-of-Theseus


def test_a_batch_walks_the_layers_of_both_models_as_drawn(
    lesson: tuple[MultiExitModel, MultiExitModel, Any],
) -> None:
    predecessor, successor, batch = lesson
    hook = Replacing(predecessor, 2, rate=0.5)
    successor.encoder.instead = hook
    drawn = set()
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(30):
            successor.encoder.training = True  # the layers themselves have no dropout here
            *_, (_, found) = successor.walk(batch)
            drawn.add(tuple(hook.replaced))
            states = successor.encoder.embed(batch)
            for module, replaced in enumerate(hook.replaced):
                if replaced:
                    layer = successor.encoder.backbone.encoder.layer[module]
                    states = replace(states, hidden=layer(states.hidden, mask_of(batch)))
                else:
                    for place in (2 * module, 2 * module + 1):
                        layer = predecessor.encoder.backbone.encoder.layer[place]
                        states = replace(states, hidden=layer(states.hidden, mask_of(batch)))
            torch.testing.assert_close(found.hidden, states.hidden, atol=1e-5, rtol=1e-5)
    assert drawn == {(True, False), (False, True), (True, True)}  # one at least


def mask_of(batch: Any) -> Tensor:
    """What a layer adds to its attention scores."""
    return (1.0 - batch.mask[:, None, None, :].float()) * torch.finfo(torch.float32).min


def test_without_training_the_successor_answers_alone(
    lesson: tuple[MultiExitModel, MultiExitModel, Any],
) -> None:
    predecessor, successor, batch = lesson
    with torch.no_grad():
        alone = successor.outputs(batch)[2].logits
        successor.encoder.instead = Replacing(predecessor, 2, rate=0.0)
        assert torch.equal(successor.outputs(batch)[2].logits, alone)


def test_the_rate_grows_linearly_to_one(make_model: Callable[..., MultiExitModel]) -> None:
    hook = Replacing(make_model(layers=4), 2, rate=0.4)
    rates = []
    for done in (0.0, 0.25, 0.5, 1.0):
        hook.grow(done)
        rates.append(hook.rate)
    assert rates == pytest.approx([0.4, 0.55, 0.7, 1.0])


def test_only_the_successors_layers_learn_while_modules_are_replaced(
    lesson: tuple[MultiExitModel, MultiExitModel, Any], configure: Callable[..., Config]
) -> None:
    predecessor, successor, _ = lesson
    phase = last_phase(theseus, configure(compress__method="theseus"), successor, predecessor, 1)
    names = {name for name, p in successor.named_parameters() if any(p is learning for learning in phase.trainable)}
    assert names == {name for name, _ in successor.named_parameters() if ".encoder.layer." in name}
    assert set(phase.groups) == {"layer-1", "layer-2"}
    assert phase.newest
    assert phase.before is not None
