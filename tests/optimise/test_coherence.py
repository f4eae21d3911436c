"""Settings that cannot go together are refused before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.errors import ConfigError, MissingExtra
from offramp.objectives import OBJECTIVES, objective
from offramp.optimise.coherence import ONE_TERM, SharpTargets, check, check_width
from offramp.types import ExitOutput


@pytest.mark.parametrize("scope", ["exact", "exit"])
@pytest.mark.parametrize("name", ["ce", "icl", "lcl", "ler", "lacon"])
def test_alignment_needs_two_terms(configure: Callable[..., Any], name: str, scope: str) -> None:
    with pytest.raises(ConfigError, match=rf"`alignment\.scope` should be none with the objective {name}, "):
        check(configure(objective__name=name, alignment__scope=scope))
    check(configure(objective__name=name))


def test_every_objective_that_gives_one_term_is_known_to() -> None:
    """Where `check` allows alignment, the objective has an auxiliary term to align."""
    output = ExitOutput(torch.eye(4), torch.zeros(4, 2), torch.eye(2, 4))
    for name in OBJECTIVES:
        loss = objective(name, heads=1)(output, torch.tensor([0, 1, 0, 1]), output)
        assert (loss.auxiliary is None) == (name in ONE_TERM), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"optimise__contrast_batch": 15, "optimise__batch_size": 16},
            r"`optimise\.contrast_batch` should be 0 or at least `optimise\.batch_size` \(16\)\. Found 15\.",
        ),
        (
            {"objective__name": "distill"},
            r"The objective distill should have a teacher\. Found the strategy `single`.* Set `stage2\.objective`",
        ),
        (
            {"objective__name": "acl-cl", "optimise__strategy": "two-stage"},
            r"The objective acl-cl should have a teacher\. Found the strategy `two-stage`",
        ),
        (
            {"stage2__objective": "ce", "stage2__scope": "exact"},
            r"`stage2\.scope` should be none with the objective ce, which has one term only\.",
        ),
        (
            {"alignment__aggregator": "mgda", "alignment__scope": "exit"},
            r"`alignment\.aggregator` should be drop where `alignment\.scope` is not exact\. Found `mgda` .* `exit`",
        ),
        ({"alignment__aggregator": "upgrad"}, r"Found `upgrad` with the scope `none`\."),
        (
            {"objective__name": "infonce", "data__views": "dropout,shuffle,dropout"},
            r"`data\.views` should name 2 views for the objective infonce\. Found 3: dropout, shuffle, dropout\.",
        ),
        ({"objective__name": "infonce", "data__views": "[]"}, r"Found 0: none\."),
        (
            {"objective__name": "lacon", "exits__kind": "leam"},
            r"The objective lacon should have an exit that answers with its label embeddings: .* Found `leam`",
        ),
        (
            {"objective__name": "lacon", "objective__class_weights": "balanced"},
            r"`objective\.class_weights` should be none with the objective lacon, which has no cross entropy\.",
        ),
        (
            {"objective__class_weights": "balanced", "optimise__strategy": "two-stage", "stage2__objective": "icl"},
            r"should be none with `stage2\.objective` icl, which has no cross entropy\. Found balanced\.",
        ),
        (
            {"compress__method": "tiny", "optimise__strategy": "two-stage"},
            r"`optimise\.strategy` should be single with `compress\.method` tiny, .* Found `two-stage`\.",
        ),
        (
            {"compress__method": "truncate", "compress__teacher": "folder"},
            r"`compress\.teacher` should be empty where .* Found `folder` with the method `truncate`\.",
        ),
        ({"compress__teacher": "folder"}, r"Found `folder` with the method `none`\."),
        (
            {"compress__method": "distil", "alignment__scope": "exact"},
            r"`alignment\.scope` should be none with `compress\.method` distil\. Found exact\.",
        ),
        (
            {"compress__method": "tiny", "optimise__contrast_batch": 64},
            r"`optimise\.contrast_batch` should be 0 with `compress\.method` tiny\. Found 64\.",
        ),
        (
            {"compress__method": "distil", "objective__name": "infonce"},
            r"The objective should see each text once with `compress\.method` distil\. Found infonce\.",
        ),
        (
            {"data__sampler": "balanced", "data__per_class": 5, "optimise__batch_size": 4},
            r"`optimise\.batch_size` should be at least twice `per_class`",
        ),
        (
            {"data__sampler": "balanced", "data__per_class": 9, "optimise__contrast_batch": 16},
            r"`optimise\.contrast_batch` should be at least twice `per_class`",
        ),
        (
            {
                "data__sampler": "balanced",
                "data__per_class": 40,
                "optimise__contrast_batch": 256,
                "optimise__strategy": "two-stage",
            },
            r"`stage2\.batch_size` should be at least twice `per_class`",
        ),
        (
            {"exits__kind": "lsan", "optimise__strategy": "two-stage", "stage2__objective": "lacon"},
            r"The objective lacon should have an exit that answers with its label embeddings: .* Found `lsan`",
        ),
        (
            {"objective__name": "lacon", "exits__kind": "match", "exits__last": "leam"},
            r"The objective lacon should have an exit that answers .* Found `leam`",
        ),
    ],
)
def test_settings_that_cannot_go_together_are_refused(
    configure: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(configure(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimise__contrast_batch": 16, "optimise__batch_size": 16},
        {"optimise__contrast_batch": 256},
        {"alignment__aggregator": "mgda", "alignment__scope": "exact"},
        {"objective__name": "infonce", "alignment__scope": "exact"},
        {"objective__name": "acl", "data__views": "dropout"},  # not its concern
        {"objective__name": "scl", "objective__class_weights": "balanced", "objective__label_smoothing": 0.1},
        {"objective__name": "icl", "objective__label_smoothing": 0.1},  # nor this one's
        {"objective__name": "ce", "exits__kind": "lsan"},
        {"objective__name": "distill", "optimise__strategy": "joint", "objective__temperature": 2.0},
        {"compress__method": "layerdrop", "alignment__scope": "exact", "optimise__contrast_batch": 64},
        {"compress__method": "heads", "compress__teacher": "folder", "alignment__scope": "exit"},
        {"compress__method": "distil", "objective__name": "scl"},
        {"data__sampler": "balanced", "data__per_class": 5, "optimise__batch_size": 4, "optimise__contrast_batch": 10},
    ],
)
def test_settings_that_can_go_together_are_not_refused(configure: Callable[..., Any], settings: dict[str, Any]) -> None:
    check(configure(**settings))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"objective__name": "distill", "optimise__strategy": "joint"}, "objective"),
        ({"stage2__objective": "distill", "optimise__strategy": "two-stage"}, "stage2"),
    ],
)
def test_soft_targets_at_the_temperature_of_a_contrast_are_warned_of(
    configure: Callable[..., Any], settings: dict[str, Any], field: str
) -> None:
    key = f"{field}__temperature"
    with pytest.warns(SharpTargets, match=rf"`{field}\.temperature` is 0\.1: .* weigh 0\.01 here\..* set it to 2"):
        check(configure(**settings, **{key: 0.1}))
    check(configure(**settings, **{key: 1.0}))
    check(configure(**{**settings, "optimise__strategy": "joint", "objective__name": "ce"}, **{key: 0.1}))


def test_heads_that_do_not_divide_the_width_are_refused(configure: Callable[..., Any]) -> None:
    config = configure(objective__name="lacon", objective__heads=6)
    check_width(config, 384, 256)
    with pytest.raises(ConfigError, match=r"`objective\.heads` should divide .* \(256\)\. Found 6\."):
        check_width(config, 256, 384)
    check_width(configure(objective__name="acl", objective__heads=6), 256, 256)  # not its concern
    staged = {"optimise__strategy": "two-stage", "stage2__objective": "icl", "stage2__heads": 7}
    with pytest.raises(ConfigError, match=r"`stage2\.heads` should divide .* \(64\)\. Found 7\."):
        check_width(configure(**staged), 384, 64)


def test_vectors_of_unlike_width_are_not_contrasted(configure: Callable[..., Any]) -> None:
    staged = configure(optimise__strategy="two-stage", stage2__objective="acl-cl")
    check_width(staged, 64, 64)
    with pytest.raises(ConfigError, match=r"`exits\.last` should have .* acl-cl, .* Found 384 and 64\. Use acl"):
        check_width(staged, 384, 64)
    for strategy in ("joint", "alternating"):
        taught = configure(optimise__strategy=strategy, objective__name="acl-cl", stage2__objective="ce")
        check_width(taught, 64, 64)
        with pytest.raises(ConfigError, match=r"for `objective\.name` acl-cl, .* Found 384 and 64\. Use acl, or set"):
            check_width(taught, 384, 64)


def test_a_missing_extra_is_said_before_anything_is_written(
    configure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchjd", None)
    with pytest.raises(MissingExtra, match="torchjd"):
        check(configure(alignment__scope="exact", alignment__aggregator="mgda"))
