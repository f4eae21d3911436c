"""The page of the verbs, rendered from the command line itself."""

from __future__ import annotations

from typing import Any

import typer

from offramp.cli import app


def document() -> str:
    """The page."""
    lines = [
        "# Verbs",
        "",
        "Every verb of `offramp`, with what it takes. Results go to standard output, progress and warnings to standard",
        "error. Exit codes: 0 done, 2 misuse, 1 failure, 130 interrupted, 143 terminated. This page is rendered from",
        "the command line itself; `offramp VERB --help` says the same.",
    ]
    for name, command in commands().items():
        lines += ["", f"## {name}", "", str(command.help), ""]
        lines += [f"```text\n{_usage(name, command)}\n```", ""]
        lines += ["| | default | what it says |", "| --- | --- | --- |", *map(_row, _shown(command))]
    return "\n".join(lines) + "\n"


def commands() -> dict[str, Any]:
    """Each verb, `study run` and its like spelled out, in the order of `--help`."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        within = getattr(command, "commands", None)
        found |= {name: command} if within is None else {f"{name} {inner}": each for inner, each in within.items()}
    return found


def options(command: Any) -> set[str]:
    """The options that a verb knows, as they are typed."""
    return {spelled for each in command.params for spelled in (*each.opts, *each.secondary_opts) if spelled[:2] == "--"}


def _shown(command: Any) -> list[Any]:
    return [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]


def _arguments(command: Any) -> list[str]:
    return [_named(each) for each in _shown(command) if each.param_type_name == "argument"]


def _named(argument: Any) -> str:
    named = str(argument.metavar or argument.name.upper())
    return named if argument.required or named[0] == "[" else f"[{named}]"


def _usage(name: str, command: Any) -> str:
    needed = [
        f"{each.opts[0]} {each.name.upper()}" for each in _shown(command) if each.required and each.opts[0][0] == "-"
    ]
    return " ".join(["offramp", name, *_arguments(command), *needed, "[OPTIONS]"])


def _row(each: Any) -> str:
    if each.param_type_name == "argument":
        return f"| `{_named(each).strip('[]')}` | | {each.help} |".replace("FILE|-", "FILE\\|-")
    default = "" if each.default is None or each.is_flag or each.multiple or each.required else f"`{each.default}`"
    return f"| `{each.opts[0]}` | {default} | {each.help} |"
