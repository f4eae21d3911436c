"""What is said of a claim, on made-up results whose differences are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.study.test_views import record
from tests.study.tiny import CE, SCL, write_study

from offramp.errors import ConfigError
from offramp.study.claims import Verdict, claims_table, judged, tally
from offramp.study.document import as_html, as_markdown, headline
from offramp.study.plan import Run
from offramp.study.results import write
from offramp.study.runner import load_study, plan
from offramp.study.views import Shown

AXIS = {"field": "data.cap", "name": "texts"}


def shown(
    home: Path, claims: list[dict[str, Any]], gain: Any, seeds: int = 6, values: tuple[int, ...] = (), leave: int = 0
) -> Shown:
    """CE at 60 % at every depth, and CE + SCL above it by what `gain` says of a run and a depth, in points."""
    smoke = {"seeds": seeds, **({"values": list(values)} if values else {})}
    study = load_study(
        str(write_study(home / "studies", study={"claims": claims, **({"axis": AXIS} if values else {})}, smoke=smoke))
    )
    runs = plan(study, "smoke")
    for run in runs[: len(runs) - leave]:
        scores = {depth: 0.6 + (gain(run, depth) / 100 if run.variant == "scl" else 0.0) for depth in range(1, 5)}
        found = record(run)
        found["metrics"] |= {"score": scores[4], "by_exit": {str(depth): s for depth, s in scores.items()}}
        share = 0.25 + (gain(run, 4) / 100 if run.variant == "scl" else 0.0)
        found["angles"]["after"]["above"] = share
        write(found, home / "results" / run.place)
    return Shown.of(study, "smoke", home / "results")


def _markdown(studies: list[Shown]) -> list[str]:
    table = claims_table(studies)
    assert table is not None
    return table.markdown().splitlines()


def one(found: Shown) -> Verdict:
    (claim,) = judged([found])
    return claim


def claim(**given: Any) -> dict[str, Any]:
    return {"says": "It is so", "first": "scl", "second": "ce", **given}


def unequal(run: Run, _: int) -> float:
    """Seeds differ, as they do."""
    return 2.0 + 0.1 * run.seed


@pytest.mark.parametrize(
    ("holds", "gain", "verdict"),
    [
        ("above", unequal, "shows"),
        ("above", lambda run, depth: -unequal(run, depth), "the opposite shows"),
        ("above", lambda run, _: (-1) ** run.seed * (1 + run.seed), "does not show"),
        ("not-below", unequal, "not contradicted"),
        ("not-below", lambda run, _: (-1) ** run.seed * (1 + run.seed), "not contradicted"),
        ("not-below", lambda run, depth: -unequal(run, depth), "contradicted"),
    ],
)
def test_a_claim_shows_where_the_pairs_lie_on_its_side_beyond_chance(
    tmp_path: Path, holds: str, gain: Any, verdict: str
) -> None:
    assert one(shown(tmp_path, [claim(holds=holds)], gain)).words == verdict


@pytest.mark.parametrize(("holds", "verdict"), [("above", "the opposite shows"), ("not-below", "contradicted")])
def test_one_large_pair_does_not_turn_a_verdict(tmp_path: Path, holds: str, verdict: str) -> None:
    def gain(run: Run, _: int) -> float:
        return 40.0 if run.seed == 0 else -1.0 - 0.01 * run.seed

    found = one(shown(tmp_path, [claim(holds=holds)], gain, seeds=12))
    assert found.found.difference > 0
    assert found.words == verdict


def test_the_interval_is_students_and_the_number_the_mean_of_the_pairs(tmp_path: Path) -> None:
    found = one(shown(tmp_path, [claim()], unequal))
    assert found.numbers == pytest.approx([2.0, 2.1, 2.2, 2.3, 2.4, 2.5])
    assert found.found.difference == pytest.approx(2.25)
    assert found.interval == pytest.approx((2.25 - 0.19633, 2.25 + 0.19633), abs=1e-4)  # 2.5706 * 0.18708 / sqrt(6)


def test_few_pairs_are_told_and_prove_nothing(tmp_path: Path) -> None:
    found = one(shown(tmp_path, [claim()], unequal, seeds=5))
    assert (found.words, found.found.corrected) == ("too few pairs to tell", None)
    assert found.row().cells[-1].shown == "–"


@pytest.mark.parametrize(
    ("holds", "step", "verdict"),
    [("rising", 1, "shows"), ("falling", 1, "the opposite shows"), ("falling", -1, "shows")],
)
def test_a_trend_along_values_is_the_slope_of_each_sweep(tmp_path: Path, holds: str, step: int, verdict: str) -> None:
    def gain(run: Run, _: int) -> float:
        place = (8, 16, 64).index(int(run.value or 0))
        return 1 + step * place * (1 + 0.1 * run.seed)

    found = one(shown(tmp_path, [claim(holds=holds)], gain, values=(8, 16, 64)))
    assert found.numbers == pytest.approx([step * (1 + 0.1 * seed) for seed in range(6)])  # a slope per seed, no more
    assert found.words == verdict
    assert "a step" in found.row().cells[2].shown


def test_a_trend_along_depths_is_the_slope_of_each_run(tmp_path: Path) -> None:
    found = one(
        shown(tmp_path, [claim(holds="falling", along="depths")], lambda run, depth: 9 - depth * (1 + run.seed))
    )
    assert found.numbers == pytest.approx([-1.0 - seed for seed in range(6)])
    assert found.words == "shows"


def test_the_exit_of_a_claim_goes_before_that_of_the_study(tmp_path: Path) -> None:
    def gain(run: Run, depth: int) -> float:
        return depth * (1 + 0.1 * run.seed)

    assert one(shown(tmp_path / "a", [claim(exit="mean")], gain)).numbers[0] == pytest.approx(2.5)
    assert one(shown(tmp_path / "b", [claim(exit="last")], gain)).numbers[0] == pytest.approx(4.0)
    assert one(shown(tmp_path / "c", [claim(exit=1)], gain)).numbers[0] == pytest.approx(1.0)


def test_the_values_of_a_seed_are_one_pair(tmp_path: Path) -> None:
    """They share most of their texts: three seeds stay three, however many values they went through."""

    def gain(run: Run, _: int) -> float:
        return 1.0 + run.seed + (2.0 if run.value == 16 else 0.0)

    found = one(shown(tmp_path, [claim()], gain, seeds=3, values=(8, 16)))
    assert found.numbers == pytest.approx([2.0, 3.0, 4.0])
    assert found.words == "too few pairs to tell"
    assert found.shown.comparisons["scl"].pairs == 3


def test_another_measure_is_how_many_batches_conflict(tmp_path: Path) -> None:
    conflicts = one(shown(tmp_path, [claim(measure="conflicts")], unequal))
    assert conflicts.numbers == pytest.approx([2.0, 2.1, 2.2, 2.3, 2.4, 2.5])


def test_a_study_says_the_same_of_its_claims_wherever_it_stands(tmp_path: Path) -> None:
    alone = shown(tmp_path / "a", [claim()], unequal)
    both = judged([alone, shown(tmp_path / "b", [claim()], unequal)])
    assert [each.found.corrected for each in both] == pytest.approx([1 / 32, 1 / 32])
    assert [each.words for each in (one(alone), *both)] == ["shows"] * 3


def test_what_stands_among_all_claims_shows_clearly(tmp_path: Path) -> None:
    many = [shown(tmp_path / name, [claim()], unequal, seeds=seeds) for name, seeds in (("a", 6), ("b", 12))]
    found = judged(many)
    assert [each.among_all for each in found] == pytest.approx([1 / 32, 2 / 2**11])
    assert [each.words for each in found] == ["shows clearly", "shows clearly"]
    more = judged([*many, shown(tmp_path / "c", [claim()], lambda run, _: (-1) ** run.seed * (1 + run.seed))])
    assert [each.words for each in more] == ["shows", "shows clearly", "does not show"]
    counts = "shows 2 (1 clearly), does not show 1"
    assert tally(more) == f"Of 3 claims, by what our runs say of them: {counts}."
    assert headline(more[0].shown, more[:1]) == "It is so: shows, +2.2"


def test_the_claims_of_a_study_are_corrected_together(tmp_path: Path) -> None:
    found = judged([shown(tmp_path, [claim(), claim(says="So it is")], unequal, seeds=8)])
    assert [each.found.corrected for each in found] == pytest.approx([2 / 2**7] * 2)
    assert [each.words for each in found] == ["shows", "shows"]


def test_pairs_that_could_not_show_anything_among_so_many_claims_are_too_few(tmp_path: Path) -> None:
    """Six pairs on one side have p = 1/32: enough alone, never enough beside a second claim."""
    found = judged([shown(tmp_path, [claim(), claim(says="So it is", holds="not-below")], unequal, seeds=6)])
    assert [each.words for each in found] == ["too few pairs to tell", "too few pairs to tell"]


def test_missing_runs_are_told_and_a_claim_without_pairs_is_left_out(tmp_path: Path) -> None:
    found = one(shown(tmp_path / "a", [claim()], unequal, leave=1))
    assert found.row().cells[3].shown == "5, not all made"
    assert claims_table([shown(tmp_path / "b", [claim()], unequal, leave=11)]) is None
    assert claims_table([shown(tmp_path / "c", [], unequal)]) is None


def test_the_table_of_a_study_tells_its_claims(tmp_path: Path) -> None:
    found = shown(tmp_path, [claim()], unequal)
    line = "| ACL Table 9 | It is so | shows | +2.2 (+2.1 to +2.4) | 6 | 0.031 |"
    beside = shown(tmp_path / "b", [claim()], unequal)
    assert f"{line} 0.062 |" in _markdown([found, beside])
    assert line in as_markdown(found).splitlines()
    assert "It is so" not in as_markdown(found, claims=False)
    assert "It is so" in as_html(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first": "nobody"}, "nobody"),
        ({"holds": "sideways"}, "sideways"),
        ({"along": "rivers"}, "rivers"),
        ({"measure": "luck"}, "luck"),
        ({"exit": "none"}, "none"),
        ({"sure": "yes"}, "sure"),
        ({"says": 3}, "should be a text"),
    ],
)
def test_a_claim_that_cannot_be_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    folder = write_study(tmp_path, study={"claims": [claim(**given)]}, ce=CE, scl=SCL)
    with pytest.raises(ConfigError, match=message):
        load_study(str(folder))
