"""MODEL -> PEOPLE: what a server takes, how long it waits, and whom it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from offramp.errors import ConfigError, UserError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Limits of a server; whatever is beyond one is refused with a reason."""

    max_batch: int = 32  # texts that run together
    max_wait: float = 0.002  # seconds that a text waits for others to join it
    queue: int = 1024  # texts that wait; also requests that are open at once
    max_texts: int = 64  # of a request
    max_characters: int = 20_000  # of a text
    max_bytes: int = 2_000_000  # of a request's body
    body_seconds: float = 10.0  # in which a body should have arrived
    answer_seconds: float = 30.0  # in which a request is answered or given up
    allow_uncertified: bool = False  # whether a request may leave earlier than the certificate lets it
    api_key: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("max_batch", "queue", "max_texts", "max_characters", "max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` should be at least 1. Found {getattr(self, name)}.")
        for name in ("body_seconds", "answer_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"`{name}` should be above 0. Found {getattr(self, name):g}.")
        if not 0 <= self.max_wait < math.inf:
            raise ConfigError(f"`max_wait` should be 0 seconds or more. Found {self.max_wait:g}.")
        if self.queue < self.max_texts:
            raise ConfigError(
                f"`queue` should have room for a whole request, {self.max_texts} texts (`max_texts`). "
                f"Found {self.queue}."
            )


def read_key(file: Path) -> bytes:
    """The key in a file, without the white space around it."""
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise UserError(f"`--api-key-file` should be a file that can be read. Found `{file}`: {error}.") from error
    if not key or not key.isascii() or len(key.split()) != 1:
        raise UserError(f"`{file}` should hold one key of ASCII characters without spaces. Found something else.")
    return key
