"""What is written is read again, and a killed or resumed run does no harm."""

import json
import math
from dataclasses import asdict, replace

import pytest
from accelerate import Accelerator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offramp.errors import DataError
from offramp.optimise.journal import Journal
from offramp.report.history import History, read_history
from offramp.types import EpochRecord, StepRecord


def step(number, loss=0.5, **fields):
    return StepRecord(step=number, epoch=number / 10, loss=loss, parts={"ce": loss}, lr=1e-5, **fields)


def epoch(number, score=0.9, best=True):
    return EpochRecord(epoch=number, step=10 * number, score=score, metric="accuracy", loss=0.4, best=best)


def to_line(record):
    """A record of finite numbers as it stands in a log."""
    kind = "step" if isinstance(record, StepRecord) else "epoch"
    return json.dumps({"kind": kind, **asdict(record)}, allow_nan=False) + "\n"


@pytest.fixture
def written(tmp_path):
    """Has a run's journal write records into a folder, and returns its log."""

    def write(*records):
        journal = Journal(Accelerator(log_with="tensorboard", project_dir=str(tmp_path)), tmp_path, None)
        journal.open(0)
        for record in records:
            (journal.step if isinstance(record, StepRecord) else journal.epoch)(record)
        journal.close()
        return tmp_path / "log.jsonl"

    return write


def test_what_a_run_wrote_is_read_again(written, make_history):
    history = make_history()
    assert read_history(written(*history.steps, *history.epochs)) == history


def test_a_line_is_strict_json_that_names_its_kind(written):
    log = written(step(3, loss=math.nan, angle=math.inf, cosines={"layer-1": math.nan, "exit-2": -0.5}))
    found = json.loads(log.read_text(), parse_constant=pytest.fail)
    assert (found["kind"], found["step"], found["loss"], found["angle"]) == ("step", 3, None, None)
    assert found["cosines"] == {"layer-1": None, "exit-2": -0.5}


def test_a_number_that_was_not_finite_is_read_as_nan_or_none(written):
    log = written(step(1, loss=math.nan, angle=math.nan, cosines={"layer-1": math.nan, "exit-2": -0.5}))
    (found,) = read_history(log).steps
    assert math.isnan(found.loss)
    assert math.isnan(found.parts["ce"])
    assert found.angle is None
    assert math.isnan(found.cosines["layer-1"])
    assert found.cosines["exit-2"] == -0.5


def test_tensorboard_has_a_curve_for_each_group_of_parameters(written, tmp_path):
    cosines = {"embeddings": -0.25, "exit-2": 0.5}
    written(step(1, angle=80.0, cosines=cosines), step(2, angle=85.0, cosines=cosines))
    (file,) = tmp_path.rglob("events.out.*")
    events = EventAccumulator(str(file)).Reload()
    found = {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert (found["cosine/embeddings"], found["cosine/exit-2"]) == ([-0.25, -0.25], [0.5, 0.5])
    assert found["train/angle"] == [80.0, 85.0]


def test_a_log_from_before_there_were_cosines_is_read(tmp_path):
    fields = {"kind": "step", "step": 1, "epoch": 0.5, "loss": 1.5, "parts": {"ce": 1.5}, "lr": 1e-5, "angle": None}
    (tmp_path / "log.jsonl").write_text(json.dumps(fields) + "\n")
    (found,) = read_history(tmp_path / "log.jsonl").steps
    assert (found.loss, found.cosines) == (1.5, {})


def test_a_log_from_before_there_were_phases_is_one_phase(tmp_path):
    whole = [*(step(n) for n in (1, 2, 3)), epoch(1)]
    lines = [json.loads(to_line(record)) for record in whole]
    older = [{key: value for key, value in line.items() if key not in {"phase", "by_exit"}} for line in lines]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in older))
    found = read_history(tmp_path / "log.jsonl")
    assert found == History(whole[:3], whole[3:])
    assert found.phases == {"": found}
    assert (found.phase, found.apart, found.best) == ("", False, epoch(1))


