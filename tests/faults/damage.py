"""Ways to damage files: what a disk, a network or a careless hand does to them. Each is drawn, and told in a word."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD: list[Any] = [None, True, -1, 0, 10**30, 1e308, "", "../../etc/passwd", [], {}, [[]], "\ud800", float("nan")]


def flip(chance: random.Random, content: bytes) -> bytes:
    """Some bits changed."""
    found = bytearray(content or b"\0")
    for _ in range(chance.choice((1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def truncate(chance: random.Random, content: bytes) -> bytes:
    """The end gone."""
    return content[: chance.choice((0, chance.randrange(len(content) + 1), max(0, len(content) - 1)))]


def insert(chance: random.Random, content: bytes) -> bytes:
    """Bytes where there were none."""
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.randbytes(chance.choice((1, 4, 64))) + content[place:]


def blank(chance: random.Random, content: bytes) -> bytes:
    """A stretch of zeros, as a power cut leaves."""
    start = chance.randrange(len(content) + 1)
    stop = min(len(content), start + chance.choice((1, 64, 4096)))
    return content[:start] + bytes(stop - start) + content[stop:]


def edit_json(chance: random.Random, content: bytes) -> bytes:
    """One value of a JSON document changed, removed or added; other content is flipped."""
    try:
        tree = json.loads(content)
    except ValueError:
        return flip(chance, content)
    places = list(_containers(tree))
    if not places:
        return json.dumps(chance.choice(ODD)).encode()
    inner = chance.choice(places)
    keys: list[Any] = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
    what = chance.choice(("change", "remove", "add"))
    if what == "add" or not keys:
        inner.append(chance.choice(ODD)) if isinstance(inner, list) else inner.update(added=chance.choice(ODD))
    elif what == "remove":
        del inner[chance.choice(keys)]
    else:
        inner[chance.choice(keys)] = chance.choice(ODD)
    return json.dumps(tree).encode()


def _containers(tree: Any) -> Any:
    if isinstance(tree, dict | list):
        yield tree
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(inner)


CONTENTS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "bits flipped": flip,
    "truncated": truncate,
    "bytes inserted": insert,
    "blanked": blank,
}
"""Damages of one file's content."""


def damage_folder(chance: random.Random, folder: Path) -> str:
    """Damage something in a folder; what was done."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    what = chance.choice((*CONTENTS, "deleted", "swapped", "JSON edited"))
    file = chance.choice(files)
    if what == "deleted":
        file.unlink()
    elif what == "swapped":
        other = chance.choice([each for each in files if each != file])
        mine, theirs = file.read_bytes(), other.read_bytes()
        file.write_bytes(theirs)
        other.write_bytes(mine)
    elif what == "JSON edited":
        file = chance.choice([each for each in files if each.suffix == ".json"])
        file.write_bytes(edit_json(chance, file.read_bytes()))
    else:
        file.write_bytes(CONTENTS[what](chance, file.read_bytes()))
    return what
