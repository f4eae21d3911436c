"""`offramp recipes`: the named configurations."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

from offramp.config import from_mapping, load_recipe, recipes

Run = Callable[..., Any]


def test_the_list_has_every_recipe_with_its_sentence(offramp: Run) -> None:
    ran = offramp("recipes")
    assert (ran.code, ran.err) == (0, "")
    assert dict(line.split(maxsplit=1) for line in ran.out.splitlines()) == recipes()
    assert offramp("recipes", "--json").json == [{"name": n, "about": about} for n, about in recipes().items()]


def test_one_recipe_is_shown_with_every_field(offramp: Run) -> None:
    ran = offramp("recipes", "acl")
    assert (ran.code, ran.err) == (0, "")
    assert from_mapping(tomllib.loads(ran.out)) == load_recipe("acl")
    assert from_mapping(offramp("recipes", "acl", "--json").json) == load_recipe("acl")
