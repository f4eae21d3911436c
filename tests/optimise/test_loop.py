"""The training loop: it learns, keeps the best epoch, stops when it should, and writes down what it did."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from offramp.errors import Interrupted, TrainingError
from offramp.exits.model import MultiExitModel
from offramp.objectives import objective
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop
from offramp.optimise.saved_state import SavedState
from offramp.optimise.state_cache import CacheWarning
from offramp.types import EpochRecord, ExitOutput, Loss, StepRecord


class Diary(Watch):
    """Somebody who watches: keeps the records and the weights after every epoch, and may do something at an update."""

    def __init__(
        self, model: MultiExitModel | None = None, at: int = 0, then: Callable[[], None] | None = None
    ) -> None:
        self.model, self.at, self.then = model, at, then
        self.began: tuple[int, int] | None = None
        self.steps: list[StepRecord] = []
        self.epochs: list[EpochRecord] = []
        self.weights: list[dict[str, Tensor]] = []

    def start(self, updates: int, done: int) -> None:
        self.began = (updates, done)

    def step(self, record: StepRecord) -> None:
        self.steps.append(record)
        if record.step == self.at and self.then:
            self.then()

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)
        if self.model is not None:
            self.weights.append({name: t.clone() for name, t in self.model.state_dict().items()})


class Watched:
    """An objective that shows somebody what it is given."""

    views, taught = 1, False

    def __init__(self, inner: Any, look: Callable[[ExitOutput, Tensor], None]) -> None:
        self.inner, self.look = inner, look

    def __call__(
        self, output: ExitOutput, labels: Tensor, teacher: ExitOutput | None = None, weights: Tensor | None = None
    ) -> Loss:
        self.look(output, labels)
        loss: Loss = self.inner(output, labels, teacher)
        return loss


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def log(folder: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "log.jsonl").read_text().splitlines()]


def scripted(*scores: float) -> Callable[..., float]:
    """A score that is told in advance."""
    rest: Iterator[float] = iter(scores)
    return lambda truth, predicted: next(rest)


# What comes out.


def test_a_small_model_learns_a_small_task(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop(
        train=320,
        validation=80,
        optimise__epochs=5,
        optimise__lr_backbone=2e-3,
        alignment__scope="exact",
    )
    result = loop.run()
    assert result.score > 0.9
    assert (result.epochs, result.updates, result.metric) == (5, 100, "accuracy")
    assert not result.stopped_early


def test_the_weights_of_the_best_epoch_are_kept_and_of_equals_the_later(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    model = make_model(layers=2)
    diary = Diary(model)
    result = make_loop(model=model, watch=diary, score=scripted(0.1, 0.8, 0.8, 0.3), optimise__epochs=4).run()
    assert (result.best_epoch, result.score, result.epochs) == (3, 0.8, 4)
    assert [record.best for record in diary.epochs] == [True, True, True, False]
    assert same(model.state_dict(), diary.weights[2])
    assert not same(diary.weights[1], diary.weights[2])


def test_a_later_epoch_within_the_tolerance_is_kept_over_the_top_score(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    # One standard error of 0.8 over 16 texts is 0.1: the third epoch is within it, the fourth is not.
    model = make_model(layers=2)
    diary = Diary(model)
    scores = scripted(0.1, 0.8, 0.71, 0.69)
    loop = make_loop(model=model, watch=diary, score=scores, validation=16, optimise__epochs=4, optimise__tolerance=1.0)
    result = loop.run()
    assert (result.best_epoch, result.score) == (3, 0.71)
    assert same(model.state_dict(), diary.weights[2])


def test_a_constant_answer_is_not_kept_over_later_epochs_whose_correlation_is_as_near_to_none(
    make_loop: Callable[..., Loop],
) -> None:
    # One answer throughout has a Matthews correlation of 0, whose standard error over 16 texts is a quarter.
    settings = {"optimise__metric": "mcc", "optimise__tolerance": 1.0, "optimise__epochs": 3}
    result = make_loop(score=scripted(0.0, -0.3, -0.2), validation=16, **settings).run()
    assert (result.best_epoch, result.score) == (3, -0.2)


def test_training_stops_when_patience_is_at_an_end(make_loop: Callable[..., Loop]) -> None:
    scores = scripted(0.5, 0.4, 0.6, 0.6, 0.5, 0.9)
    result = make_loop(score=scores, optimise__epochs=6, optimise__patience=2).run()
    assert (result.best_epoch, result.epochs, result.stopped_early) == (4, 5, True)


def test_without_patience_it_never_stops_early(make_loop: Callable[..., Loop]) -> None:
    result = make_loop(score=scripted(0.5, 0.4, 0.3, 0.2), optimise__epochs=4, train=16).run()
    assert (result.best_epoch, result.epochs, result.stopped_early) == (1, 4, False)


@pytest.mark.parametrize("texts", [48, 1], ids=["order and dropout", "dropout alone"])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(make_loop: Callable[..., Loop], texts: int) -> None:
    found = []
    for run, seed in enumerate((3, 3, 4)):
        loop = make_loop(train=texts, optimise__seed=seed, alignment__scope="exact")
        torch.rand(run)  # what was drawn before a run does not matter
        loop.run()
        found.append(loop.model.state_dict())
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_the_model_is_handed_back_ready_to_answer(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop()
    loop.run()
    assert not loop.model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in loop.model.parameters())
    assert not loop.model.encoder.backbone.get_input_embeddings().sparse
    assert loop.model.config.trained_exits == [2]


def test_only_the_backbone_and_the_last_exit_learn(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    before = make_model(layers=2).state_dict()
    loop = make_loop(model=make_model(layers=2))
    loop.run()
    for name, value in loop.model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("exits.0."), name


def test_a_run_may_have_another_precision_than_the_one_before(make_loop: Callable[..., Loop]) -> None:
    kinds: dict[str, Any] = {}
    for precision, scope in (("no", "none"), ("bf16", "exact"), ("bf16", "exit"), ("no", "exact")):
        loop = make_loop(train=16, optimise__precision=precision, alignment__scope=scope)

        def look(output: ExitOutput, labels: Tensor, precision: str = precision) -> None:
            kinds[precision] = output.logits.dtype

        loop.objective = Watched(loop.objective, look)
        assert math.isfinite(loop.run().score)
    assert kinds == {"no": torch.float32, "bf16": torch.bfloat16}


# How it gets there.


def test_accumulated_batches_make_fewer_updates(make_loop: Callable[..., Loop]) -> None:
    diary = Diary()
    result = make_loop(watch=diary, train=56, optimise__batch_size=8, optimise__accumulation=3).run()
    assert result.updates == 2 * math.ceil(7 / 3)
    assert [record.step for record in diary.steps] == [1, 2, 3, 4, 5, 6]
    assert [record.epoch for record in diary.steps] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])
    assert diary.began == (6, 0)


def without_dropout(model: MultiExitModel) -> MultiExitModel:
    """In double precision, and sure of itself even while it trains."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.double()


