"""JSON that knows when it was changed: facts with a seal, the SHA-256 of the rest.

A seal tells damage, not malice: whoever can write the file can seal it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "seal"


def sealed(facts: Mapping[str, Any]) -> str:
    """The facts as JSON, with their seal."""
    seal = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return json.dumps({**facts, SEAL: seal}, indent=1) + "\n"


def unsealed(content: bytes) -> dict[str, Any]:
    """The facts in sealed JSON; anything else is a ValueError."""
    try:
        facts = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(facts, dict) or facts.pop(SEAL, None) is None or sealed(facts).encode() != content:
        raise ValueError("it is not what was written")
    return facts
