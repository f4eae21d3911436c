"""A run that goes on from a model: its backbone and its exits go over, and so does what it has seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command_line import Run
from tests.interfaces.conftest import QUICK

from offramp import Classifier
from offramp.beginning import begin
from offramp.data.labels import Labels
from offramp.data.seen import digests
from offramp.errors import ModelError
from offramp.exits import checkpoint
from offramp.exits.manifest import MANIFEST
from offramp.exits.model import MultiExitModel
from offramp.exits.predecessor import ExitsBeginAnew, folder_of
from offramp.preparation import as_table
from offramp.types import Example

Toy = Callable[..., tuple[list[str], list[str]]]
TWO_STAGES = {"optimise.strategy": "two-stage", "stage2.epochs": 1, "stage2.least_updates": 0}


@pytest.fixture
def first(quick: Callable[..., Classifier], toy: Toy, tmp_path: Path) -> Classifier:
    """A model of two stages in the folder `first`."""
    made = quick(TWO_STAGES).fit(*toy(48))
    made.save(tmp_path / "first")
    return made


def begun(labels: tuple[str, ...], made: Classifier) -> MultiExitModel:
    torch.manual_seed(1)
    return begin(made.config(), Labels(labels))[0]


def same(ours: MultiExitModel, theirs: MultiExitModel, part: str) -> list[bool]:
    """Whether each parameter whose name begins so is the same."""
    other = theirs.state_dict()
    return [torch.equal(t, other[name]) for name, t in ours.state_dict().items() if name.startswith(part)]


@pytest.mark.filterwarnings("error")
def test_backbone_and_exits_go_over_where_labels_and_settings_are_the_same(
    first: Classifier, quick: Callable[..., Classifier], tmp_path: Path
) -> None:
    model = begun(("bad", "fine", "good"), quick(TWO_STAGES, backbone=str(tmp_path / "first")))
    assert all(same(model, first.model_, ""))
    assert model.config.trained_exits == []  # nobody has trained them on these texts


@pytest.mark.parametrize(
    ("labels", "settings", "said"),
    [
        (("bad", "good"), {}, "its labels are bad, fine, good, those of the texts bad, good"),
        (("bad", "fine", "good"), {"exits.kind": "mha"}, "begin anew: they are residual, and mha is asked for"),
        (("bad", "fine", "good"), {"exits.size": 8}, r"their exits\.size is 16, and 8 is asked for"),
    ],
)
def test_exits_that_do_not_fit_begin_anew_and_it_is_said_why(
    first: Classifier,
    quick: Callable[..., Classifier],
    tmp_path: Path,
    labels: tuple[str, ...],
    settings: dict[str, Any],
    said: str,
) -> None:
    second = quick({**TWO_STAGES, **settings}, backbone=str(tmp_path / "first"))
    with pytest.warns(ExitsBeginAnew, match=said):
        model = begun(labels, second)
    assert all(same(model, first.model_, "encoder"))
    theirs = {tuple(weight.flatten().tolist()) for weight in first.model_.exits.parameters()}
    drawn = [weight for name, weight in model.exits.named_parameters() if name.endswith("weight") and weight.dim() > 1]
    assert drawn
    assert not theirs & {tuple(weight.flatten().tolist()) for weight in drawn}


def test_a_last_exit_that_fits_goes_over_alone(quick: Callable[..., Classifier], toy: Toy, tmp_path: Path) -> None:
    one = quick({"exits.kind": "linear"}).fit(*toy(48))
    one.save(tmp_path / "one")
    settings = {"exits.kind": "mha", "exits.last": "linear", "exits.size": 8}  # which linear exits do not read
    model = begun(("bad", "fine", "good"), quick(settings, backbone=str(tmp_path / "one")))
    assert all(same(model, one.model_, "exits.3"))


def test_labels_begin_from_their_names_at_exits_that_were_not_trained(
    quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    one = quick().fit(*toy(48))
    one.save(tmp_path / "one")
    plain, named = (
        begun(("bad", "fine", "good"), quick({"exits.labels": how}, backbone=str(tmp_path / "one")))
        for how in ("random", "names")
    )
    last = plain.depth
    for depth in range(1, last + 1):
        rows = [model.exits[depth - 1].label_parameter for model in (plain, named)]
        assert torch.equal(*rows) == (depth == last)


def test_a_pooler_goes_over_whatever_the_labels_are(quick: Callable[..., Classifier], toy: Toy, tmp_path: Path) -> None:
    one = quick({"exits.kind": "linear"}).fit(*toy(48))
    one.save(tmp_path / "one")
    with pytest.warns(ExitsBeginAnew):
        model = begun(("bad", "good"), quick({"exits.kind": "linear"}, backbone=str(tmp_path / "one")))
    for ours, theirs in zip(model.exits, one.model_.exits, strict=True):
        assert torch.equal(ours.pool.weight, theirs.pool.weight)


def test_a_model_in_half_precision_goes_on_in_single(
    first: Classifier, quick: Callable[..., Classifier], tmp_path: Path
) -> None:
    first.model_.bfloat16()
    first.save(tmp_path / "half")
    model = begun(("bad", "fine", "good"), quick(TWO_STAGES, backbone=str(tmp_path / "half")))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_a_folder_that_is_named_as_a_backbone_is_called_is_not_meant(
    first: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.save(tmp_path / "minilm-l6")
    monkeypatch.chdir(tmp_path)
    assert folder_of(Classifier("ce", "minilm-l6").config()) is None
    assert folder_of(Classifier("ce", "./minilm-l6").config()) == Path("minilm-l6")


def test_a_model_has_seen_what_the_one_before_it_has(
    first: Classifier, quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    texts, labels = toy(30, seed=7)
    second = quick(backbone=str(tmp_path / "first")).fit(texts, labels)
    assert first.seen_ is not None
    assert second.seen_ is not None
    mine = digests([Example(text=text) for text in texts])
    assert set(second.seen_.tolist()) == {*first.seen_.tolist(), *mine.tolist()}


def test_where_the_one_before_does_not_tell_what_it_has_seen_nobody_does(
    first: Classifier, quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    first.seen_ = None
    first.save(tmp_path / "silent")
    assert quick(backbone=str(tmp_path / "silent")).fit(*toy(30)).seen_ is None


def test_a_model_is_not_written_over_by_what_goes_on_from_it(
    first: Classifier, quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    table = as_table(*toy(30), "texts")
    with pytest.raises(ModelError, match="should not write over the model it goes on from"):
        quick(backbone=str(tmp_path / "first")).fit_table(table, folder=tmp_path / "first", overwrite=True)
    assert (tmp_path / "first" / MANIFEST).is_file()


def test_models_that_nothing_can_go_on_from_are_refused(
    first: Classifier, quick: Callable[..., Classifier], toy: Toy, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="train it with another recipe"):
        Classifier("grow", str(tmp_path / "first")).fit(*toy(30))
    pruned = quick({"compress.method": "heads"}).fit(*toy(30))
    pruned.save(tmp_path / "pruned")
    with pytest.raises(ModelError, match="has all its attention heads"):
        quick(backbone=str(tmp_path / "pruned")).fit(*toy(30))
    checkpoint.save(tmp_path / "exported", first.model_, first.tokenizer_, first.config_, weights=False)
    with pytest.raises(ModelError, match="exported: use the model that it was made of"):
        quick(backbone=str(tmp_path / "exported")).fit(*toy(30))
    (tmp_path / "first" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="damaged"):
        quick(backbone=str(tmp_path / "first")).fit(*toy(30))


def test_the_command_line_goes_on_from_a_model(
    first: Classifier, offramp: Run, write_table: Callable[..., Path], toy: Toy, tmp_path: Path
) -> None:
    file = write_table(tmp_path / "more.csv", list(zip(*toy(36, seed=3), strict=True)))
    quick = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    place = ["--out", tmp_path / "second", "--backbone", tmp_path / "first"]
    ran = offramp("train", file, "--recipe", "ce", *place, *quick)
    assert ran.code == 0, ran.err
    assert "begin anew" not in ran.err
    assert Classifier.load(tmp_path / "second").config_.encoder.backbone == str(tmp_path / "first")
    other = write_table(tmp_path / "other.csv", [(text, f"so {label}") for text, label in zip(*toy(36), strict=True)])
    told = offramp("train", other, "--recipe", "ce", "--out", tmp_path / "third", *place[2:], *quick)
    assert told.code == 0
    assert "begin anew: its labels are bad, fine, good, those of the texts so bad, so fine, so good" in told.err
