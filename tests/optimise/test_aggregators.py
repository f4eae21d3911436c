"""Other aggregators against torchjd's own, which see the two whole gradients."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib import util
from typing import Any

import pytest
import torch
from torch import Tensor
from torchjd.aggregation import MGDA, PCGrad, UPGrad

from offramp.errors import ConfigError, MissingExtra
from offramp.optimise.aggregators import AGGREGATORS, aggregator
from offramp.optimise.alignment import Rule, align

PEERS: dict[str, Any] = {"projection": PCGrad(), "mgda": MGDA(), "upgrad": UPGrad()}
WEIGHTS = (0.75, 0.25)


def pair(cosine: float, longer: float = 1.0, scale: float = 1.0) -> tuple[list[Tensor], list[Tensor]]:
    """Two gradients at a known angle, of an embedding's rows, a matrix and a vector; the first is `longer`."""
    draw = torch.Generator().manual_seed(0)
    first, other = torch.randn(2, 19, generator=draw, dtype=torch.float64)
    first = first / first.norm()
    other = other - (other @ first) * first
    second = cosine * first + math.sqrt(1 - cosine**2) * other / other.norm()

    def parts(vector: Tensor) -> list[Tensor]:
        rows, matrix, bias = vector.split([6, 8, 5])
        twice, once, last = rows.view(3, 2)
        places, values = torch.tensor([[6, 1, 6, 3]]), torch.stack([twice / 2, once, twice / 2, last])
        return [torch.sparse_coo_tensor(places, values, (9, 2), check_invariants=True), matrix.view(2, 4), bias]

    return parts(scale * longer * first), parts(scale * second)


def flat(gradients: list[Tensor | None]) -> Tensor:
    return torch.cat([(g.to_dense() if g.is_sparse else g).flatten() for g in gradients if g is not None])


@pytest.mark.parametrize("longer", [1.0, 7.0, 0.1])
@pytest.mark.parametrize("cosine", [-1.0, -0.8, -0.1, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("name", PEERS)
def test_the_step_is_torchjds_of_the_weighted_gradients(name: str, cosine: float, longer: float) -> None:
    main, auxiliary = pair(cosine, longer)
    combined, angle = align(main, auxiliary, *WEIGHTS, Rule(aggregator=aggregator(name)))
    jacobian = torch.stack([WEIGHTS[0] * flat(main), WEIGHTS[1] * flat(auxiliary)])  # (2, N)
    torch.testing.assert_close(flat(combined), PEERS[name](jacobian), rtol=1e-9, atol=1e-9)
    assert combined[0] is not None
    assert combined[0].is_sparse
    assert angle.degrees == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-5)


@pytest.mark.parametrize("name", PEERS)
def test_a_step_harms_neither_term(name: str) -> None:
    main, auxiliary = pair(-0.6, longer=2.0)
    combined, _ = align(main, auxiliary, 0.5, 0.5, Rule(aggregator=aggregator(name)))
    for gradient in (main, auxiliary):
        assert float(flat(combined) @ flat(gradient)) >= -1e-3  # `upgrad` regularises by 1e-4


@pytest.mark.parametrize("name", PEERS)
def test_short_gradients_make_the_same_step_as_long_ones(name: str) -> None:
    rule = Rule(aggregator=aggregator(name))
    long, _ = align(*pair(-0.6), *WEIGHTS, rule)
    short, _ = align(*pair(-0.6, scale=1e-6), *WEIGHTS, rule)
    torch.testing.assert_close(flat(short) * 1e6, flat(long), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("zero", ["main", "auxiliary"])
@pytest.mark.parametrize("name", PEERS)
def test_a_zero_gradient_steps_with_the_main_term(name: str, zero: str) -> None:
    main, auxiliary = pair(0.5)
    if zero == "main":
        main = [0.0 * g for g in main]
    else:
        auxiliary = [0.0 * g for g in auxiliary]
    combined, angle = align(main, auxiliary, *WEIGHTS, Rule(aggregator=aggregator(name)))
    assert math.isnan(angle.degrees)
    assert not angle.kept
    assert torch.equal(flat(combined), WEIGHTS[0] * flat(main))


@pytest.mark.parametrize("name", PEERS)
def test_weight_zero_gives_the_main_gradient_to_the_bit(name: str) -> None:
    main, auxiliary = pair(-0.5)
    combined, _ = align(main, auxiliary, 1.0, 0.0, Rule(aggregator=aggregator(name)))
    assert torch.equal(flat(combined), flat(main))


def test_a_term_is_kept_where_it_has_a_part_in_the_step() -> None:
    main, auxiliary = pair(-0.5)
    assert align(main, auxiliary, 0.5, 0.5, Rule(aggregator=aggregator("projection")))[1].kept
    # The shortest vector between a short gradient and a long one along it is the short one itself.
    short, along = pair(0.9, longer=0.01)
    assert not align(short, along, 0.5, 0.5, Rule(aggregator=aggregator("mgda")))[1].kept


@pytest.mark.parametrize("name", PEERS)
def test_torchs_generator_is_left_as_it_was(name: str) -> None:
    before = torch.get_rng_state()
    align(*pair(-0.5), *WEIGHTS, Rule(aggregator=aggregator(name)))
    assert torch.equal(torch.get_rng_state(), before)


def test_drop_needs_no_aggregator() -> None:
    assert aggregator("drop") is None
    assert sorted(AGGREGATORS) == sorted(PEERS)


def test_an_unknown_name_gets_the_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"`projecton` is not a known aggregator\. Did you mean 'projection'\?"):
        aggregator("projecton")
    with pytest.raises(ConfigError, match=r"Known: drop, mgda, projection, upgrad\."):
        aggregator("qqq")


@pytest.mark.parametrize("name", PEERS)
def test_without_torchjd_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(MissingExtra, match=r"pip install 'offramp\[torchjd\]'"):
        aggregator(name)
    assert aggregator("drop") is None


def test_without_the_solver_of_upgrad_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr("torchjd._mixins.find_spec", lambda name: None if name == "quadprog" else found(name))
    with pytest.raises(MissingExtra, match=r"pip install 'offramp\[torchjd\]'"):
        aggregator("upgrad")


def test_the_training_loop_is_imported_without_torchjd() -> None:
    code = "import sys, offramp.optimise.loop; sys.exit('torchjd' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
