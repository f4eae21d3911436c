"""What is written is read again, and a killed or resumed run does no harm."""

import json
import math

import pytest

from offramp.errors import DataError
from offramp.report.history import History, read_history, to_line
from offramp.types import EpochRecord, StepRecord


def step(number, loss=0.5, **fields):
    return StepRecord(step=number, epoch=number / 10, loss=loss, parts={"ce": loss}, lr=1e-5, **fields)


def epoch(number, score=0.9, best=True):
    return EpochRecord(epoch=number, step=10 * number, score=score, metric="accuracy", loss=0.4, best=best)


def test_what_was_written_is_read_again(tmp_path, make_history):
    history = make_history()
    file = tmp_path / "log.jsonl"
    file.write_text("".join(map(to_line, [*history.steps, *history.epochs])))
    assert read_history(file) == history


def test_a_line_is_strict_json_that_names_its_kind():
    found = json.loads(to_line(step(3, loss=math.nan, angle=math.inf)), parse_constant=pytest.fail)
    assert (found["kind"], found["step"], found["loss"], found["angle"]) == ("step", 3, None, None)


def test_a_number_that_was_not_finite_is_read_as_nan_or_none(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(to_line(step(1, loss=math.nan, angle=math.nan)))
    (found,) = read_history(file).steps
    assert math.isnan(found.loss)
    assert math.isnan(found.parts["ce"])
    assert found.angle is None


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
