"""Fenced blocks of a document: what stands in them, and what their fence says of them.

A fence says what a block is by its language, and by its title what else a reader should know: the name of the file that
the block is, what a command needs, or that it stays running. The site shows the title above the block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(
    r'^```(?P<language>[\w-]*)(?: title="(?P<title>[^"]*)")?(?P<rest>[^\n]*)\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
RENDERED = re.compile(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->", re.DOTALL)

RUN = ("python", "sh", "console")
SHOWN = ("text", "nginx")
WRITTEN = ("toml", "json", "csv")
STAYS = "stays running"
NEEDS = "needs "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    line: int
    language: str
    title: str
    code: str
    rendered: bool  # written by `python -m docs render`
    printed: bool  # stands right behind the block before: what that prints

    @property
    def runs(self) -> bool:
        """Whether a test runs it."""
        return self.language in RUN and not self.title.startswith(NEEDS)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text("utf-8")
    made = [range(*found.span()) for found in RENDERED.finditer(text)]
    found: list[Block] = []
    end = -1
    for fence in FENCE.finditer(text):
        if fence["rest"]:
            first = fence[0].splitlines()[0]
            raise ValueError(f'{page.name}: a fence should be ```language, or ```language title="...". Found {first}')
        behind = bool(found) and found[-1].runs and not text[end : fence.start()].strip()
        line = text.count("\n", 0, fence.start()) + 1
        rendered = any(fence.start() in span for span in made)
        printed = behind and fence["language"] == "text"
        found.append(Block(line, fence["language"], fence["title"] or "", fence["code"], rendered, printed))
        end = fence.end()
    if text.count("\n```") + text.startswith("```") != 2 * len(found):
        raise ValueError(f"{page.name}: every fence should be opened and closed at the beginning of a line.")
    return found