def test_a_run_of_two_phases_is_read_again_and_taken_apart(written, make_two_phases):
    history = make_two_phases(first=40, second=30)
    found = read_history(written(*history.steps, *history.epochs))
    assert found == history
    assert list(found.phases) == ["single", "exits"]
    first, second = found.phases.values()
    assert [record.step for record in first.steps] == list(range(1, 41))
    assert [record.step for record in second.steps] == list(range(41, 71))
    assert [(record.epoch, record.step) for record in first.epochs] == [(1, 20), (2, 40)]
    assert [(record.epoch, record.step) for record in second.epochs] == [(1, 50), (2, 60), (3, 70)]
    assert (first.phase, second.phase, found.phase) == ("single", "exits", "single")


def test_a_resumed_phase_replaces_its_own_epochs_only(tmp_path):
    first, second = epoch(1, 0.5), replace(epoch(1, 0.7), step=20, phase="exits")
    file = tmp_path / "log.jsonl"
    file.write_text("".join(map(to_line, [first, replace(second, score=0.1), second])))
    assert read_history(file).epochs == [first, second]


def test_an_exits_score_that_was_not_finite_is_read_as_nan(written):
    (found,) = read_history(written(replace(epoch(1), by_exit={"1": math.nan, "2": 0.5}))).epochs
    assert math.isnan(found.by_exit["1"])
    assert found.by_exit["2"] == 0.5


def test_exits_that_learn_apart_share_no_best_epoch(make_two_phases):
    first, second = make_two_phases().phases.values()
    assert first.best == first.epochs[-1]
    assert second.apart
    assert second.best is None


def test_a_missing_or_empty_file_is_an_empty_history(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    assert read_history(tmp_path / "none.jsonl") == read_history(tmp_path / "empty.jsonl") == History()


def test_a_last_line_cut_at_any_byte_is_dropped(tmp_path):
    file = tmp_path / "log.jsonl"
    whole, torn = to_line(step(1)).encode(), to_line(step(2)).encode().rstrip()
    for cut in range(len(torn)):
        file.write_bytes(whole + torn[:cut])
        assert read_history(file).steps == [step(1)]


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text((to_line(step(1)) + to_line(step(2))).rstrip())
    assert read_history(file).steps == [step(1), step(2)]


def test_a_resumed_run_replaces_the_updates_it_repeats(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(map(to_line, [step(1), step(2, loss=9.0), epoch(1, 0.1), step(2), epoch(1), step(3)])))
    assert read_history(file) == History([step(1), step(2), step(3)], [epoch(1)])


@pytest.mark.parametrize("line", ["{torn", '{"kind": "other"}', "[1]", '{"kind": "step", "step": 1}'])
def test_a_damaged_line_inside_is_refused_with_its_number(tmp_path, line):
    file = tmp_path / "log.jsonl"
    file.write_text(to_line(step(1)) + line + "\n" + to_line(step(2)))
    with pytest.raises(DataError, match=r"Line 2 of .*log\.jsonl"):
        read_history(file)


def test_the_best_epoch_is_the_last_that_was_better():
    history = History([], [epoch(1, 0.5), epoch(2, 0.7), epoch(3, 0.6, best=False)])
    assert history.best == epoch(2, 0.7)
    assert History().best is None


def test_the_kept_share_counts_only_updates_where_the_term_was_in_question():
    assert History([step(1), step(2, kept=1.0), step(3, kept=0.5), step(4, kept=0.0)], []).kept_share == 0.5
    assert math.isnan(History([step(1)], []).kept_share)


def test_the_cosines_come_group_by_group_without_those_that_never_were():
    nan = math.nan
    steps = [
        step(1, cosines={"layer-1": nan, "layer-2": nan, "exit-2": 0.5}),
        step(2),
        step(3, cosines={"layer-1": 0.25, "layer-2": nan, "exit-2": nan}),
    ]
    found = History(steps, []).cosines
    assert found == {"layer-1": [(3, 0.25)], "exit-2": [(1, 0.5)]}
    assert list(found) == ["layer-1", "exit-2"]  # the order of the model, not of the first finite number
