"""MODEL -> PEOPLE: a line of JSON for each request and each event; the texts themselves are never among it."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any, TextIO

LOGGER = logging.getLogger("offramp.serve")


class JsonLines(logging.Formatter):
    """A record as one line of JSON.

    Of an exception its kind and its place are told, and not its message: that may quote a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        told: dict[str, Any] = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        told |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0] is not None:
            places = traceback.extract_tb(record.exc_info[2])
            told["error"] = record.exc_info[0].__name__
            told["at"] = [f"{place.filename}:{place.lineno} {place.name}" for place in places]
        return json.dumps(told, ensure_ascii=False)


def begin(stream: TextIO | None = None) -> None:
    """Send the server's log, and that of uvicorn below it, to a stream; to standard error unless told otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOGGER.name, "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler] if name != "uvicorn.error" else [], name == "uvicorn.error"
        logger.setLevel(logging.INFO)


def event(name: str, **facts: Any) -> None:
    """Write an event down."""
    LOGGER.info(name, extra={"facts": facts})
