"""Docstrings on the site: a doctest is shown as code, where Markdown would take `>>>` for a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""From the first `>>>` to the next blank line."""


def fenced(docstring: str) -> str:
    """The docstring with every doctest in a fence.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)


class Doctests(griffe.Extension):
    """Fences the doctests of everything that the site shows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for each module, class, function and attribute it has read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
