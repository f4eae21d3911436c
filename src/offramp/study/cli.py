"""`offramp study VERB NAME`: the papers' tables and figures.

Results go to standard output, progress to standard error; heavy imports happen inside the verbs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.cluster.options import Address, OnRay, Workers, cluster_of
from offramp.errors import UserError

if TYPE_CHECKING:
    from offramp.study.views import Shown

app = typer.Typer(name="study", help="The papers' tables and figures: list, run, table, figure.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A study that `list` names, or a folder of your own.")]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke (seconds), cpu (an hour or a few), paper (with a GPU).")]
Results = Annotated[Path, typer.Option(help="Folder of the results, a JSON file for each run.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command("list")
def list_studies(as_json: Json = False) -> None:
    """List the studies that ship with offramp."""
    from offramp.study.runner import load_study, plan, studies

    found = [load_study(name) for name in studies()]
    if as_json:
        for study in found:
            runs = {scale: len(plan(study, scale)) for scale in study.scales}
            facts = {"name": study.name, "paper": study.paper, "place": study.place, "view": study.view}
            typer.echo(json.dumps({**facts, "about": study.about, "runs": runs}, ensure_ascii=False))
        return
    width = max((len(study.name) for study in found), default=0)
    for study in found:
        typer.echo(f"{study.name:<{width}}  {study.title}")


@app.command("run")
def run_study(
    name: Name,
    scale: ScaleName = "cpu",
    results: Results = Path("results"),
    jobs: Annotated[
        int, typer.Option(help="Runs at a time, in processes of their own; with --ray, --workers says it.")
    ] = 1,
    threads: Annotated[
        int,
        typer.Option(
            help="Threads of each run; 0: as many as those that are there had, or else the cores divided between the "
            "jobs, or 1 with --ray."
        ),
    ] = 0,
    only: Annotated[str, typer.Option(help="Runs that are asked for, as VARIANT/TASK/SEED; * matches any.")] = "",
    limit: Annotated[int, typer.Option(help="Make at most this many runs; 0: all that are missing.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it was stopped, as without this.")] = False,
    on_ray: OnRay = False,
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Make the runs that are missing; a killed run goes on, a finished study does nothing."""
    cluster = cluster_of(on_ray, address, workers, threads or None)

    from dataclasses import asdict

    from offramp.study import runner as study

    ended = study.run(study.load_study(name), scale, results, jobs, threads, only, limit, _say, cluster)
    if as_json:
        typer.echo(json.dumps({"study": name, "scale": scale, "results": str(results), **asdict(ended)}))
        return
    typer.echo(
        f"{ended.made} runs made, {ended.shared} shared with other studies, {ended.there} there before, "
        f"{ended.left} missing\nresults {results}"
    )


@app.command("table")
def print_table(
    name: Name,
    scale: ScaleName = "cpu",
    results: Results = Path("results"),
    geometry: Annotated[
        bool, typer.Option("--geometry", help="How the representations lie, instead of scores.")
    ] = False,
    html: Annotated[bool, typer.Option("--html", help="A page instead of Markdown, with the figure in it.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print a study's tables as Markdown, or as an HTML page, with the paper's own numbers beside ours."""
    from offramp.study.document import as_html, as_markdown

    shown = _shown(name, scale, results)
    text = as_html(shown, geometry) if html else as_markdown(shown, geometry)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(out, text.encode())


@app.command("figure")
def draw_figure(
    name: Name,
    out: Annotated[Path, typer.Option(help="File to write, .svg or .png.")],
    scale: ScaleName = "cpu",
    results: Results = Path("results"),
) -> None:
    """Draw a study's figure as SVG or PNG."""
    if out.suffix not in (".svg", ".png"):
        raise UserError(f"`--out` should be a file that ends in .svg or .png. Found `{out}`.")
    from offramp.study.pictures import picture

    drawn = picture(_shown(name, scale, results))
    _write(out, drawn.png() if out.suffix == ".png" else drawn.svg().encode())
    typer.echo(f"figure {out}")


def _shown(name: str, scale: str, results: Path) -> Shown:
    """A study with its results, of which there should be some."""
    from offramp.study.runner import load_study
    from offramp.study.views import Shown

    shown = Shown.of(load_study(name), scale, results)
    if not shown.results:
        raise UserError(
            f"`{results}` should hold results of {name} at the scale {scale}, made with its present settings. Found "
            f"none: run `offramp study run {name} --scale {scale}` first."
        )
    return shown


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise UserError(f"The output should go to a file that can be written. Found `{file}`: {error}.") from error


def _say(text: str) -> None:
    typer.echo(text, err=True)
