"""What is said of a claim, on made-up results whose differences are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_views import record
from tests.study.tiny import CE, SCL, write_study

from offramp.errors import ConfigError
from offramp.study.claims import Verdict, claims_table, judged, tally
from offramp.study.digest import digest
from offramp.study.document import as_html, as_markdown
from offramp.study.plan import Run
from offramp.study.results import write
from offramp.study.runner import load_study, plan
from offramp.study.views import Shown

AXIS = {"field": "data.cap", "name": "texts"}


def shown(
    home: Path,
    claims: list[dict[str, Any]],
    gain: Any,
    seeds: int = 6,
    values: tuple[int, ...] = (),
    leave: int = 0,
    mcc: Any = None,
    **given: Any,
) -> Shown:
    """CE at 60 % at every depth, and CE + SCL above it by what `gain` says of a run and a depth, in points.

    `mcc` is the correlation of the answers with the truth, or tells it of a run; `given` is what else the study has.
    """
    smoke = {"seeds": seeds, **({"values": list(values)} if values else {}), **given.pop("smoke", {})}
    study = load_study(
        str(
            write_study(
                home / "studies",
                study={"claims": claims, **({"axis": AXIS} if values else {}), **given.pop("study", {})},
                smoke=smoke,
                **given,
            )
        )
    )
    runs = plan(study, "smoke")
    for run in runs[: len(runs) - leave]:
        scores = {depth: 0.6 + (gain(run, depth) / 100 if run.variant == "scl" else 0.0) for depth in range(1, 5)}
        found = record(run)
        found["metrics"] |= {"score": scores[4], "by_exit": {str(depth): s for depth, s in scores.items()}}
        found["metrics"] |= {} if mcc is None else {"mcc": mcc(run) if callable(mcc) else mcc}
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
    side = step if holds == "rising" else -step  # above 0 where the claim says so
    assert found.numbers == pytest.approx([side * (1 + 0.1 * seed) for seed in range(6)])  # a slope per seed, no more
    assert found.words == verdict
    assert "a step" in found.row().cells[2].shown


def test_a_trend_along_depths_is_the_slope_of_each_run(tmp_path: Path) -> None:
    found = one(
        shown(tmp_path, [claim(holds="falling", along="depths")], lambda run, depth: 9 - depth * (1 + run.seed))
    )
    assert found.numbers == pytest.approx([1.0 + seed for seed in range(6)])
    assert found.words == "shows"


def test_the_exit_of_a_claim_goes_before_that_of_the_study(tmp_path: Path) -> None:
    def gain(run: Run, depth: int) -> float:
        return depth * (1 + 0.1 * run.seed)

    assert one(shown(tmp_path / "a", [claim(exit="mean")], gain)).numbers[0] == pytest.approx(2.5)
    assert one(shown(tmp_path / "b", [claim(exit="last")], gain)).numbers[0] == pytest.approx(4.0)
    assert one(shown(tmp_path / "c", [claim(exit=1)], gain)).numbers[0] == pytest.approx(1.0)


def test_a_gain_may_be_asked_beyond_that_in_another_metric(tmp_path: Path) -> None:
    columns = {"metric": ["minor_f1", "major_f1"]}
    found = shown(tmp_path, [claim(metric="minor_f1", beyond="major_f1")], unequal, study=columns)
    for each in found.results:
        if each.run.variant == "scl":
            each.record["metrics"]["minor_f1"] += 0.05 + 0.01 * each.run.seed
            each.record["metrics"]["major_f1"] += 0.02
    assert one(found).numbers == pytest.approx([3.0, 4.0, 5.0, 6.0, 7.0, 8.0])


def test_the_values_of_a_seed_are_one_pair(tmp_path: Path) -> None:
    """They share most of their texts: three seeds stay three, however many values they went through."""

    def gain(run: Run, _: int) -> float:
        return 1.0 + run.seed + (2.0 if run.value == 16 else 0.0)

    found = one(shown(tmp_path, [claim()], gain, seeds=3, values=(8, 16)))
    assert found.numbers == pytest.approx([2.0, 3.0, 4.0])
    assert found.words == "too few pairs to tell"
    assert found.shown.comparisons["scl"].pairs == 3


def test_how_much_the_values_matter_is_how_far_the_scores_of_each_reach(tmp_path: Path) -> None:
    def gain(run: Run, _: int) -> float:
        return {8: 0.0, 16: 4.0 + run.seed, 64: -1.0}[int(run.value or 0)]

    found = one(shown(tmp_path, [claim(measure="range")], gain, values=(8, 16, 64)))
    assert found.numbers == pytest.approx([5.0 + seed for seed in range(6)])  # CE's reach over no points
    assert found.words == "shows"
    assert found.row().cells[2].shown.startswith("+7.5 (")


def test_what_a_study_of_a_paper_asks_besides_is_our_own(tmp_path: Path) -> None:
    found = judged([shown(tmp_path, [claim(), claim(says="So it is", own=True)], unequal, seeds=8)])
    assert [each.row().label for each in found] == ["ACL Table 9", "tiny"]
    assert tally(found) == (
        "Of 1 claims of the papers, by what our runs say of them: shows 1. "
        "Of 1 claims of our own, by what our runs say of them: shows 1."
    )


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
    assert tally(more) == f"Of 3 claims of the papers, by what our runs say of them: {counts}."


def test_what_became_of_the_claims_is_told_paper_by_paper(tmp_path: Path) -> None:
    def mixed(run: Run, _: int) -> float:
        return (-1) ** run.seed * (1 + run.seed)

    studies = [
        shown(tmp_path / "a", [claim(says="It grows")], unequal, seeds=12),
        shown(tmp_path / "b", [claim(says="It shrinks")], lambda run, depth: -unequal(run, depth), mcc=0.0),
        shown(tmp_path / "c", [claim(says="It stays"), claim(says="It is ours", own=True)], mixed, seeds=8),
    ]
    assert digest(judged(studies), "page.md").splitlines() == [
        "**ACL**, 3 claims:",
        "",
        "- *Shows* (1):",
        "  - [Table 9](page.md#tiny): It grows (+2.5, p < 0.001).",
        "- *The opposite shows* (1):",
        "  - [Table 9](page.md#tiny): It shrinks (-2.2, p = 0.031, not learnt: sst2).",
        "- *Does not show* (1):",
        "  - [Table 9](page.md#tiny): It stays (-0.5).",
        "",
        "**Our own questions**, 1 claim:",
        "",
        "- *Does not show* (1):",
        "  - [tiny](page.md#tiny): It is ours (-0.5).",
        "",
        "Of the 2 that are more than chance within their study, 1 of them stands once all claims are corrected "
        "together. *Does not show* is no proof of the contrary.",
    ]
    assert "corrected together" not in digest(judged(studies[:1]))  # of one study


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
    assert found.row().cells[3].shown == "5; not all made"
    assert claims_table([shown(tmp_path / "b", [claim()], unequal, leave=11)]) is None
    assert claims_table([shown(tmp_path / "c", [], unequal)]) is None


def test_a_claim_of_staying_within_a_deviation_is_asked_of_every_task_and_is_no_test(tmp_path: Path) -> None:
    """CE + SCL goes up and down by a point, so its deviation is a little more than one."""

    def gain(run: Run, _: int) -> float:
        wave = -((-1) ** run.seed)
        return wave + {"sst2": -0.5, "rte": -2.0}[run.task]

    claims = [claim(first="ce", second="scl", holds="within"), claim(first="scl", second="ce")]
    tasks = {"tasks": ["sst2", "rte"]}
    near = judged([shown(tmp_path / "a", claims, gain, smoke={"tasks": ["sst2"]})])
    far = judged([shown(tmp_path / "b", [claim(first="scl", second="ce", holds="within")], gain, smoke=tasks)])
    assert near[0].words == "holds on every task"
    assert (near[0].found.p, near[0].found.corrected) == (None, None)
    assert near[1].found.corrected == near[1].found.p  # alone in its family
    assert far[0].words == "does not hold: sst2, rte"  # the second is CE here, which does not vary at all
    back = judged([shown(tmp_path / "c", [claim(first="ce", second="scl", holds="within")], gain, smoke=tasks)])
    assert back[0].words == "holds on every task"  # CE is above
    rise = judged(
        [shown(tmp_path / "d", [claim(first="ce", second="scl", holds="within")], lambda *at: -gain(*at), smoke=tasks)]
    )
    assert rise[0].words == "does not hold: rte"  # below by 0.5 with a deviation of 1.1, and by 2


def test_what_stays_within_a_deviation_is_told_of_the_tasks_that_are_there_and_of_two_seeds_at_least(
    tmp_path: Path,
) -> None:
    claims = [claim(first="ce", second="scl", holds="within")]
    one = judged([shown(tmp_path / "a", claims, unequal, seeds=1)])
    assert one[0].words == "too few pairs to tell"
    half = shown(tmp_path / "b", claims, lambda *_: -1.0, seeds=2, smoke={"tasks": ["sst2", "rte"]})
    there = [each for each in half.results if each.run.task == "sst2"]
    assert judged([replace(half, results=there)])[0].words == "holds on sst2 so far"


@pytest.mark.parametrize(("mcc", "told"), [(0.2, "shows"), (0.0, "shows (not learnt: sst2)"), (None, "shows")])
def test_a_task_that_neither_variant_learns_is_named(tmp_path: Path, mcc: float | None, told: str) -> None:
    found = one(shown(tmp_path, [claim()], unequal, mcc=mcc))
    assert (found.words, found.told, found.row().cells[1].shown) == ("shows", told, told)


def test_what_is_related_to_the_texts_by_chance_alone_is_not_learnt(tmp_path: Path) -> None:
    def wobbling(middle: float) -> Any:
        return lambda run: middle + 0.1 * (-1) ** run.seed

    assert one(shown(tmp_path, [claim()], unequal, mcc=wobbling(0.12))).told == "shows"
    assert one(shown(tmp_path / "b", [claim()], unequal, mcc=wobbling(0.1))).told == "shows (not learnt: sst2)"
    one_learns = shown(tmp_path / "c", [claim()], unequal, mcc=lambda run: 0.3 * (run.variant == "ce"))
    assert one(one_learns).told == "shows"


def test_what_scores_below_always_the_same_label_may_have_learnt_something(tmp_path: Path) -> None:
    found = shown(tmp_path, [claim()], unequal, mcc=0.2)
    for each in found.results:
        each.record["metrics"]["always"] = 0.9
    assert one(found).told == "shows"


def test_pairs_are_counted_by_task_where_some_tasks_have_more(tmp_path: Path) -> None:
    smoke = {"tasks": ["sst2", "rte"], "seeds": 2}
    more = {"scales": {"smoke": {"tasks_seeds": {"sst2": 6}}}}
    found = one(shown(tmp_path, [claim()], unequal, smoke=smoke, ce={**CE, **more}, scl={**SCL, **more}))
    assert found.row().cells[3].shown == "8 (6 sst2, 2 rte)"
    same = one(shown(tmp_path / "b", [claim()], unequal, smoke=smoke))
    assert same.row().cells[3].shown == "4"


def test_claims_of_the_papers_and_our_own_are_counted_apart(tmp_path: Path) -> None:
    ours = shown(tmp_path / "a", [claim()], unequal, study={"paper": "", "place": "", "claims": [claim()]})
    verdicts = judged([ours, shown(tmp_path / "b", [claim()], unequal)])
    words = "by what our runs say of them: shows 1 (none clearly)."
    assert tally(verdicts) == f"Of 1 claims of the papers, {words} Of 1 claims of our own, {words}"


def test_claims_that_rest_on_tasks_that_nobody_learnt_are_counted(tmp_path: Path) -> None:
    tasks = {"tasks": ["sst2", "rte"], "seeds": 6}
    half = shown(tmp_path / "a", [claim()], unequal, smoke=tasks, mcc=lambda run: 0.5 * (run.task == "sst2"))
    assert "not learnt" not in tally(judged([half]))
    none = shown(tmp_path / "b", [claim()], unequal, smoke=tasks, mcc=0.0)
    assert tally(judged([none])).endswith("say of them: shows 1 (1 on tasks that were not learnt).")


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
