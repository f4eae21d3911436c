"""What is searched: the presets are the papers', a derived space is of the recipe, a file is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.config import load_recipe, override, recipes
from offramp.errors import ConfigError
from offramp.optimise.coherence import check
from offramp.spaces import SPACES, Range, derived, space_of


def test_lacons_grid_is_the_papers() -> None:
    grid = space_of("lacon-grid", load_recipe("lacon"))
    assert grid.grid
    assert grid.fields["objective.temperature"] == (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    assert grid.fields["objective.weight"] == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert grid.size() == 100
    rates = space_of("lacon-rates", load_recipe("lacon-paper"))
    assert rates.fields["optimise.lr_backbone"] == rates.fields["optimise.lr_exit"] == (1e-5, 2e-5, 3e-5)
    assert rates.fields["optimise.batch_size"] == (8, 16, 32, 64, 96)
    assert rates.size() == 45


@pytest.mark.parametrize("name", recipes())
def test_every_corner_of_a_derived_space_is_a_configuration_that_goes_together(name: str) -> None:
    config = load_recipe(name)
    space = derived(config)
    assert space.size() is None
    for end in (0, -1):
        corner = {
            key: ((values.low, values.high) if isinstance(values, Range) else values)[end]
            for key, values in space.fields.items()
        }
        check(override(config, [f"{key}={value}" for key, value in corner.items()]))


def test_a_derived_space_holds_the_recipes_own_values_and_what_its_objective_reads() -> None:
    config = load_recipe("acl-multi-exit")
    fields = derived(config).fields
    assert set(fields) == {
        "optimise.lr_backbone", "optimise.lr_exit", "optimise.batch_size",
        "objective.temperature", "objective.weight", "stage2.lr", "stage2.temperature", "stage2.weight",
    }  # fmt: skip
    for key, values in fields.items():
        stage, _, name = key.partition(".")
        value = getattr(getattr(config, stage), name)
        assert values.low <= value <= values.high if isinstance(values, Range) else value in values
    assert set(derived(load_recipe("ce")).fields) == {
        "optimise.lr_backbone", "optimise.lr_exit", "optimise.batch_size",
    }  # fmt: skip
    assert derived(load_recipe("lacon")).fields["objective.heads"] == (1, 2, 3, 4, 6, 8, 12)
    narrow = override(load_recipe("lacon"), ["exits.kind=mha", "exits.size=32"])
    assert derived(narrow).fields["objective.heads"] == (1, 2, 4, 8)


def test_a_file_tells_a_space(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'about = "Mine."\n[fields]\n"objective.temperature" = {low = 0.1, high = 1.0, log = true}\n'
        '"optimise.epochs" = {low = 1, high = 4}\n"objective.reduction" = ["sum", "mean"]\n'
    )
    space = space_of(str(file), load_recipe("scl"))
    assert (space.about, space.grid, space.size()) == ("Mine.", False, None)
    assert space.fields == {
        "objective.temperature": Range(0.1, 1.0, True),
        "optimise.epochs": Range(1, 4),
        "objective.reduction": ("sum", "mean"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fields]\n", "should have a table `fields`"),
        ('[field]\n"objective.heads" = [1]\n', "Found field in"),
        ('[fields]\n"objective.temperature" = {low = 1.0, high = 0.1}\n', "with low below high"),
        ('[fields]\n"objective.weight" = {low = 0.0, high = 0.1, log = true}\n', "above 0 for log"),
        ('[fields]\n"objective.weight" = 0.5\n', "should be a list of values"),
        ('[fields]\n"objective.wieght" = [0.5]\n', "Did you mean 'objective.weight'"),
        ('[fields]\n"objective.weight" = [0.5, 7.0]\n', "between 0 and 1. Found 7.0"),
        ('grid = true\n[fields]\n"objective.weight" = {low = 0.1, high = 0.2}\n', "A grid should have lists only"),
        ("fields = ", "a TOML file that can be read"),
    ],
)
def test_a_file_that_tells_no_space_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        space_of(str(file), load_recipe("scl"))


def test_a_space_is_found_by_its_name_and_a_near_name_is_offered() -> None:
    assert {"lacon-grid", "lacon-rates", "acl-weights"} == set(SPACES)
    with pytest.raises(ConfigError, match="'lacon-grid'"):
        space_of("lacon_grid", load_recipe("lacon"))
    with pytest.raises(ConfigError, match="can be read"):
        space_of("absent.toml", load_recipe("lacon"))
