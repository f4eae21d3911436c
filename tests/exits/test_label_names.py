"""Label embeddings that begin from names: where their rows come from, and that nothing else changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import small_bert, toy_texts
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedTokenizerFast

from offramp import Classifier
from offramp.data.tokens import Tokens
from offramp.errors import DataError
from offramp.exits.base import Exit
from offramp.exits.kinds import EXITS
from offramp.exits.label_names import begin_from_names, rows_from
from offramp.exits.model import MultiExitModel, build
from offramp.types import Batch, Example

Make = Callable[..., MultiExitModel]

NAMES = ("good film", "good plot", "slow story", "who is bad")
BY_TOKENS = ("fusion", "leam", "lsan")
"""The kinds whose label embeddings attend to tokens, and so begin from the names' states."""

each_kind = pytest.mark.parametrize("kind", EXITS)


@pytest.fixture
def names(tokenizer: PreTrainedTokenizerFast) -> Batch:
    return tokenised(tokenizer, NAMES)


def tokenised(tokenizer: PreTrainedTokenizerFast, texts: tuple[str, ...]) -> Batch:
    return Tokens.of(tokenizer, [Example(text) for text in texts], 60).batch(range(len(texts)))


def rows(model: MultiExitModel) -> list[Tensor]:
    """The label embeddings of each depth."""
    exits: list[Any] = list(model.exits)
    return [exit.label_parameter.detach().clone() for exit in exits]


def by_hand(vectors: Tensor, random: Tensor) -> Tensor:
    """The rows that vectors of names should give, one number at a time."""
    classes, width = vectors.shape
    means = [sum(float(vectors[k, i]) for k in range(classes)) / classes for i in range(width)]
    length = sum(sum(float(x) ** 2 for x in row) ** 0.5 for row in random) / classes
    found = []
    for row in vectors:
        centred = [float(x) - mean for x, mean in zip(row, means, strict=True)]
        own = sum(x * x for x in centred) ** 0.5
        found.append([x / own * length for x in centred])
    return torch.tensor(found)


# --- where the rows come from


@each_kind
def test_the_rows_are_what_the_exit_sees_in_each_name(make_model: Make, names: Batch, kind: str) -> None:
    model = make_model(labels=NAMES, exit_kind=kind)
    before = rows(model)
    with torch.no_grad():
        outputs = model.outputs(names)
        # Hugging Face's own pass, a name at a time, no padding.
        hidden = []
        for row in range(len(NAMES)):
            length = int(names.mask[row].sum())
            ids = names.input_ids[row : row + 1, :length]
            hidden.append(model.encoder.backbone(input_ids=ids, output_hidden_states=True).hidden_states)
    begin_from_names(model, names)
    for depth, found in enumerate(rows(model), 1):
        states = torch.stack([of_name[depth][0].mean(dim=0) for of_name in hidden])
        seen = states if kind in BY_TOKENS else outputs[depth].representation
        torch.testing.assert_close(found, by_hand(seen, before[depth - 1]), atol=1e-4, rtol=0)


@each_kind
def test_the_rows_are_centred_in_direction_and_as_long_as_the_random_ones(
    make_model: Make, names: Batch, kind: str
) -> None:
    model = make_model(labels=NAMES, exit_kind=kind)
    before = rows(model)
    begin_from_names(model, names)
    for old, new in zip(before, rows(model), strict=True):
        torch.testing.assert_close(new.norm(dim=1), old.norm(dim=1).mean().expand(4), atol=1e-5, rtol=0)
        # Centred: some weighted sum of the rows with positive weights is zero, which no common direction survives.
        cosines = [float(cosine_similarity(new[i], new[j], dim=0)) for i, j in itertools.combinations(range(4), 2)]
        assert min(cosines) < 0
        assert not torch.allclose(old, new)


@each_kind
def test_names_that_mean_the_same_begin_nearer_than_names_that_do_not(
    tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    backbone: Any = small_bert()
    words = backbone.embeddings.word_embeddings.weight
    films = tokenizer.convert_tokens_to_ids(["film", "story"])
    with torch.no_grad():
        words[films[1]] = words[films[0]] + 0.1 * torch.randn(32) * words[films[0]].std()
    torch.manual_seed(0)
    model = build(backbone, ("film", "slow", "story", "who"), exit_kind=kind, exit_size=16, exit_heads=2)
    begin_from_names(model, tokenised(tokenizer, ("film", "slow", "story", "who")))
    for depth, found in enumerate(rows(model), 1):
        related = cosine_similarity(found[0], found[2], dim=0)
        assert related > 0.5, depth
        for one, two in ((0, 1), (0, 3), (1, 2), (1, 3), (2, 3)):
            assert cosine_similarity(found[one], found[two], dim=0) < related - 0.3, depth


class Fixed(Exit):
    """An exit that sees in each name the vector it was given."""

    def __init__(self, vectors: Tensor, random: Tensor) -> None:
        super().__init__()
        self.vectors = vectors
        self.weight = torch.nn.Parameter(random)

    @property
    def label_parameter(self) -> Tensor:
        return self.weight

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        return self.vectors


def test_two_labels_begin_opposite_each_other(make_model: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model(labels=("good", "bad"), exit_kind="fusion")
    begin_from_names(model, tokenised(tokenizer, ("good", "bad")))
    for found in rows(model):
        torch.testing.assert_close(found[0], -found[1], atol=1e-6, rtol=0)


def test_what_all_names_have_in_common_is_taken_away(make_model: Make, names: Batch) -> None:
    model = make_model(labels=NAMES)
    own = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -2.0, 0.0]])
    common = torch.tensor([0.0, 0.0, 500.0])
    random = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 8.0]])
    model.exits[1] = Fixed(own + common, random)
    begin_from_names(model, names)
    wanted = 5.0 * torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    torch.testing.assert_close(rows(model)[1], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [*BY_TOKENS, "linear"])
