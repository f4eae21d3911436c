"""ACL-Grad on gradients small enough to do by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from offramp.optimise.alignment import Rule, align


def vectors(*values: float) -> list[Tensor]:
    """A model of two parameters, a number each."""
    return [torch.tensor([value]) for value in values]


def numbers(gradients: list[Tensor | None]) -> list[float | None]:
    return [None if g is None else float(g) for g in gradients]


def test_a_term_that_goes_along_is_kept() -> None:
    combined, angle = align(vectors(1.0, 0.0), vectors(2.0, 2.0), 0.75, 0.25, Rule(90.0))
    assert numbers(combined) == [0.75 * 1 + 0.25 * 2, 0.25 * 2]
    assert angle.kept
    assert angle.degrees == pytest.approx(45.0, abs=1e-5)  # float32
    assert (angle.main_norm, angle.auxiliary_norm) == pytest.approx((1.0, math.sqrt(8)), rel=1e-6)


def test_a_term_that_turns_away_is_dropped_and_the_main_weight_stays() -> None:
    combined, angle = align(vectors(1.0, 0.0), vectors(-2.0, 2.0), 0.75, 0.25, Rule(90.0))
    assert numbers(combined) == [0.75, 0.0]
    assert not angle.kept
    assert angle.degrees == pytest.approx(135.0, abs=1e-5)


def test_a_right_angle_is_kept() -> None:
    combined, angle = align(vectors(3.0, 0.0), vectors(0.0, 5.0), 0.5, 0.5, Rule(90.0))
    assert angle.degrees == 90.0
    assert angle.kept
    assert numbers(combined) == [1.5, 2.5]


@pytest.mark.parametrize(("auxiliary", "degrees"), [((6.0, 8.0), 0.0), ((4.0, -3.0), 90.0), ((-3.0, -4.0), 180.0)])
def test_the_threshold_itself_still_keeps_and_a_little_less_drops(
    auxiliary: tuple[float, float], degrees: float
) -> None:
    main = vectors(3.0, 4.0)  # of length 5: nothing is rounded
    assert align(main, vectors(*auxiliary), 0.5, 0.5, Rule(degrees))[1].kept
    assert not align(main, vectors(*auxiliary), 0.5, 0.5, Rule(math.nextafter(degrees, -1.0)))[1].kept


@pytest.mark.parametrize("zero", ["main", "auxiliary", "both"])
def test_a_zero_gradient_has_no_angle_and_drops_the_term(zero: str) -> None:
    main = vectors(0.0, 0.0) if zero != "auxiliary" else vectors(1.0, 2.0)
    auxiliary = vectors(0.0, 0.0) if zero != "main" else vectors(1.0, 2.0)
    combined, angle = align(main, auxiliary, 0.5, 0.5, Rule(180.0))
    assert math.isnan(angle.degrees)
    assert not angle.kept
    assert numbers(combined) == [0.5 * float(main[0]), 0.5 * float(main[1])]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_drops_the_term(bad: float) -> None:
    combined, angle = align(vectors(1.0, 1.0), vectors(bad, 1.0), 0.5, 0.5, Rule(180.0))
    assert math.isnan(angle.degrees)
    assert not angle.kept
    assert numbers(combined) == [0.5, 0.5]


def test_a_parameter_only_one_term_reaches_counts_in_that_terms_norm() -> None:
    main = [torch.tensor([3.0]), torch.tensor([4.0]), None]
    auxiliary = [torch.tensor([3.0]), None, torch.tensor([4.0])]
    combined, angle = align(main, auxiliary, 0.5, 0.25, Rule(90.0))
    assert angle.degrees == pytest.approx(math.degrees(math.acos(9 / 25)), abs=1e-5)
    assert numbers(combined) == [1.5 + 0.75, 2.0, 1.0]
    dropped, _ = align(main, auxiliary, 0.5, 0.25, Rule(10.0))
    assert numbers(dropped) == [1.5, 2.0, None]


def test_terms_without_a_common_parameter_stand_at_a_right_angle() -> None:
    _, angle = align([torch.tensor([3.0]), None], [None, torch.tensor([4.0])], 0.5, 0.5, Rule(90.0))
    assert angle.degrees == 90.0
    assert (angle.main_norm, angle.auxiliary_norm) == (3.0, 4.0)


def test_the_gradients_that_come_in_stay_as_they_are() -> None:
    main, auxiliary = vectors(1.0, 2.0), vectors(3.0, 4.0)
    align(main, auxiliary, 0.5, 0.5, Rule(90.0))
    assert numbers(main) == [1.0, 2.0]
    assert numbers(auxiliary) == [3.0, 4.0]


@pytest.mark.parametrize("threshold", [30.0, 180.0])
def test_rows_of_an_embedding_give_what_the_whole_of_it_gives(threshold: float) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.tensor([[4, 1, 1], [7, 4, 0]])  # some twice, one the padding
    table, first, second = (torch.randn(9, 3, generator=draw, dtype=torch.float64) for _ in range(3))

    def gradients(sparse: bool) -> list[list[Tensor]]:
        embedding = nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0, sparse=sparse)
        states = embedding(tokens)
        terms = [(states * w[tokens]).square().sum() for w in (first, second)]
        return [list(torch.autograd.grad(term, [embedding.weight], retain_graph=True)) for term in terms]

    rows, angle = align(*gradients(sparse=True), 0.75, 0.25, Rule(threshold))
    whole, wanted = align(*gradients(sparse=False), 0.75, 0.25, Rule(threshold))
    assert rows[0] is not None
    assert rows[0].is_sparse
    assert angle.kept == wanted.kept == (threshold == 180.0)
    for name in ("degrees", "main_norm", "auxiliary_norm"):
        assert getattr(angle, name) == pytest.approx(getattr(wanted, name), rel=1e-12)
    torch.testing.assert_close(rows[0].to_dense(), whole[0], rtol=1e-12, atol=1e-12)


# Group by group.


def test_the_cosine_of_each_group_is_that_of_its_parameters_alone() -> None:
    main = [*vectors(1.0, 3.0, 4.0), torch.tensor([[1.0, 2.0], [2.0, 0.0]])]
    auxiliary = [*vectors(-2.0, 4.0, 3.0), torch.tensor([[0.0, 2.0], [0.0, 0.0]])]
    groups = ["embeddings", "layer-1", "layer-1", "exit-1"]
    _, angle = align(main, auxiliary, 0.75, 0.25, Rule(), groups)
    assert list(angle.cosines) == ["embeddings", "layer-1", "exit-1"]
    assert angle.cosines == pytest.approx({"embeddings": -1.0, "layer-1": 24 / 25, "exit-1": 4 / (3 * 2)}, abs=1e-7)
    whole = (-2 + 24 + 4) / math.sqrt((1 + 25 + 9) * (4 + 25 + 4))
    assert angle.degrees == pytest.approx(math.degrees(math.acos(whole)), abs=1e-5)


def test_a_groups_parameters_need_not_stand_together() -> None:
    main, auxiliary = vectors(3.0, 1.0, 4.0), vectors(4.0, 1.0, 3.0)
    _, angle = align(main, auxiliary, 0.5, 0.5, Rule(), ["layer-1", "exit-1", "layer-1"])
    assert angle.cosines == pytest.approx({"layer-1": 24 / 25, "exit-1": 1.0}, abs=1e-7)


def test_a_group_that_a_term_does_not_reach_has_no_cosine() -> None:
    main = [torch.tensor([3.0]), torch.tensor([4.0]), None, torch.tensor([0.0])]
    auxiliary = [torch.tensor([3.0]), None, torch.tensor([4.0]), torch.tensor([1.0])]
    _, angle = align(main, auxiliary, 0.5, 0.5, Rule(), ["a", "b", "c", "d"])
    assert angle.cosines.pop("a") == 1.0
    assert list(angle.cosines) == ["b", "c", "d"]
    assert all(math.isnan(cosine) for cosine in angle.cosines.values())


def test_a_tensor_that_a_term_does_not_reach_counts_in_its_groups_length() -> None:
    main = [torch.tensor([3.0]), torch.tensor([4.0]), None]
    auxiliary = [torch.tensor([3.0]), None, torch.tensor([4.0])]
    _, angle = align(main, auxiliary, 0.5, 0.5, Rule(), ["a"] * 3)
    assert angle.cosines == pytest.approx({"a": 9 / 25}, abs=1e-7)


def test_groups_do_not_change_the_step() -> None:
    main, auxiliary = vectors(1.0, 2.0), vectors(2.0, -0.5)
    plain, angle = align(main, auxiliary, 0.75, 0.25, Rule())
    grouped, _ = align(main, auxiliary, 0.75, 0.25, Rule(), ["a", "b"])
    assert numbers(plain) == numbers(grouped)
    assert angle.cosines == {}


def test_weight_zero_gives_the_main_gradient_to_the_bit() -> None:
    main, auxiliary = vectors(0.1, -0.3), vectors(0.7, 0.2)
    combined, _ = align(main, auxiliary, 1.0, 0.0, Rule(180.0))
    assert numbers(combined) == numbers(main)
