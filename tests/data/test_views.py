"""Views of small batches, taken apart token by token."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest
import torch
from torch import Tensor

from offramp.data.views import VIEWS, Views, feature_cutoff, shuffle, token_cutoff
from offramp.errors import ConfigError
from offramp.types import Batch, States

LENGTHS = (1, 2, 3, 4, 9, 12)
CUTOFFS = {"token-cutoff": token_cutoff, "feature-cutoff": feature_cutoff}


def texts(*lengths: int, types: bool = True) -> Batch:
    """Texts of these many tokens, no token twice, padded with 0; the second half of a text is of type 1."""
    width = max(lengths)
    places = torch.arange(width)  # (T,)
    mask = (places < torch.tensor(lengths)[:, None]).long()  # (B, T)
    ids = (1 + places + 100 * torch.arange(len(lengths))[:, None]) * mask  # (B, T)
    second = (places >= torch.tensor(lengths)[:, None] // 2).long() * mask  # (B, T)
    rows = torch.arange(len(lengths))
    return Batch(ids, mask, second if types else None, labels=rows % 2, rows=rows)


def states(batch: Batch, width: int = 8) -> States:
    """States without a zero, of different texts and tokens."""
    hidden = 1.0 + torch.rand(*batch.mask.shape, width)
    return States(hidden, hidden, batch.mask)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# Shuffle.


def test_shuffle_keeps_a_texts_tokens_its_ends_and_its_padding() -> None:
    batch = texts(*LENGTHS)
    for _ in range(20):
        seen = shuffle(batch)
        assert torch.equal(seen.mask, batch.mask)
        for row, length in enumerate(LENGTHS):
            before, after = batch.input_ids[row].tolist(), seen.input_ids[row].tolist()
            assert sorted(after[:length]) == before[:length]
            assert (after[0], after[length - 1]) == (before[0], before[length - 1])
            assert after[length:] == before[length:]


def test_shuffle_gives_every_token_its_own_type() -> None:
    batch = texts(*LENGTHS)
    seen = shuffle(batch)
    assert batch.token_types is not None
    assert seen.token_types is not None
    assert not torch.equal(seen.input_ids, batch.input_ids)
    for row, length in enumerate(LENGTHS):
        types = dict(zip(batch.input_ids[row, :length].tolist(), batch.token_types[row, :length].tolist(), strict=True))
        assert seen.token_types[row, :length].tolist() == [types[i] for i in seen.input_ids[row, :length].tolist()]
        assert not seen.token_types[row, length:].any()
    assert shuffle(texts(5, types=False)).token_types is None


def test_shuffle_brings_up_every_inner_order_equally_often() -> None:
    draws = 6000
    batch = texts(*[5] * draws)
    seen = shuffle(batch).input_ids - 100 * torch.arange(draws)[:, None]
    found = Counter(tuple(order) for order in seen.tolist())
    wanted = {(1, *inner, 5) for inner in permutations((2, 3, 4))}
    assert set(found) == wanted
    # Each count is binomial: five standard deviations around its mean.
    mean, deviation = draws / 6, math.sqrt(draws * (1 / 6) * (5 / 6))
    assert all(abs(count - mean) < 5 * deviation for count in found.values())


def test_the_texts_of_a_batch_are_shuffled_apart() -> None:
    seen = shuffle(texts(12, 12, 12)).input_ids % 100
    assert len({tuple(row) for row in seen.tolist()}) == 3


# Cutoffs.


@pytest.mark.parametrize("share", [0.0, 0.1, 0.15, 0.29, 0.5, 0.9])
def test_token_cutoff_erases_its_share_of_the_tokens_never_the_first_nor_padding(share: float) -> None:
    lengths = (*LENGTHS, 101)
    batch = texts(*lengths)
    before = states(batch).hidden
    after = token_cutoff(before, batch.mask, share)
    erased = (after == 0).all(dim=2)  # (B, T)
    assert torch.equal(after, torch.where(erased[:, :, None], 0.0, before))
    assert not erased[:, 0].any()
    assert not (erased & (batch.mask == 0)).any()
    exact = [math.floor(Fraction(str(share)) * (length - 1)) for length in lengths]
    assert erased.sum(dim=1).tolist() == exact


def test_token_cutoff_can_erase_any_token_but_the_first() -> None:
    batch = texts(*[5] * 400)
    erased = token_cutoff(torch.ones(400, 5, 2), batch.mask, 0.25)[:, :, 0] == 0
    counts = erased.sum(dim=0).tolist()  # binomial around 100, deviation below 9
    assert counts[0] == 0
    assert all(abs(count - 100) < 45 for count in counts[1:])


@pytest.mark.parametrize("width", [1, 8, 100, 384])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.29, 0.5, 0.9])
def test_feature_cutoff_erases_the_same_features_of_all_tokens_of_a_text(share: float, width: int) -> None:
    batch = texts(*LENGTHS)
    before = states(batch, width).hidden
    after = feature_cutoff(before, batch.mask, share)
    erased = (after == 0).all(dim=1)  # (B, H)
    assert torch.equal(after, torch.where(erased[:, None, :], 0.0, before))
    assert erased.sum(dim=1).tolist() == [math.floor(Fraction(str(share)) * width)] * len(LENGTHS)


def test_feature_cutoff_erases_other_features_of_other_texts() -> None:
    batch = texts(4, 4, 4, 4)
    erased = feature_cutoff(torch.ones(4, 4, 64), batch.mask, 0.25)[:, 0] == 0
    assert len({tuple(row) for row in erased.tolist()}) == 4


@pytest.mark.parametrize("name", CUTOFFS)
def test_what_is_erased_has_no_gradient_and_the_rest_has_its_own(name: str) -> None:
    batch = texts(6, 4)
    hidden = states(batch).hidden.requires_grad_()
    after = CUTOFFS[name](hidden, batch.mask, 0.5)
    after.sum().backward()
    assert hidden.grad is not None
    assert torch.equal(hidden.grad, (after != 0).float())
    assert not hidden.grad.all()


# Views of a batch.


def parts(batch: Batch, view: int, size: int) -> Batch:
    def half(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[view * size : (view + 1) * size]

    return Batch(*(half(getattr(batch, name)) for name in ("input_ids", "mask", "token_types", "labels", "rows")))


def test_the_views_of_a_batch_stand_one_after_the_other_in_order() -> None:
    batch = texts(*LENGTHS)
    seen = Views(("dropout", "shuffle", "token-cutoff")).batch(batch)
    size = len(batch)
    assert len(seen) == 3 * size
    for view in range(3):
        here = parts(seen, view, size)
        for name in ("mask", "labels", "rows"):
            assert torch.equal(getattr(here, name), getattr(batch, name))
        same = torch.equal(here.input_ids, batch.input_ids)
        assert same == (view != 1)


def test_what_a_batch_does_not_have_its_views_do_not_have() -> None:
    batch = texts(3, 5, types=False)
    seen = Views(("dropout", "shuffle")).batch(Batch(batch.input_ids, batch.mask))
    assert (seen.token_types, seen.labels, seen.rows) == (None, None, None)


@pytest.mark.parametrize("name", CUTOFFS)
@pytest.mark.parametrize("place", [0, 1])
def test_only_the_view_that_cuts_off_erases(name: str, place: int) -> None:
    names = ["dropout", "dropout"]
    names[place] = name
    views = Views(tuple(names), cutoff=0.5)
    before = states(views.batch(texts(6, 8, 4)))
    after = views.erase(before)
    assert after.output is after.hidden
    halves = list(zip(before.hidden.chunk(2), after.hidden.chunk(2), strict=True))
    assert torch.equal(*halves[1 - place])
    assert bool((halves[place][1] == 0).any())
    assert torch.equal(after.mask, before.mask)


@pytest.mark.parametrize("name", VIEWS)
def test_the_same_state_of_the_generator_gives_the_same_view(name: str) -> None:
    views = Views((name, name), cutoff=0.4)
    batch = texts(*LENGTHS)
    before = states(views.batch(batch))

    def look() -> tuple[Tensor, Tensor]:
        return views.batch(batch).input_ids, views.erase(before).hidden

    state = torch.get_rng_state()
    first = look()
    second = look()
    torch.set_rng_state(state)
    again = look()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)) == (name == "dropout")


@pytest.mark.parametrize("name", CUTOFFS)
def test_a_share_of_nothing_changes_nothing(name: str) -> None:
    views = Views((name, name), cutoff=0.0)
    before = states(views.batch(texts(*LENGTHS)))
    assert torch.equal(views.erase(before).hidden, before.hidden)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("name", VIEWS)
def test_a_text_of_one_two_or_three_tokens_has_views(name: str, length: int) -> None:
    views = Views((name, name), cutoff=0.5)
    batch = texts(length)
    seen = views.batch(batch)
    assert torch.equal(seen.input_ids, batch.input_ids.repeat(2, 1))  # at most one inner token
    before = states(seen)
    erased = (views.erase(before).hidden == 0).sum(dim=(1, 2)).tolist()
    wanted = {"token-cutoff": 8 * ((length - 1) // 2), "feature-cutoff": 4 * length}
    assert erased == [wanted.get(name, 0)] * 2


def test_an_unknown_view_gets_the_near_names() -> None:
    with pytest.raises(ConfigError, match=r"`token-cutof` is not a known view\. Did you mean 'token-cutoff'"):
        Views(("dropout", "token-cutof"))
