"""Protocols in place: who learns, who validates, who is scored, and that noise stays with those who learn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from offramp import preparation
from offramp.config import Config, from_mapping
from offramp.data.labels import Labels
from offramp.data.sampling import class_capped, stratified_sample, stratified_split
from offramp.data.sources import Table, read
from offramp.data.splits import scl_split
from offramp.errors import ConfigError, DataError
from offramp.preparation import divide, scored
from offramp.types import Example

NAMES = ("zebra", "ant", "mole", "bat")  # not in the order of the alphabet


def table(n: int, name: str = "train", order: tuple[str, ...] = (), kinds: int = 4) -> Table:
    """Texts of several words, each its own; the i-th kind has (i + 1) shares."""
    labels = [kind for kind in NAMES[:kinds] for _ in range(NAMES.index(kind) + 1)]
    made = read([(f"{name} text number {i} of many", labels[i % len(labels)]) for i in range(n)])
    return Table(made.examples, name, "row", made.numbers, order)


def configured(
    run_seed: int = 0, data: dict[str, Any] | None = None, metric: str = "accuracy", **protocol: Any
) -> Config:
    return from_mapping({"data": data or {}, "protocol": protocol, "optimise": {"seed": run_seed, "metric": metric}})


def counts(examples: list[Example]) -> Counter[Any]:
    return Counter(example.label for example in examples)


# Without a protocol.


@pytest.mark.parametrize("cap", [{}, {"cap": 40}, {"class_cap": 9}, {"class_cap": 9, "cap": 20}])
def test_without_a_protocol_the_draws_are_those_of_the_sampling_in_its_order(cap: dict[str, int]) -> None:
    train, config = table(200), configured(5, cap)
    draw = torch.Generator().manual_seed(5)
    labels = Labels.of(train.labels)
    rows = list(range(200))
    if "class_cap" in cap:
        rows = class_capped(labels.encode(train.labels), cap["class_cap"], draw)
    if "cap" in cap:
        numbers = [labels.index(train.labels[row]) for row in rows]
        rows = [rows[place] for place in stratified_sample(numbers, cap["cap"], draw)]
    kept, held = stratified_split([labels.index(train.labels[row]) for row in rows], 0.1, draw)
    found = divide(train, None, config)
    assert found == (
        labels,
        [train.examples[rows[place]] for place in kept],
        [train.examples[rows[place]] for place in held],
    )


def test_with_a_validation_file_all_of_it_validates() -> None:
    train, validation = table(50), table(20, "validation")
    labels, learn, held = divide(train, validation, configured())
    assert (learn, held) == (train.examples, validation.examples)
    assert labels.names == tuple(sorted(NAMES))
    assert scored(validation, train, configured()) is validation


def test_a_source_with_an_order_of_its_own_numbers_the_labels_by_it() -> None:
    labels, _, _ = divide(table(50, order=(*NAMES, "emu")), None, configured())
    assert labels.names == NAMES  # whoever has no text has no number


# Labels in play.


@pytest.mark.parametrize("count", [2, 3])
def test_the_first_labels_are_kept_in_training_validation_and_test(count: int) -> None:
    train, other = table(100, order=NAMES), table(40, "other")
    config = configured(classes=count)
    labels, learn, held = divide(train, other, config)
    kept = set(NAMES[:count])
    assert labels.names == NAMES[:count]
    assert learn == [e for e in train.examples if e.label in kept]
    assert held == [e for e in other.examples if e.label in kept]
    assert scored(other, train, config).examples == held
    assert scored(other, train, config).where(0) == "other, row 1"
    _, learn, held = divide(train, None, config)
    assert set(counts(learn)) | set(counts(held)) == kept


@pytest.mark.parametrize("count", [1, 5])
def test_a_count_of_labels_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=rf"between 2 and 4.*Found {count}"):
        divide(table(50), None, configured(classes=count))


def test_a_label_that_training_lacks_is_told_even_where_labels_are_left_out() -> None:
    with pytest.raises(DataError, match=r"one of the 3 seen in training. Found `bat` in other, row"):
        divide(table(50, kinds=3), table(20, "other"), configured(classes=2))


def test_f1_is_for_two_labels() -> None:
    with pytest.raises(ConfigError, match=r"f1 for two labels only. Found 4: use macro_f1"):
        divide(table(50), None, configured(metric="f1"))
    divide(table(50), None, configured(metric="f1", classes=2))


# Splits.


def test_scls_split_validates_on_one_part_and_scores_on_another() -> None:
    train, validation = table(100), table(60, "validation")
    config = configured(split="scl")
    _, learn, held = divide(train, validation, config)
    test = scored(validation, train, config)
    rows = scl_split(Labels.of(train.labels).encode(validation.labels))
    assert learn == train.examples
    assert (held, test.examples) == tuple([validation.examples[row] for row in part] for part in rows)
    assert not set(held) & set(test.examples)
    assert test.where(0) == f"validation, row {rows[1][0] + 1}"
    # whatever the seed
    assert divide(train, validation, configured(9, split="scl"))[2] == held


def test_lacons_split_holds_out_a_twentieth() -> None:
    train = table(400)
    _, learn, held = divide(train, None, configured(split="lacon"))
    assert (len(learn), len(held)) == (380, 20)
    assert counts(held) == {"zebra": 2, "ant": 4, "mole": 6, "bat": 8}


def test_lacons_few_shot_split_holds_out_as_many_as_are_learnt_from() -> None:
    _, learn, held = divide(table(400), None, configured(data={"class_cap": 20}, split="lacon-few", classes=3))
    assert counts(learn) == counts(held) == dict.fromkeys(sorted(NAMES)[:3], 20)
    assert not set(learn) & set(held)


def test_of_a_label_with_few_texts_half_are_learnt_from_and_half_validate() -> None:
    few = table(400).keep([*range(300)])
    whole = counts(few.examples)
    _, learn, held = divide(few, None, configured(data={"class_cap": 40}, split="lacon-few"))
    assert counts(learn) == {name: min(40, (n + 1) // 2) for name, n in whole.items()}
    assert counts(held) == {name: min(40, n // 2) for name, n in whole.items()}
    assert min(counts(learn).values()) < 40 == max(counts(learn).values())
    _, learn, _ = divide(few, table(9, "other"), configured(data={"class_cap": 40}))  # where others validate, all
    assert counts(learn) == {name: min(40, n) for name, n in whole.items()}


def test_a_split_asks_for_the_texts_it_divides() -> None:
    with pytest.raises(DataError, match="scl should come with validation texts"):
        divide(table(50), None, configured(split="scl"))
    for split in ("lacon", "lacon-few"):
        with pytest.raises(DataError, match=f"{split} should come without validation texts.*Found other"):
            divide(table(50), table(20, "other"), configured(split=split))


# Sizes, seeds and noise.


def test_an_imbalanced_set_is_learnt_from_whole_where_others_validate() -> None:
    train, other = table(1000), table(20, "other")
    _, learn, _ = divide(train, other, configured(imbalance=4, minority=16, classes=2))
    assert counts(learn) == {"ant": 16, "bat": 64}
    _, learn, held = divide(train, None, configured(imbalance=4, minority=16, classes=2, split="lacon-few"))
    assert counts(learn) == counts(held) == {"ant": 16, "bat": 64}


def test_a_seed_of_the_protocol_fixes_the_texts_whatever_the_run() -> None:
    cap = {"cap": 30}
    assert divide(table(200), None, configured(1, cap, seed=7)) == divide(table(200), None, configured(2, cap, seed=7))
    assert divide(table(200), None, configured(1, cap)) == divide(table(200), None, configured(2, cap, seed=1))
    assert divide(table(200), None, configured(1, cap)) != divide(table(200), None, configured(2, cap))


NOISE = [{"word_dropout": 0.3}, {"word_swap": 0.5}, {"label_noise": 0.4}, {"word_dropout": 0.2, "word_swap": 0.2}]


@pytest.mark.parametrize("noise", NOISE, ids=str)
def test_noise_finds_the_same_texts_and_leaves_those_that_validate_alone(noise: dict[str, float]) -> None:
    train = table(200)
    _, clean, held = divide(train, None, configured(3, {"cap": 80}))
    labels, learn, also_held = divide(train, None, configured(3, {"cap": 80}, **noise))
    assert also_held == held
    assert len(learn) == len(clean)
    assert learn != clean
    texts = [a.text == b.text for a, b in zip(learn, clean, strict=True)]
    same = [a.label == b.label for a, b in zip(learn, clean, strict=True)]
    assert all(texts) == ("label_noise" in noise)
    assert same.count(False) == (round(0.4 * len(clean)) if "label_noise" in noise else 0)
    assert set(counts(learn)) <= set(labels.names)


def test_copies_stand_beside_the_texts_three_for_one() -> None:
    train = table(60)
    _, clean, _ = divide(train, None, configured())
    _, learn, _ = divide(train, None, configured(word_dropout=0.4, copies=3))
    assert learn[: len(clean)] == clean
    assert len(learn) == 4 * len(clean)
    for place, example in enumerate(learn):
        original = clean[place % len(clean)]
        assert example.label == original.label
        assert set(example.text.split()) <= set(original.text.split())
    assert len({e.text for e in learn[0 :: len(clean)]}) > 1  # each copy is drawn anew


def test_without_noise_nothing_is_copied() -> None:
    assert divide(table(60), None, configured(copies=3)) == divide(table(60), None, configured())


def test_back_translation_goes_through_both_models_and_both_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def there(texts: list[str], temperature: float, _: torch.Generator) -> list[str]:
        assert temperature == 0.3
        return [text.upper() for text in texts]

    def back(texts: list[str], *_: Any) -> list[str]:
        return ["" if "FIVE" in text else f"{text}!" for text in texts]

    monkeypatch.setattr(preparation, "load_pair", lambda names: {"a,b": (there, back)}[names])
    train = read([Example("one", "two", "x"), Example("five", None, "y")])
    _, learn, _ = divide(train, train, configured(back_translation="a,b", temperature=0.3))
    assert learn == [Example("ONE!", "TWO!", "x"), Example("five", None, "y")]  # nothing came back: as it was
    _, learn, _ = divide(train, train, configured(back_translation="a,b", temperature=0.3, copies=2))
    assert [e.text for e in learn] == ["one", "five", "ONE!", "five", "ONE!", "five"]
