from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.config import (
    CHOICES,
    RANGES,
    Config,
    describe,
    from_mapping,
    load_recipe,
    override,
    recipes,
    to_mapping,
    to_toml,
)
from offramp.data.views import VIEWS
from offramp.errors import ConfigError
from offramp.exits.kinds import EXITS
from offramp.objectives import OBJECTIVES
from offramp.optimise.aggregators import AGGREGATORS
from offramp.optimise.gradients import SCOPES
from offramp.optimise.strategies import STRATEGIES
from offramp.policies import POLICIES
from offramp.report.metrics import NAMES

STAGES = [f.name for f in dataclasses.fields(Config) if f.name not in ("recipe", "about")]
FIELDS = {
    f"{stage}.{f.name}": typing.get_type_hints(typing.get_type_hints(Config)[stage])[f.name]
    for stage in STAGES
    for f in dataclasses.fields(typing.get_type_hints(Config)[stage])
}
NUMBERS = [key for key, kind in FIELDS.items() if kind in (int, float)]
# Half a surrogate pair is no text; all other characters may stand in a path or a column's name.
words = st.text(st.characters(exclude_categories=["Cs"]))


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any configuration that is allowed."""
    tree: dict[str, Any] = {"recipe": draw(words), "about": draw(words)}
    for key, kind in FIELDS.items():
        stage, _, name = key.partition(".")
        low, high = RANGES.get(key, (None, None))
        if key in CHOICES:
            names = st.sampled_from(CHOICES[key])
            value: Any = draw(names if kind is str else st.lists(names, max_size=3))
        elif kind is bool:
            value = draw(st.booleans())
        elif kind is int:
            value = draw(st.integers(int(low), int(high)))
        elif kind is float:
            value = draw(st.floats(low, high))
        else:
            value = draw(words if kind is str else st.lists(words, max_size=3))
        tree.setdefault(stage, {})[name] = value
    return from_mapping(tree)


# TOML out, TOML in.


@settings(deadline=None)
@given(configs())
def test_toml_out_then_in_is_the_same_configuration(config: Config) -> None:
    assert from_mapping(tomllib.loads(to_toml(config))) == config


@settings(deadline=None)
@given(configs())
def test_mappings_out_then_in_are_the_same_configuration(config: Config) -> None:
    assert from_mapping(to_mapping(config)) == config


def test_toml_out_writes_every_field() -> None:
    tree = tomllib.loads(to_toml(Config()))
    assert {f"{stage}.{name}" for stage in STAGES for name in tree[stage]} == set(FIELDS)


# Recipes.


def test_every_recipe_loads_and_says_what_it_is() -> None:
    found = recipes()
    assert {"ce", "scl", "acl"} <= set(found)
    for name, about in found.items():
        assert load_recipe(name).recipe == name
        assert about.endswith(".")
        assert len(about.split()) > 4


def test_a_recipe_keeps_the_defaults_it_does_not_change() -> None:
    acl = load_recipe("acl")
    assert acl.data == Config().data
    assert (acl.alignment.scope, acl.alignment.threshold) == ("exact", 90.0)


@pytest.mark.parametrize(("name", "hint"), [("alc", "'acl'"), ("../acl", "'acl'"), ("qqq", "Known: 2st, ")])
def test_an_unknown_recipe_gets_the_near_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"is not a known recipe\. .*{hint}"):
        load_recipe(name)


# Overrides.


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("optimise.epochs=3", 3),
        ("optimise.epochs = 3 ", 3),
        ("optimise.epochs=3.0", 3),
        ("optimise.lr_backbone=3e-5", 3e-5),
        ("optimise.clip=2", 2.0),
        ("objective.name=ce", "ce"),
        ('objective.name="ce"', "ce"),
        ("encoder.backbone=a/b=c", "a/b=c"),
        ("data.text=title", ("title",)),
        ("data.text=title,body", ("title", "body")),
        ("data.text=[title, body]", ("title", "body")),
        ('data.text=["a title", "a, b"]', ("a title", "a, b")),
        ("data.text=2024", ("2024",)),
        ("data.text=", ()),
        ("data.label_separator= ", " "),
        ("data.label_separator=\t", "\t"),
        ("data.label_separator= ; ", ";"),
        ("data.views=dropout,shuffle", ("dropout", "shuffle")),
        ('data.views=["token-cutoff", "feature-cutoff"]', ("token-cutoff", "feature-cutoff")),
    ],
)
def test_a_setting_is_read_as_its_fields_type(setting: str, value: object) -> None:
    stage, _, name = setting.partition("=")[0].strip().partition(".")
    found = getattr(getattr(override(Config(), [setting]), stage), name)
    assert (found, type(found)) == (value, type(value))


def test_settings_apply_in_order_and_leave_the_rest() -> None:
    found = override(load_recipe("scl"), ["optimise.epochs=2", "data.cap=9", "optimise.epochs=4"])
    assert found == dataclasses.replace(
        load_recipe("scl"),
        data=dataclasses.replace(Config().data, cap=9),
        optimise=dataclasses.replace(load_recipe("scl").optimise, epochs=4),
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimise.epoch=3", r"`optimise\.epoch` is not a known field\. Did you mean 'optimise\.epochs'"),
        ("optimize.epochs=3", r"`optimize` is not a known part of the configuration\. Did you mean 'optimise'\?"),
        ("epochs=3", r"`epochs` is not a known part of the configuration\."),
        ("recipe=ce", r"`recipe` is not a known part of the configuration\."),
        ("optimise=3", r"should name a field, such as `optimise\.name=value`\. Found `optimise`"),
        ("optimise.=3", r"should name a field"),
        ("optimise.epochs", r"A setting should look like key=value\. Found `optimise\.epochs`"),
        ("objective.name=sl", r"`sl` is not a known value of `objective\.name`\. Did you mean 'scl'"),
        ("data.views=dropout,shufle", r"`shufle` is not a known value of `data\.views`\. Did you mean 'shuffle'\?"),
        ("alignment.aggregator=mgd", r"`mgd` is not a known value of `alignment\.aggregator`\. Did you mean 'mgda'"),
        ("policy.name=nevr", r"`nevr` is not a known value of `policy\.name`\. Did you mean 'never' or"),
        ("optimise.epochs=many", r"^`optimise\.epochs` should be a whole number\. Found `many`\.$"),
        ("optimise.epochs=2.5", r"^`optimise\.epochs` should be a whole number\. Found 2\.5\.$"),
        ("optimise.epochs=true", r"^`optimise\.epochs` should be a whole number\. Found True\.$"),
        ("optimise.epochs=", r"^`optimise\.epochs` should be a whole number\. Found ``\.$"),
        ("optimise.lr_exit=fast", r"^`optimise\.lr_exit` should be a number\. Found `fast`\.$"),
        ("optimise.lr_exit=nan", r"^`optimise\.lr_exit` should be between 0 and 10\. Found nan\.$"),
        ("optimise.epochs=0", r"^`optimise\.epochs` should be between 1 and 1e\+06\. Found 0\.$"),
    ],
)
def test_a_wrong_setting_hears_what_should_be_and_what_was_found(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(Config(), [setting])


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_may_be_at_its_bounds_and_not_beyond(key: str) -> None:
    stage, _, name = key.partition(".")
    for bound, beyond in zip(RANGES[key], (-1, 1), strict=True):
        assert getattr(getattr(from_mapping({stage: {name: bound}}), stage), name) == bound
        with pytest.raises(ConfigError, match=rf"^`{key}` should be between .* and .*\. Found "):
            from_mapping({stage: {name: bound + beyond * max(1, abs(bound))}})


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"optimise": {"epochs": "3"}}, r"`optimise\.epochs` should be a whole number\. Found '3'"),
        ({"optimise": 3}, r"`optimise` should be a table of fields\. Found 3"),
        ({"optimise": {"epoch": 3}}, r"Did you mean 'optimise\.epochs'"),
        ({"optimize": {}}, r"Did you mean 'optimise'"),
        ({"data": {"label": 3}}, r"`data\.label` should be a word\. Found 3"),
        ({"data": {"text": "title"}}, r"`data\.text` should be a list of words\. Found 'title'"),
        ({"exits": {"dropout": True}}, r"`exits\.dropout` should be a number\. Found True"),
    ],
)
def test_a_file_with_a_wrong_type_or_name_hears_what_should_be(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(tree)


# The tables.


def test_every_field_has_its_default_and_a_help_text() -> None:
    found = describe()
    assert set(found) == set(FIELDS)
    for key, (default, text) in found.items():
        stage, _, name = key.partition(".")
        assert default == getattr(getattr(Config(), stage), name)
        assert text.endswith(".")
        assert len(text.split()) >= 3


def test_every_choice_and_range_is_of_a_field_and_allows_its_default() -> None:
    assert set(CHOICES) | set(RANGES) <= set(FIELDS)
    assert set(NUMBERS) == set(RANGES)
    assert from_mapping(to_mapping(Config())) == Config()


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("objective.name", OBJECTIVES),
        ("policy.name", POLICIES),
        ("optimise.strategy", STRATEGIES),
        ("exits.kind", EXITS),
        ("alignment.scope", SCOPES),
        ("alignment.aggregator", ["drop", *AGGREGATORS]),
        ("data.views", VIEWS),
        ("optimise.metric", NAMES),
    ],
)
def test_the_choices_are_the_names_of_the_real_table(key: str, table: Iterable[str]) -> None:
    assert sorted(CHOICES[key]) == sorted(table)


@pytest.mark.parametrize("key", CHOICES)
def test_a_help_text_names_every_choice(key: str) -> None:
    _, text = describe()[key]
    assert [choice for choice in CHOICES[key] if f"`{choice}`" not in text] == []


def test_a_configuration_cannot_be_changed_in_place() -> None:
    for value in (Config(), *(getattr(Config(), stage) for stage in STAGES)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.name = "other"
