"""Processes that train together have the losses, the gradients and the weights of one."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from accelerate.state import AcceleratorState, PartialState
from torch import Tensor

from offramp.data.tokens import Tokens
from offramp.data.views import Views
from offramp.errors import Interrupted, TrainingError
from offramp.exits.model import MultiExitModel
from offramp.objectives import OBJECTIVES, objective
from offramp.optimise import processes
from offramp.optimise.alignment import Rule
from offramp.optimise.exit_gradients import APART
from offramp.optimise.grad_cache import CACHED
from offramp.optimise.gradients import SCOPES, Measured, Scene
from offramp.optimise.journal import Watch
from offramp.optimise.loop import Loop
from offramp.optimise.state_cache import Frozen
from offramp.optimise.strategies import Phase, groups, plan

TEXTS, MICRO = 11, 2
OF_SETS = ("ce", "scl", "acl", "acl-cl", "distill")
"""The objectives that take sets of labels."""

Left = dict[str, Tensor]
Found = dict[str, tuple[Measured, Left]]


def _process(number: int, count: int, meeting: str, out: str, part: Callable[[], Any]) -> None:
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(count), "LOCAL_RANK": str(number)}
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=count)
    try:
        Path(out, str(number)).write_bytes(pickle.dumps(part()))
    finally:
        processes.end()


@pytest.fixture
def together(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a function in so many processes and returns what each returned."""
    started = 0

    def run(part: Callable[[], Any], count: int = 2) -> list[Any]:
        nonlocal started
        started += 1
        home = tmp_path / f"processes-{started}"
        home.mkdir()
        arguments = (count, str(home / "meeting"), str(home), part)
        # Forked, so that the test's own functions are there.
        torch.multiprocessing.start_processes(_process, arguments, count, start_method="fork")
        return [pickle.loads((home / str(number)).read_bytes()) for number in range(count)]

    # A process that trained before has met nobody: the forked ones would believe that of themselves.
    AcceleratorState._reset_state()
    PartialState._reset_state()
    return run


@pytest.fixture
def model(make_model: Callable[..., MultiExitModel]) -> MultiExitModel:
    return make_model(layers=3).double()  # without dropout


