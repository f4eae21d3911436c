"""The hashes that SECURITY.md speaks of, from what `pip install --dry-run --report` writes; see the Makefile."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

APART = ("torch", "offramp")  # one has other builds for other processors, the other is what is installed
HEAD = """\
# The SHA-256 of every package that offramp needs, as pip resolves it on Linux, x86-64, with Python 3.11; torch is
# left out. Written by `make hashes`."""


def lines(report: dict[str, Any]) -> Iterable[str]:
    """A requirement with its hash for each package that pip would install."""
    for each in sorted(report["install"], key=lambda each: each["metadata"]["name"].lower()):
        name, version = each["metadata"]["name"], each["metadata"]["version"]
        if name.lower() not in APART:
            yield f"{name}=={version} --hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"


if __name__ == "__main__":
    print("\n".join([HEAD, *lines(json.load(sys.stdin))]))
