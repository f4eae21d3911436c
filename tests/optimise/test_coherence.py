"""Settings that cannot go together are refused before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from offramp.errors import ConfigError
from offramp.objectives import OBJECTIVES, objective
from offramp.optimise.coherence import ONE_TERM, check
from offramp.types import ExitOutput


@pytest.mark.parametrize("scope", ["exact", "exit"])
@pytest.mark.parametrize("name", ["ce", "icl", "lcl", "ler", "lacon"])
def test_alignment_needs_two_terms(configure: Callable[..., Any], name: str, scope: str) -> None:
    with pytest.raises(ConfigError, match=rf"`alignment\.scope` should be none with the objective {name}, "):
        check(configure(objective__name=name, alignment__scope=scope))
    check(configure(objective__name=name))


def test_every_objective_that_gives_one_term_is_known_to(configure: Callable[..., Any]) -> None:
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
            r"The objective distill should have a teacher\. Found the strategy `single`.* Set `objective\.name`",
        ),
        ({"objective__name": "acl-cl"}, r"The objective acl-cl should have a teacher\."),
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
            {"objective__name": "lacon", "objective__heads": 6},
            r"`objective\.heads` should divide .* `exits\.size` \(64\)\. Found 6\.",
        ),
        (
            {"data__sampler": "balanced", "data__per_class": 5, "optimise__batch_size": 4},
            r"`batch_size` should be at least twice `per_class`",
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
        {"objective__name": "lacon", "objective__heads": 6, "exits__kind": "match"},
        {"objective__name": "ce", "exits__kind": "lsan"},
        {"data__sampler": "balanced", "data__per_class": 5, "optimise__batch_size": 4, "optimise__contrast_batch": 10},
    ],
)
def test_settings_that_can_go_together_are_not_refused(configure: Callable[..., Any], settings: dict[str, Any]) -> None:
    check(configure(**settings))
