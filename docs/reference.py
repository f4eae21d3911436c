"""Pages of the site that are made from the code: the reference from docstrings, the examples from `examples/`.

MkDocs loads this file as a hook. The tables of the code say what there is, so a new objective is on its page without
anybody writing it there.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from offramp.config import CHOICES
from offramp.objectives import OBJECTIVES
from offramp.policies import POLICIES

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\]\((?:\.\./)+(examples/)?([\w-]+)\.(?:py|md)\)")
"""A link out of `docs`, to an example or to a document at the root."""
AT_ROOT = ("CONTRIBUTING", "SECURITY", "CHANGELOG")


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _exit(name: str) -> str:
    return _full(getattr(import_module(f"offramp.exits.{name}"), f"{name.title()}Exit"))


REFERENCE: dict[str, tuple[str, list[str]]] = {
    "classifier": (
        "Classifier",
        ["offramp.classifier.Classifier", "offramp.classifier.Prediction", "offramp.hugging_face"],
    ),
    "model": ("Model", ["offramp.exits.model.MultiExitModel", "offramp.exits.model.MultiExitConfig"]),
    "objectives": ("Objectives", ["offramp.objectives.objective", *map(_full, OBJECTIVES.values())]),
    "exits": ("Exits", ["offramp.exits.base.Exit", *map(_exit, CHOICES["exits.kind"])]),
    "policies": ("Policies", ["offramp.policies.policy", *map(_full, POLICIES.values())]),
    "calibration": (
        "Calibration",
        [f"offramp.policies.{name}" for name in ("calibrate", "certificate", "evidence", "terms")],
    ),
    "configuration": ("Configuration", ["offramp.config"]),
    "values": ("Values", ["offramp.types"]),
    "errors": ("Errors", ["offramp.errors"]),
}
"""Page, its title, and the names whose docstrings it shows."""


def made() -> dict[str, str]:
    """Each page that is made, by its place on the site."""
    pages = {
        f"reference/{page}.md": f"# {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)
        for page, (title, names) in REFERENCE.items()
    }
    return pages | {"examples.md": _examples()} | {f"{name}.md": _at_root(name) for name in AT_ROOT}


def _examples() -> str:
    parts = ["# Examples\n\nShort programs to start from. The tests run each of them.\n"]
    for file in sorted((ROOT / "examples").glob("*.py")):
        code = file.read_text("utf-8")
        about = ast.get_docstring(ast.parse(code))
        parts.append(f'## {file.stem}\n\n{about}\n\n```python title="examples/{file.name}"\n{code.rstrip()}\n```\n')
    return "\n".join(parts)


def _at_root(name: str) -> str:
    return (ROOT / f"{name}.md").read_text("utf-8").replace("](docs/", "](")


def inward(markdown: str, depth: int) -> str:
    """The page with its links out of `docs` leading to the pages that are made of their ends.

    >>> inward("[a](../examples/own_loop.py) [b](../SECURITY.md)", 0)
    '[a](examples.md#own_loop) [b](SECURITY.md)'
    """

    def led(found: re.Match[str]) -> str:
        name = found[2]
        place = f"examples.md#{name}" if found[1] else f"{name}.md"
        return f"]({'../' * depth}{place})"

    return OUTSIDE.sub(led, markdown)


def on_files(files: Files, config: Any) -> Files:
    """MkDocs has found the files: add those that are made."""
    for place, text in made().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs has read a page."""
    return inward(markdown, page.file.src_uri.count("/"))