def test_the_seed_of_the_exits_does_not_turn_the_rows(
    tokenizer: PreTrainedTokenizerFast, names: Batch, kind: str
) -> None:
    found = []
    for seed in (1, 2):
        backbone = small_bert()  # with a pooler, which every linear exit begins with
        torch.manual_seed(seed)
        model = build(backbone, NAMES, exit_kind=kind, exit_size=16, exit_heads=2)
        begin_from_names(model, names)
        found.append(rows(model))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(cosine_similarity(one, two, dim=1), torch.ones(4), atol=1e-5, rtol=0)


# --- names that say nothing


@each_kind
def test_names_that_are_all_alike_leave_the_random_rows(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    model = make_model(exit_kind=kind)
    before = rows(model)
    begin_from_names(model, tokenised(tokenizer, ("film", "film", "film")))
    assert all(torch.equal(old, new) for old, new in zip(before, rows(model), strict=True))


def test_a_name_that_is_the_mean_of_the_others_keeps_its_random_row() -> None:
    vectors = torch.tensor([[1.0, 9.0], [3.0, 9.0], [2.0, 9.0]])
    random = torch.tensor([[0.5, 0.5], [-0.5, 0.5], [0.1, -0.7]])
    found = rows_from(vectors, random)
    assert torch.equal(found[2], random[2])
    length = float(random.norm(dim=1).mean())
    torch.testing.assert_close(found[:2], torch.tensor([[-length, 0.0], [length, 0.0]]), atol=1e-6, rtol=0)


def test_names_that_are_zero_keep_their_random_rows() -> None:
    random = torch.tensor([[0.5, 0.5], [-0.5, 0.5]])
    assert torch.equal(rows_from(torch.zeros(2, 2), random), random)


# --- nothing else changes


@each_kind
@pytest.mark.parametrize("training", [False, True])
def test_only_the_label_embeddings_change(make_model: Make, names: Batch, kind: str, training: bool) -> None:
    model = make_model(labels=NAMES, exit_kind=kind, exit_dropout=0.5).train(training)
    model.encoder.train(False)  # as a strategy leaves a frozen backbone
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    chance = torch.get_rng_state()
    begin_from_names(model, names)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    own = "classifier.weight" if kind in ("linear", "mha", "residual") else "labels.weight"
    assert changed == {f"exits.{place}.{own}" for place in range(model.depth)}
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_dropout_plays_no_part(make_model: Make, names: Batch) -> None:
    one, two = (make_model(labels=NAMES, exit_kind="match", exit_dropout=0.5) for _ in range(2))
    two.load_state_dict(one.state_dict())
    begin_from_names(one, names)
    begin_from_names(two.train(), names)
    assert all(torch.equal(a, b) for a, b in zip(rows(one), rows(two), strict=True))


def test_too_few_names_are_refused(make_model: Make, names: Batch) -> None:
    model = make_model(labels=("a", "b", "c"))
    before = rows(model)
    with pytest.raises(DataError, match=r"one name for each of the 3 labels\. Found 4\."):
        begin_from_names(model, names)
    assert all(torch.equal(old, new) for old, new in zip(before, rows(model), strict=True))


# --- through the classifier


def fitted(backbone: Path, given: list[Any], **exits: Any) -> MultiExitModel:
    """A model as it begins: with a learning rate of 0 the fit changes nothing."""
    texts, _ = toy_texts(len(given))
    settings = {
        "exits.size": 16,
        "optimise.epochs": 1,
        "optimise.lr_backbone": 0.0,
        "optimise.lr_exit": 0.0,
        **{f"exits.{name}": value for name, value in exits.items()},
    }
    return Classifier("ce", str(backbone), settings).fit(texts, given).model_


@each_kind
def test_the_classifier_begins_from_names_where_it_is_asked_to(
    backbone_folder: Path, tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    labels = ["slow_film", "good-plot", "who"] * 8
    random = fitted(backbone_folder, labels, kind=kind)
    found = fitted(backbone_folder, labels, kind=kind, labels="names")
    assert not any(torch.equal(a, b) for a, b in zip(rows(random), rows(found), strict=True))
    begin_from_names(random, tokenised(tokenizer, ("good plot", "slow film", "who")))  # in the labels' order
    for wanted, row in zip(rows(random), rows(found), strict=True):
        torch.testing.assert_close(row, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("labels", [[3, 1, 2], [-1, 0, 1], ["-1", "1", "0"]])
def test_numbers_are_names_too_and_keep_their_sign(
    backbone_folder: Path, tokenizer: PreTrainedTokenizerFast, labels: list[Any]
) -> None:
    found = fitted(backbone_folder, labels * 8, kind="fusion", labels="names")
    random = fitted(backbone_folder, labels * 8, kind="fusion")
    begin_from_names(random, tokenised(tokenizer, tuple(str(label) for label in found.config.labels)))
    for wanted, row in zip(rows(random), rows(found), strict=True):
        torch.testing.assert_close(row, wanted, atol=1e-6, rtol=0)


def test_the_classifier_passes_the_exits_settings_on(backbone_folder: Path) -> None:
    model = fitted(backbone_folder, ["a", "b"] * 8, kind="fusion", temperature=0.3, window=7, dropout=0.2)
    config = model.config
    assert (config.exit_kind, config.exit_temperature, config.exit_window) == ("fusion", 0.3, 7)
    exit: Any = model.exits[-1]
    assert exit.temperature == 0.3
    assert exit.attention.convolution.kernel_size == (7,)
