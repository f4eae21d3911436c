"""The command line: `offramp VERB THING`.

Results go to standard output, progress and warnings to standard error. Exit codes: 0 done, 2 misuse, 1 failure,
130 interrupted, 143 terminated. Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from offramp import __version__
from offramp.errors import OfframpError, UserError
from offramp.process import Verbs, as_process
from offramp.serve.cli import serve
from offramp.study.cli import app as study
from offramp.verbs.calibrate import calibrate
from offramp.verbs.demo import demo
from offramp.verbs.evaluate import evaluate
from offramp.verbs.export import export
from offramp.verbs.hub import card, push
from offramp.verbs.predict import predict
from offramp.verbs.printing import say
from offramp.verbs.recipes import recipes
from offramp.verbs.split import split
from offramp.verbs.train import train
from offramp.verbs.tune import tune


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"offramp {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="offramp",
    cls=Verbs,
    help="Text classifiers with an exit after every layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def offramp(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    """Text classifiers with an exit after every layer."""


# As a reader of README meets them, which is how `--help` shows them.
for verb in (split, train, calibrate, evaluate, predict, export, serve, card, push, tune, recipes, demo):
    app.command()(verb)
app.add_typer(study)


def main() -> NoReturn:
    """The command line's entry: runs a verb and turns what goes wrong into a sentence and an exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        with as_process():
            app()
    except UserError as error:
        say(f"error: {error}")
        sys.exit(2)
    except OfframpError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """Warnings of ours are for the user; those of libraries are not."""
    if category.__module__.startswith("offramp"):
        say(f"warning: {message}")
