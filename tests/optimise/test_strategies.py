"""The strategies are plans for the one loop: who learns, from whom, and what stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.errors import ConfigError
from offramp.exits.model import MultiExitModel
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop, TurnWarning
from offramp.optimise.strategies import STRATEGIES, plan
from offramp.types import EpochRecord, StepRecord

LAYERS = 3
QUICK = {
    "optimise__epochs": 2,
    "stage2__epochs": 3,
    "stage2__batch_size": 16,
    "stage2__lr": 1e-2,
    "stage2__least_updates": 0,
}


class Diary(Watch):
    """Whoever watches, and remembers the weights after each update."""

    def __init__(self, model: MultiExitModel) -> None:
        self.model = model
        self.before = {name: t.clone() for name, t in model.state_dict().items()}
        self.moved: list[set[str]] = []  # parts that an update changed
        self.weights: list[dict[str, torch.Tensor]] = []  # after each epoch
        self.epochs: list[EpochRecord] = []
        self.steps: list[StepRecord] = []
        self.modes: list[dict[str, bool]] = []

    def step(self, record: StepRecord) -> None:
        now = {name: t.clone() for name, t in self.model.state_dict().items()}
        self.moved.append({part(name) for name, t in now.items() if not torch.equal(t, self.before[name])})
        self.before = now
        self.steps.append(record)
        parts = {"encoder": self.model.encoder} | {f"exit-{d}": e for d, e in enumerate(self.model.exits, 1)}
        self.modes.append({name: module.training for name, module in parts.items()})

    def epoch(self, record: EpochRecord) -> None:
        self.weights.append({name: t.clone() for name, t in self.model.state_dict().items()})
        self.epochs.append(record)


def part(name: str) -> str:
    return f"exit-{int(name.split('.')[1]) + 1}" if name.startswith("exits.") else "encoder"


@pytest.fixture
def run(make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]) -> Callable[..., tuple[Loop, Diary]]:
    def run(strategy: str, **settings: Any) -> tuple[Loop, Diary]:
        model = make_model(layers=LAYERS)
        diary = Diary(model)
        loop = make_loop(model=model, watch=diary, optimise__strategy=strategy, **{**QUICK, **settings})
        loop.result = loop.run()  # type: ignore[attr-defined]
        return loop, diary

    return run


def test_an_unknown_strategy_gets_the_near_names(make_model: Callable[..., MultiExitModel]) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'joint'"):
        plan("join", make_model(layers=1))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_trains_the_exits_it_says(run: Callable[..., Any], strategy: str) -> None:
    loop, diary = run(strategy)
    wanted = [LAYERS] if strategy == "single" else [1, 2, 3]
    assert loop.model.config.trained_exits == wanted
    assert list(loop.result.by_exit) == [str(depth) for depth in wanted]
    untrained = {f"exit-{depth}" for depth in range(1, LAYERS + 1) if depth not in wanted}
    standing = {"encoder", "exit-3"} if strategy == "grow" else set()  # have learnt before
    assert set().union(*diary.moved) == {"encoder", "exit-1", "exit-2", "exit-3"} - untrained - standing


# Two stages.


def test_after_the_second_stage_backbone_and_last_exit_are_the_firsts_to_the_bit(run: Callable[..., Any]) -> None:
    first, _ = run("single")
    second, _ = run("two-stage")
    before, after = first.model.state_dict(), second.model.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {part(name) for name in same} >= {"encoder", "exit-3"}
    assert all(part(name) in ("exit-1", "exit-2") for name in set(before) - same)
    assert {part(name) for name in set(before) - same} == {"exit-1", "exit-2"}


def test_in_the_second_stage_the_backbone_and_the_teacher_do_not_drop_out(run: Callable[..., Any]) -> None:
    _, diary = run("two-stage")
    modes = {record.phase: mode for record, mode in zip(diary.steps, diary.modes, strict=True)}
    assert modes["single"]["encoder"]
    assert modes["exits"] == {"encoder": False, "exit-1": True, "exit-2": True, "exit-3": False}


def test_each_exit_keeps_its_own_best_epoch(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    # Validation asks for the last exit once, and then for both others in each of three epochs.
    scores = iter([0.5, 0.1, 0.9, 0.8, 0.2, 0.3, 0.4])
    model = make_model(layers=LAYERS)
    diary = Diary(model)
    settings = {**QUICK, "optimise__epochs": 1, "optimise__strategy": "two-stage"}
    result = make_loop(model=model, watch=diary, score=lambda *_: next(scores), **settings).run()
    assert result.by_exit == {"1": 0.8, "2": 0.9, "3": 0.5}
    for depth, epoch in ((1, 2), (2, 1)):
        kept = {name: t for name, t in model.state_dict().items() if part(name) == f"exit-{depth}"}
        assert all(torch.equal(t, diary.weights[epoch][name]) for name, t in kept.items())


@pytest.mark.parametrize(
    ("objective", "scope"),
    [("ce", "none"), *((name, s) for name in ("scl", "acl", "acl-cl", "distill") for s in ("none", "exact"))],
)
def test_the_second_stage_takes_any_objective(run: Callable[..., Any], objective: str, scope: str) -> None:
    _, diary = run("two-stage", stage2__objective=objective, stage2__scope=scope, stage2__epochs=1)
    last = diary.steps[-1]
    assert last.phase == "exits"
    assert (last.angle is not None) == (scope == "exact")
    assert set(last.cosines) == ({"exit-1", "exit-2"} if scope == "exact" else set())


@pytest.mark.parametrize(("least", "epochs"), [(0, 3), (9, 3), (10, 4), (20, 7)])
def test_from_few_texts_the_second_stage_has_more_epochs(run: Callable[..., Any], least: int, epochs: int) -> None:
    """48 texts in batches of 16 make 3 updates per epoch."""
    _, diary = run("two-stage", stage2__least_updates=least)
    assert [record.epoch for record in diary.epochs if record.phase == "exits"] == list(range(1, epochs + 1))


@pytest.mark.parametrize(("wanted", "least", "updates"), [(0, 0, 9), (2, 0, 6), (1, 0, 3), (1, 5, 5), (9, 0, 9)])
def test_the_second_stage_has_about_as_many_updates_in_an_epoch_as_are_wanted(
    run: Callable[..., Any], wanted: int, least: int, updates: int
) -> None:
    """48 texts in batches of 16, three epochs; of three batches two make an update and one is left for another."""
    _, diary = run("two-stage", stage2__updates_per_epoch=wanted, stage2__least_updates=least)
    assert sum(record.phase == "exits" for record in diary.steps) == updates


def test_states_from_disk_and_states_walked_anew_train_alike(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel]
) -> None:
    found = []
    for budget in (20.0, 0.0):
        model = make_model(layers=LAYERS)
        settings = {**QUICK, "optimise__strategy": "two-stage", "stage2__cache_gb": budget, "exits__dropout": 0.0}
        make_loop(model=model, **settings).run()
        found.append(model.state_dict())
    worst = max(float((found[0][name] - found[1][name]).abs().max()) for name in found[0])
    assert 0.0 < worst < 5e-3  # half precision, and not the same numbers by chance


def test_the_states_leave_the_disk_when_the_run_is_done_unless_they_are_to_stay(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    for keep in (False, True):
        folder = tmp_path / str(keep)
        settings = {**QUICK, "optimise__strategy": "two-stage", "stage2__keep_cache": str(keep).lower()}
        make_loop(model=make_model(layers=LAYERS), folder=folder, **settings).run()
        assert len(list(folder.glob("states-*"))) == (2 if keep else 0)
        assert not list(folder.glob(".*"))


def test_a_model_of_one_layer_has_one_stage(make_model: Callable[..., MultiExitModel]) -> None:
    assert [phase.name for phase in plan("two-stage", make_model(layers=1))] == ["single"]


# All at once, and in turn.


@pytest.mark.parametrize(("unit", "turns"), [("epoch", [1, 1, 1, 3, 3, 3]), ("step", [1, 3, 1, 3, 1, 3])])
def test_the_last_exit_and_all_exits_take_turns(run: Callable[..., Any], unit: str, turns: list[int]) -> None:
    _, diary = run("alternating", optimise__unit=unit, optimise__weight_decay=0.0)
    assert [len(moved - {"encoder"}) for moved in diary.moved] == turns
    assert all({"encoder", "exit-3"} <= moved for moved in diary.moved)


def test_exits_that_have_not_had_their_turn_are_not_kept(make_loop: Callable[..., Loop]) -> None:
    """The first epoch is the last exit's alone: the exits below are as they were drawn."""
    alternating = {"optimise__strategy": "alternating", "optimise__unit": "epoch", "optimise__epochs": 3}
    scores = iter([0.9, 0.9, 0.2, 0.2, 0.1, 0.1])
    result = make_loop(score=lambda *_: next(scores), **alternating).run()
    assert (result.best_epoch, result.score) == (2, 0.2)
    once = {**alternating, "optimise__unit": "step", "optimise__epochs": 1, "optimise__batch_size": 24}
    assert make_loop(**once).run().by_exit.keys() == {"1", "2"}  # two updates


