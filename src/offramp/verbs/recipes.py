"""`offramp recipes`."""

from __future__ import annotations

from typing import Annotated

import typer

from offramp.verbs.options import Json
from offramp.verbs.printing import print_json


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this recipe with every field written out.")] = None,
    as_json: Json = False,
) -> None:
    """List the named configurations, or show one."""
    from offramp.config import load_recipe, to_mapping, to_toml
    from offramp.config import recipes as known

    if name is not None:
        config = load_recipe(name)
        if as_json:
            print_json(to_mapping(config))
        else:
            typer.echo(to_toml(config), nl=False)
        return
    found = known()
    if as_json:
        print_json([{"name": key, "about": about} for key, about in found.items()])
        return
    width = max(len(key) for key in found)
    for key, about in found.items():
        typer.echo(f"{key:<{width}}  {about}")