def taken(model: MultiExitModel) -> Left:
    """The gradients left behind, over all processes; they are taken away."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    if dist.is_initialized():
        shared = processes.mean(list(found.values()))
        found = {name: gradient for name, gradient in zip(found, shared, strict=True) if gradient is not None}
    return found


def assert_alike(found: tuple[Measured, Left], wanted: tuple[Measured, Left], name: str) -> None:
    assert found[0].loss == pytest.approx(wanted[0].loss, rel=1e-9), name
    assert found[0].parts == pytest.approx(wanted[0].parts, rel=1e-9), name
    assert len(found[0].angles) == len(wanted[0].angles)
    for mine, other in zip(found[0].angles, wanted[0].angles, strict=True):
        assert mine.kept == other.kept
        assert mine.degrees == pytest.approx(other.degrees, rel=1e-9, nan_ok=True)
        if not OBJECTIVES[name].taught:  # the teacher's distance to itself has rounding for a gradient
            assert mine.cosines == pytest.approx(other.cosines, rel=1e-8, nan_ok=True)
    assert found[1].keys() == wanted[1].keys()
    for parameter, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][parameter], gradient, rtol=1e-9, atol=1e-11, msg=f"{name} {parameter}")


def steps(
    model: MultiExitModel,
    tokens: Tokens,
    scope: str,
    cached: bool,
    rule: Rule,
    texts: int,
    names: Collection[str] = OBJECTIVES.keys(),
) -> Found:
    """What a step of every objective measures and leaves, by two exits of which the last teaches."""
    found: Found = {}
    for name in names:
        views = Views(("dropout", "dropout")) if OBJECTIVES[name].views > 1 else None
        phase = Phase("both", (3, 1), tuple(model.parameters()), groups(model, model.parameters()))
        made = objective(name, temperature=0.5, weight=0.3, heads=2)
        scene = Scene(model, made, phase, rule, views=views)
        rows = list(range(texts))
        if dist.is_initialized():
            rows, counts = processes.divided(rows)
            scene = replace(scene, counts=counts)
        if cached:
            batches = [tokens.batch(rows[start : start + MICRO]) for start in range(0, len(rows), MICRO)]
            # As in the loop: what fits into one batch needs no cache, in this process and perhaps not in another.
            measured = CACHED[scope](scene, batches) if len(batches) > 1 else SCOPES[scope](scene, batches[0])
        else:
            measured = SCOPES[scope](scene, tokens.batch(rows))
        found[name] = (measured, taken(model))
    return found


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "gradient-cache"])
@pytest.mark.parametrize("scope", SCOPES)
def test_every_objective_has_the_losses_and_gradients_of_one_process(
    model: MultiExitModel, toy_tokens: Callable[..., Tokens], together: Any, scope: str, cached: bool
) -> None:
    """Also where the texts do not divide evenly, where one process needs the cache alone, and where one has no text."""
    tokens = toy_tokens(TEXTS)
    count = 3 if scope == "exit" else 2

    def every() -> list[Found]:
        return [
            steps(model, tokens, scope, cached, Rule(90.0), texts) for texts in (TEXTS, count * MICRO + 1, count - 1)
        ]

    wanted = every()
    for found in together(every, count):
        for here, one in zip(found, wanted, strict=True):
            assert here.keys() == one.keys() == OBJECTIVES.keys()
            for name in one:
                assert_alike(here[name], one[name], name)


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "gradient-cache"])
@pytest.mark.parametrize("scope", SCOPES)
def test_sets_of_labels_have_the_losses_and_gradients_of_one_process(
    model: MultiExitModel, toy_tokens: Callable[..., Tokens], together: Any, scope: str, cached: bool
) -> None:
    tokens = toy_tokens(TEXTS)
    draw = torch.Generator().manual_seed(0)
    sets = torch.randint(2, (TEXTS, len(model.config.labels)), generator=draw)  # the empty set too
    tokens = replace(tokens, labels=sets.numpy())

    def every() -> list[Found]:
        return [steps(model, tokens, scope, cached, Rule(90.0), texts, OF_SETS) for texts in (TEXTS, 1)]

    wanted = every()
    for found in together(every):
        for here, one in zip(found, wanted, strict=True):
            for name in OF_SETS:
                assert_alike(here[name], one[name], name)


@pytest.mark.parametrize("threshold", [0.0, 180.0])
@pytest.mark.parametrize("scope", ["exact", "exit"])
def test_processes_drop_and_keep_as_one_does(
    model: MultiExitModel, toy_tokens: Callable[..., Tokens], together: Any, scope: str, threshold: float
) -> None:
    given = (model, toy_tokens(TEXTS), scope, False, Rule(threshold), TEXTS)
    wanted = steps(*given)
    assert {angle.kept for measured, _ in wanted.values() for angle in measured.angles} == {threshold > 90}
    for found in together(lambda: steps(*given)):
        assert_alike(found["acl"], wanted["acl"], "acl")


@pytest.mark.parametrize("scope", APART)
def test_exits_on_a_backbone_that_stands_still_learn_as_in_one_process(
    model: MultiExitModel, toy_tokens: Callable[..., Tokens], together: Any, scope: str
) -> None:
    tokens = toy_tokens(TEXTS)

    def step() -> Found:
        phase = plan("two-stage", model)[1]
        found: Found = {}
        for name, kind in OBJECTIVES.items():
            if kind.views > 1:
                continue
            scene = Scene(model, objective(name, temperature=0.5, weight=0.3, heads=2), phase)
            rows = list(range(TEXTS))
            if dist.is_initialized():
                rows, counts = processes.divided(rows)
                scene = replace(scene, counts=counts)
            lesson = Frozen(model, tokens, phase.exits, scene.autocast).lesson(rows)
            found[name] = (APART[scope](scene, lesson), taken(model))
        return found

    wanted = step()
    for found in together(step):
        for name in wanted:
            assert_alike(found[name], wanted[name], name)


# Whole runs.

SETTINGS = [
    {"objective__name": "acl", "alignment__scope": "exact"},
    {"objective__name": "scl", "alignment__scope": "exit", "optimise__contrast_batch": 24},
    {"objective__name": "acl", "optimise__strategy": "two-stage", "stage2__objective": "acl-cl"},
    {"objective__name": "ce", "optimise__strategy": "alternating", "optimise__accumulation": 2},
    {"objective__name": "ce", "optimise__strategy": "joint", "data__sampler": "balanced"},
]
RUN = {
    "train": 45,
    "validation": 20,
    "optimise__batch_size": 8,
    "stage2__epochs": 2,
    "stage2__least_updates": 0,
    "stage2__batch_size": 8,
    "stage2__cache_gb": 0,  # whose half precision a run in double precision would notice
}


@pytest.fixture
def still(make_model: Callable[..., MultiExitModel]) -> Callable[[], MultiExitModel]:
    """Makes a model without dropout, in double precision: AdamW would make rounding large."""

    def make() -> MultiExitModel:
        model = make_model(layers=2, exit_dropout=0.0).double()
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        return model

    return make


def ended(loop: Loop) -> tuple[dict[str, Tensor], Any]:
    result = loop.run()
    return loop.model.state_dict(), replace(result, seconds=0.0)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['objective__name']}-{len(s)}")
def test_a_run_of_two_processes_ends_as_a_run_of_one(
    make_loop: Callable[..., Loop],
    still: Callable[[], MultiExitModel],
    together: Any,
    tmp_path: Path,
    settings: dict[str, Any],
) -> None:
    wanted, result = ended(make_loop(tmp_path / "one", still(), **RUN, **settings))

    def part() -> Any:
        folder = tmp_path / "two" if processes.rank() == 0 else None
        return ended(make_loop(folder, still(), **RUN, **settings))

    first, second = together(part)
    for name, tensor in wanted.items():
        torch.testing.assert_close(first[0][name], tensor, rtol=1e-6, atol=1e-8)
        assert torch.equal(first[0][name], second[0][name]), name
    assert first[1].by_exit.keys() == result.by_exit.keys()
    assert first[1] == second[1]
    assert len((tmp_path / "two" / "log.jsonl").read_text().splitlines()) == len(
        (tmp_path / "one" / "log.jsonl").read_text().splitlines()
    )


class StopsAt(Watch):
    """Asks the first process to stop at an update, as a signal would."""

    def __init__(self, update: int) -> None:
        self.update, self.loop = update, None

    def step(self, record: Any) -> None:
        if record.step == self.update and self.loop is not None:
            self.loop.stop.signal = 15


@pytest.mark.parametrize("update", [4, 9, 16])
def test_a_stopped_run_of_two_processes_goes_on_to_the_same_bits(
    make_loop: Callable[..., Loop], together: Any, tmp_path: Path, update: int
) -> None:
    settings = {**RUN, "objective__name": "acl", "optimise__strategy": "two-stage", "stage2__cache_gb": 1}

    def stopped() -> str:
        watch = StopsAt(update)
        first = processes.rank() == 0
        loop = make_loop(tmp_path / "stopped" if first else None, watch=watch if first else None, **settings)
        watch.loop = loop
        with pytest.raises(Interrupted):
            loop.run()
        return "stopped"

    def resumed() -> dict[str, Tensor]:
        loop = make_loop(tmp_path / "stopped" if processes.rank() == 0 else None, **settings)
        loop.run(resume=True)
        return loop.model.state_dict()

    def whole() -> dict[str, Tensor]:
        loop = make_loop(tmp_path / "whole" if processes.rank() == 0 else None, **settings)
        loop.run()
        return loop.model.state_dict()

    wanted, _ = together(whole)
    assert together(stopped) == ["stopped", "stopped"]
    for found in together(resumed):
        assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


@pytest.mark.parametrize("hearing", [[0], [0, 1]])
def test_a_signal_that_comes_while_the_processes_agree_stops_them_an_update_later(
    make_loop: Callable[..., Loop], together: Any, monkeypatch: pytest.MonkeyPatch, hearing: list[int]
) -> None:
    def stopped() -> int:
        loop = make_loop(None, **RUN)
        agree, rounds = processes.largest, 0

        def interrupted(value: int, device: torch.device) -> int:
            nonlocal rounds
            found, rounds = agree(value, device), rounds + 1
            if rounds == 3 and processes.rank() in hearing:
                loop.stop.signal = 15
            return found

        monkeypatch.setattr(processes, "largest", interrupted)
        with pytest.raises(Interrupted):
            loop.run()
        return loop.place.update

    assert together(stopped) == [4, 4]


def test_a_run_does_not_go_on_with_another_number_of_processes(
    make_loop: Callable[..., Loop], together: Any, tmp_path: Path
) -> None:
    watch = StopsAt(3)
    loop = make_loop(tmp_path / "run", watch=watch, **RUN)
    watch.loop = loop
    with pytest.raises(Interrupted):
        loop.run()

    def resumed() -> str:
        again = make_loop(tmp_path / "run" if processes.rank() == 0 else None, **RUN)
        with pytest.raises(TrainingError, match="began with 1, found 2"):
            again.run(resume=True)
        return "refused"

    assert together(resumed) == ["refused", "refused"]