@pytest.mark.parametrize("weights", ["equal", "depth"])
@pytest.mark.parametrize(("unit", "size"), [("epoch", 16), ("step", 48)])
def test_exits_that_come_to_no_turn_are_told_of_and_do_not_count_as_trained(
    make_loop: Callable[..., Loop], unit: str, size: int, weights: str
) -> None:
    once = {"optimise__strategy": "alternating", "optimise__epochs": 1, "optimise__depth_weights": weights}
    loop = make_loop(**once, optimise__unit=unit, optimise__batch_size=size)
    with pytest.warns(TurnWarning, match="1 of 2 exits take no turn before the run ends, .*: raise optimise.epochs"):
        result = loop.run()
    assert loop.model.config.trained_exits == [2]
    assert result.by_exit.keys() == {"2"}


def test_joint_training_sums_the_losses_and_depth_may_weigh_them(
    make_loop: Callable[..., Loop], make_model: Callable[..., MultiExitModel], run: Callable[..., Any]
) -> None:
    losses = {}
    for weights in ("equal", "depth"):
        _, diary = run("joint", optimise__depth_weights=weights, objective__name="ce")
        losses[weights] = diary.steps[0].loss
    model = make_model(layers=LAYERS)
    (phase,) = plan("joint", model, make_loop(model=model, optimise__depth_weights="depth").config.optimise)
    assert phase.weights == (0.5, 1.0, 1.5)
    (turns,) = plan("alternating", model, make_loop(model=model, optimise__depth_weights="depth").config.optimise)
    assert [turns.turn(epoch, 0).weights for epoch in (0, 1)] == [(1.0,), (0.5, 1.0, 1.5)]
    assert losses["equal"] == pytest.approx(3 * 1.0986, rel=0.3)  # three exits that know nothing of three classes
    assert losses["depth"] != losses["equal"]


def test_a_joint_run_is_judged_by_the_mean_of_its_exits(make_loop: Callable[..., Loop]) -> None:
    scores = iter([0.1, 0.5, 0.9, 0.2])
    settings = {"optimise__strategy": "joint", "optimise__epochs": 2}
    result = make_loop(score=lambda *_: next(scores), **settings).run()
    assert (result.best_epoch, result.score) == (2, pytest.approx(0.55))
    assert result.by_exit == {"1": 0.9, "2": 0.2}
