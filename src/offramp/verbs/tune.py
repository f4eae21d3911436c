"""`offramp tune`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from offramp.cluster.options import Address, OnRay, Workers, cluster_of
from offramp.config import DEFAULT_RECIPE
from offramp.errors import need
from offramp.verbs.options import Json, LabelColumn, Settings, TextColumns
from offramp.verbs.printing import console, print_json, say


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Labelled texts to train on.")],
    out: Annotated[Path, typer.Option(help="Folder for the search; the same command goes on with it.")],
    validation: Annotated[str | None, typer.Option(help="Labelled texts that score; held out unless given.")] = None,
    space: Annotated[
        str, typer.Option(help="What is searched: auto, lacon-grid, lacon-rates, acl-weights or a TOML file.")
    ] = "auto",
    trials: Annotated[int | None, typer.Option(help="Trials in all; 20, or the whole grid, unless given.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each trial; the mean of their scores counts.")] = 1,
    recipe: Annotated[str, typer.Option(help="Named configuration that is tuned.")] = DEFAULT_RECIPE,
    backbone: Annotated[
        str | None, typer.Option(help="minilm-l6, a Hugging Face name, a folder, or a model to go on from.")
    ] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search and of the first run of each trial.")] = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search in --out, as without this.")] = False,
    on_ray: OnRay = False,
    address: Address = None,
    workers: Workers = None,
    threads: Annotated[int | None, typer.Option(help="`--ray`: threads of each worker; 1 unless given.")] = None,
    as_json: Json = False,
) -> None:
    """Search for the settings that validate best; killed, the same command goes on."""
    from offramp.config import load_recipe, override
    from offramp.data.presence import check_data
    from offramp.spaces import space_of

    cluster = cluster_of(on_ray, address, workers, threads, {"--threads": threads})
    changed = [*(settings or []), *([f"encoder.backbone={backbone}"] if backbone else [])]
    changed += [f"data.text={json.dumps(text, ensure_ascii=False)}"] if text else []
    changed += [f"data.label={label}"] if label else []
    changed += [f"optimise.seed={seed}"] if seed is not None else []
    config = override(load_recipe(recipe), changed)
    searched = space_of(space, config)
    need("optuna", "tune")
    check_data(data)
    check_data(validation)

    from offramp.data.sources import columns, read
    from offramp.progress import ProgressBar
    from offramp.tuning import Plan, Trial
    from offramp.tuning import tune as search

    how = columns(config.data)
    held = read(validation, **how) if validation else None
    plan = Plan(config, searched, read(data, **how), held, trials, seeds)

    def told(trial: Trial, wanted: int) -> None:
        score = "broke off" if trial.score is None else f"{trial.score:.4f}"
        say(f"trial {trial.number + 1} of {wanted}: {score}  {_settings(trial.settings)}")

    with ProgressBar(console()) as bar:
        found = search(plan, out, bar, told, cluster)
    if as_json:
        print_json({"out": str(out), **found.to_json()})
        return
    typer.echo(f"best of {len(found.trials)} trials: validation {found.metric} {found.best.score:.4f}")
    for key, value in found.best.settings.items():
        share = f"  importance {found.importance[key]:.2f}" if key in found.importance else ""
        typer.echo(f"--set {key}={value}{share}")
    typer.echo(f"settings {out / 'best.toml'}")


def _settings(values: dict[str, Any]) -> str:
    return "  ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()
    )