def test_accumulated_batches_are_one_large_batch(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    """Where all batches are of one size, the mean of the batches' means is the mean over all texts.

    An epoch that has fewer batches than an update could take is one update all the same.
    """
    found = []
    for size, accumulation in ((16, 1), (4, 4), (4, 7)):
        model = without_dropout(make_model(layers=2, exit_dropout=0.0))
        loop = make_loop(
            model=model,
            train=16,
            objective__name="ce",
            optimise__batch_size=size,
            optimise__accumulation=accumulation,
            optimise__epochs=3,
        )
        loop.run()
        found.append(model.state_dict())
    for other in found[1:]:
        for name, value in found[0].items():
            torch.testing.assert_close(value, other[name], rtol=1e-6, atol=1e-8, msg=name)


def test_balanced_batches_hold_each_label_alike(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop(data__sampler="balanced", data__per_class=3, optimise__batch_size=9)
    seen: list[Counter[int]] = []
    loop.objective = Watched(loop.objective, lambda output, labels: seen.append(Counter(labels.tolist())))
    loop.run()
    assert seen == [Counter({0: 3, 1: 3, 2: 3})] * (2 * math.ceil(48 / 9))


@pytest.mark.parametrize(("name", "scope"), [("acl", "none"), ("acl", "exact"), ("scl", "exit"), ("infonce", "exact")])
def test_a_contrast_batch_is_one_large_batch(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel], name: str, scope: str
) -> None:
    """Micro-batches of 5, of which the last has one text, and batches of 16 with one of 8 at the end of an epoch."""
    found, diaries = [], []
    for size, contrast in ((16, 0), (5, 16)):
        model, diary = without_dropout(make_model(layers=2, exit_dropout=0.0)), Diary()
        make_loop(
            model=model,
            watch=diary,
            train=40,
            objective__name=name,
            objective__weight=0.3,
            alignment__scope=scope,
            optimise__batch_size=size,
            optimise__contrast_batch=contrast,
        ).run()
        found.append(model.state_dict())
        diaries.append(diary)
    assert [len(diary.steps) for diary in diaries] == [6, 6]
    for one, other in zip(diaries[0].steps, diaries[1].steps, strict=True):
        assert (one.step, one.epoch, one.lr) == (other.step, other.epoch, other.lr)
        assert other.loss == pytest.approx(one.loss, rel=1e-6)
    for parameter, value in found[0].items():
        torch.testing.assert_close(value, found[1][parameter], rtol=1e-6, atol=1e-8, msg=parameter)


def test_accumulation_counts_contrast_batches(make_loop: Callable[..., Loop]) -> None:
    diary, seen = Diary(), []
    loop = make_loop(
        watch=diary,
        train=60,
        optimise__batch_size=4,
        optimise__contrast_batch=16,
        optimise__accumulation=3,
    )
    loop.objective = Watched(loop.objective, lambda output, labels: seen.append(len(labels)))
    result = loop.run()
    assert result.updates == 2 * math.ceil(4 / 3)
    assert [sorted(seen[:4]), sorted(seen[4:])] == [[12, 16, 16, 16]] * 2
    assert [record.epoch for record in diary.steps] == pytest.approx([1 / 2, 1, 3 / 2, 2])
    assert diary.began == (4, 0)


@pytest.mark.parametrize(
    ("texts", "contrast", "accumulation", "wanted", "updates"),
    [
        (48, 0, 1, 3, 3),  # 12 batches, 4 at a time
        (48, 0, 6, 3, 2),  # more are asked for already
        (48, 0, 1, 5, 6),  # 12 / 5 is near 2
        (48, 0, 1, 100, 12),  # there are fewer than that
        (48, 8, 1, 3, 3),  # 6 contrast batches, 2 at a time
        (48, 0, 1, 0, 12),
    ],
)
def test_an_epoch_has_about_as_many_updates_as_are_wanted(
    make_loop: Callable[..., Loop], texts: int, contrast: int, accumulation: int, wanted: int, updates: int
) -> None:
    diary = Diary()
    result = make_loop(
        watch=diary,
        train=texts,
        optimise__batch_size=4,
        optimise__contrast_batch=contrast,
        optimise__accumulation=accumulation,
        optimise__updates_per_epoch=wanted,
    ).run()
    assert result.updates == 2 * updates
    assert diary.began == (2 * updates, 0)
    assert [record.epoch for record in diary.steps][updates - 1 :: updates] == pytest.approx([1.0, 2.0])
    # Up to the peak in a tenth of the updates, then down to one step above 0.
    assert diary.steps[-1].lr == pytest.approx(1e-3 / (0.9 * 2 * updates))


def test_balanced_contrast_batches_hold_each_label_alike(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop(data__sampler="balanced", data__per_class=8, optimise__batch_size=5, optimise__contrast_batch=24)
    seen: list[Counter[int]] = []
    loop.objective = Watched(loop.objective, lambda output, labels: seen.append(Counter(labels.tolist())))
    loop.run()
    assert seen == [Counter({0: 8, 1: 8, 2: 8})] * (2 * math.ceil(48 / 24))


def test_contrast_batches_meet_other_texts_in_the_next_epoch(make_loop: Callable[..., Loop]) -> None:
    """Sorted by length as a whole, the texts would meet the same others in every epoch."""
    loop = make_loop(train=600, optimise__batch_size=2, optimise__contrast_batch=50)
    first, second = (
        {row: set(batch) for batch in loop._batches(loop.config.optimise) for row in batch} for _ in range(2)
    )
    met_again = sum(len(first[row] & second[row]) - 1 for row in range(600)) / (600 * 49)
    assert met_again < 0.35  # 0.08 where texts meet at random
    assert sorted(first) == list(range(600))


def test_every_text_is_seen_once_in_an_epoch_and_in_another_order_in_the_next(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop(train=30, optimise__batch_size=4)
    orders = [loop._batches(loop.config.optimise) for _ in range(2)]
    for batches in orders:
        assert sorted(row for batch in batches for row in batch) == list(range(30))
    assert orders[0] != orders[1]


# What it writes down.


@pytest.mark.parametrize("scope", ["none", "exact", "exit"])
def test_the_log_has_a_record_per_update_and_per_epoch(
    make_loop: Callable[..., Loop], tmp_path: Path, scope: str
) -> None:
    diary = Diary()
    loop = make_loop(tmp_path, watch=diary, alignment__scope=scope, optimise__lr_backbone=1e-3, optimise__warmup=0.5)
    result = loop.run()
    records = log(tmp_path)
    steps = [record for record in records if record["kind"] == "step"]
    epochs = [record for record in records if record["kind"] == "epoch"]
    assert [record["step"] for record in records] == [1, 2, 3, 3, 4, 5, 6, 6]
    assert [record["lr"] for record in steps] == pytest.approx(
        [1e-3 * share for share in (1 / 4, 2 / 4, 3 / 4, 1, 2 / 3, 1 / 3)]
    )
    assert [sum(record["texts"] for record in steps[first : first + 3]) for first in (0, 3)] == [len(loop.train)] * 2
    for record in steps:
        assert record["loss"] == pytest.approx(0.98 * record["parts"]["ce"] + 0.02 * record["parts"]["contrast"])
        if scope == "none":
            assert record["angle"] is record["kept"] is record["main_norm"] is record["auxiliary_norm"] is None
        else:
            assert 0.0 <= record["angle"] <= 180.0
            assert record["kept"] == (record["angle"] <= 90.0)
            assert record["main_norm"] > 0.0
            assert record["auxiliary_norm"] > 0.0
    assert [record["epoch"] for record in epochs] == [1, 2]
    assert max(record["score"] for record in epochs) == result.score
    for number, record in enumerate(epochs):
        share = steps[3 * number : 3 * number + 3]
        assert record["loss"] == pytest.approx(sum(step["loss"] for step in share) / 3)
    assert [{"kind": "step", **vars_of(step)} for step in diary.steps] == steps


def vars_of(record: StepRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def test_an_angle_that_does_not_exist_is_null_in_the_log(make_loop: Callable[..., Loop], tmp_path: Path) -> None:
    diary = Diary()
    make_loop(
        tmp_path, watch=diary, train=4, objective__name="scl", alignment__scope="exact", optimise__batch_size=1
    ).run()
    assert all(math.isnan(record.angle) for record in diary.steps if record.angle is not None)
    steps = [record for record in log(tmp_path) if record["kind"] == "step"]
    assert [(record["angle"], record["kept"], record["auxiliary_norm"]) for record in steps] == [(None, 0.0, 0.0)] * 8


def test_tensorboard_can_read_the_events(make_loop: Callable[..., Loop], tmp_path: Path) -> None:
    make_loop(tmp_path, alignment__scope="exact").run()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    records = log(tmp_path)
    steps = [record for record in records if record["kind"] == "step"]
    for name in ("loss", "lr", "angle", "kept", "main_norm", "auxiliary_norm", "epoch"):
        found = events.Scalars(f"train/{name}")
        assert [event.step for event in found] == [record["step"] for record in steps]
        assert [event.value for event in found] == pytest.approx([record[name] for record in steps], rel=1e-5)
    for name in ("ce", "contrast"):
        found = [event.value for event in events.Scalars(f"part/{name}")]
        assert found == pytest.approx([record["parts"][name] for record in steps], rel=1e-5)
    found = [(event.step, event.value) for event in events.Scalars("validation/accuracy")]
    wanted = [(record["step"], pytest.approx(record["score"])) for record in records if record["kind"] == "epoch"]
    assert found == wanted


def test_without_a_folder_nothing_is_written(
    make_loop: Callable[..., Loop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_loop(train=16).run()
    assert list(tmp_path.iterdir()) == []


# What makes it stop.


def finite_checkpoint(folder: Path, number: int, kind: str = "checkpoint") -> None:
    saved = SavedState(folder)
    newest = saved.newest()
    assert newest is not None
    assert newest.name == f"{kind}-{number}"
    found = saved.read()
    assert found is not None
    assert all(torch.isfinite(value).all() for name, value in found[0].items() if value.is_floating_point())


def test_a_loss_that_is_nan_stops_and_names_the_last_good_checkpoint(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    model = make_model(layers=2)

    def poison() -> None:
        model.exits[1].classifier.bias.data.fill_(math.nan)

    with pytest.raises(TrainingError, match=r"The loss became nan at update 5\. .*checkpoint-3`.*--resume") as caught:
        make_loop(tmp_path, model=model, watch=Diary(at=4, then=poison)).run()
    assert str(tmp_path / "checkpoint-3") in str(caught.value)
    finite_checkpoint(tmp_path, 3)
    assert [record["step"] for record in log(tmp_path)] == [1, 2, 3, 3, 4]


def test_a_gradient_that_is_nan_does_not_reach_the_weights_or_a_checkpoint(
    make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    """The loss of the last update of an epoch is finite; its gradient is not."""
    loop = make_loop(tmp_path, objective__name="ce")
    calls = Counter[str]()

    def treacherous(output: ExitOutput, labels: Tensor, teacher: ExitOutput | None) -> Loss:
        loss = objective("ce")(output, labels, teacher).main
        zero = loss - loss.detach()
        return Loss(main=loss + zero.sqrt() if calls["call"] == 6 else loss, parts={"ce": loss.detach()})

    loop.objective = Watched(treacherous, lambda output, labels: calls.update(["call"]))
    with pytest.raises(TrainingError, match=r"The gradient's norm became nan at update 6\. .*checkpoint-3`"):
        loop.run()
    finite_checkpoint(tmp_path, 3)
    assert all(torch.isfinite(value).all() for value in loop.model.state_dict().values())


def test_memory_that_runs_out_stops_and_names_the_last_good_checkpoint(
    make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    greedy = Diary(at=5, then=lambda: torch.empty(2**60))
    with pytest.raises(TrainingError, match=r"Memory ran out: .*optimise\.batch_size.*checkpoint-3`"):
        make_loop(tmp_path, watch=greedy).run()
    finite_checkpoint(tmp_path, 3)


STAGED = {"optimise__strategy": "two-stage", "stage2__least_updates": 0, "stage2__epochs": 2, "stage2__batch_size": 16}
"""A first stage of six updates, and a second of three in each of two epochs."""


def test_what_stops_a_second_stage_names_the_settings_of_that_stage_and_that_the_first_is_kept(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    kept = r"and add --resume: this stage begins anew with other settings, the first is kept\. .*base-6`\.$"
    greedy = Diary(at=7, then=lambda: torch.empty(2**60))
    with pytest.raises(TrainingError, match=rf"Memory ran out: .* Lower stage2\.batch_size, {kept}"):
        make_loop(tmp_path / "memory", watch=greedy, **STAGED).run()
    model = make_model(layers=2)
    poison = Diary(at=7, then=lambda: model.exits[0].classifier.bias.data.fill_(math.nan))
    with pytest.raises(TrainingError, match=rf"nan at update 8\. Lower stage2\.lr or raise stage2\.temp\w+, {kept}"):
        make_loop(tmp_path / "nan", model=model, watch=poison, **STAGED).run()
    finite_checkpoint(tmp_path / "nan", 6, "base")
    with pytest.raises(TrainingError, match=r"Lower stage2\.batch_size, and start anew\. Nothing was saved\.$"):
        make_loop(watch=Diary(at=7, then=lambda: torch.empty(2**60)), **STAGED).run()


class AtStates(Watch):
    """Does something when the first states have been written down."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def states(self, done: int, texts: int) -> None:
        self.then()


def test_memory_that_runs_out_while_states_are_written_down_is_not_blamed_on_the_batch(
    make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    greedy = AtStates(lambda: torch.empty(2**60))
    with pytest.raises(TrainingError, match=r"Memory ran out: .*base-6`: mend the cause and add --resume\.$") as told:
        make_loop(tmp_path, watch=greedy, **STAGED).run()
    assert "batch_size" not in str(told.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_asks_to_stop_while_states_are_written_down_is_heard_and_the_run_can_go_on(
    make_loop: Callable[..., Loop], tmp_path: Path, number: signal.Signals
) -> None:
    settings = {**STAGED, "train": 100}
    before = [signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)]
    try:
        with pytest.raises(Interrupted) as told:
            make_loop(tmp_path, watch=AtStates(lambda: signal.raise_signal(number)), **settings).run()
    finally:
        for each, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(each, handler)
    assert told.value.signal == number
    assert not [*tmp_path.glob("states-*"), *tmp_path.glob(".states-*")]
    resumed, whole = make_loop(tmp_path, **settings), make_loop(**settings)
    resumed.run(resume=True)
    whole.run()
    assert same(resumed.model.state_dict(), whole.model.state_dict())


def test_who_watches_hears_how_many_texts_have_their_states_written_down(
    make_loop: Callable[..., Loop], tmp_path: Path
) -> None:
    heard: list[tuple[str, int, int]] = []

    class Listener(Watch):
        def start(self, updates: int, done: int) -> None:
            heard.append(("start", updates, done))

        def states(self, done: int, texts: int) -> None:
            heard.append(("states", done, texts))

    make_loop(tmp_path, watch=Listener(), train=100, **{**STAGED, "optimise__epochs": 1}).run()
    assert heard[0][0] == "start"
    assert heard[1:] == [("start", 14, 0), ("states", 64, 100), ("states", 100, 100), ("states", 24, 24)]


def test_states_that_were_walked_stay_so_when_the_run_goes_on(
    make_loop: Callable[..., Loop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**STAGED, "optimise__checkpoint_steps": 2}
    full = shutil.disk_usage(tmp_path)._replace(free=0)

    def stop() -> None:
        raise KeyboardInterrupt

    whole = make_loop(tmp_path / "whole", **settings)
    killed = make_loop(tmp_path / "resumed", watch=Diary(at=9, then=stop), **settings)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: full)
        with pytest.warns(CacheWarning, match="would take"):
            whole.run()
        with pytest.warns(CacheWarning, match="would take"), pytest.raises(KeyboardInterrupt):
            killed.run()
    resumed = make_loop(tmp_path / "resumed", **settings)  # there is room now
    resumed.run(resume=True)
    assert same(resumed.model.state_dict(), whole.model.state_dict())


def test_a_run_whose_stored_states_are_gone_and_find_no_room_says_that_its_bits_will_differ(
    make_loop: Callable[..., Loop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**STAGED, "optimise__checkpoint_steps": 2}

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_loop(tmp_path, watch=Diary(at=9, then=stop), **settings).run()
    for states in tmp_path.glob("states-*"):
        shutil.rmtree(states)
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.warns(CacheWarning) as told:
        make_loop(tmp_path, **settings).run(resume=True)
    assert "walked and walked in the place of float16 and float16" in str(told[-1].message)


def test_an_error_of_another_kind_is_not_taken_for_one_of_memory(make_loop: Callable[..., Loop]) -> None:
    with pytest.raises(RuntimeError, match="must match"):
        make_loop(watch=Diary(at=1, then=lambda: torch.ones(2) + torch.ones(3))).run()


def test_after_a_stop_the_model_is_left_as_it_was_found(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    model = make_model(layers=2)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_loop(model=model, watch=Diary(at=2, then=stop)).run()
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not model.encoder.backbone.get_input_embeddings().sparse
