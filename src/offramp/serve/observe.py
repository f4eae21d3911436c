"""MODEL -> PEOPLE: around everything: each request gets a number, a line in the log, and its place in the metrics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Any

from offramp.serve.guard import App, Message, Receive, Scope, Send, refuse
from offramp.serve.log import LOGGER, event
from offramp.serve.metrics import Metrics


class Observe:
    """Tells of every request what it was and how it ended; one that breaks is answered with 500."""

    def __init__(self, app: App, metrics: Metrics, paths: Collection[str]) -> None:
        self.app, self.metrics, self.paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        number, begun, status = uuid.uuid4().hex[:16], time.perf_counter(), 0
        facts: dict[str, Any] = {}  # what a route adds to the line
        scope.setdefault("state", {})["facts"] = facts

        async def numbered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), (b"x-request-id", number.encode())]}
            await send(message)

        try:
            await self.app(scope, receive, numbered)
        except Exception:
            LOGGER.exception("broken", extra={"facts": {"request": number}})
            if not status:
                await refuse(numbered, 500, f"The server failed. Its log knows why, under {number}.", [])
        seconds = time.perf_counter() - begun
        path = scope["path"] if scope["path"] in self.paths else "other"
        if status:
            self.metrics.replied(path, status, seconds)
        event(
            "request",
            request=number,
            method=scope["method"],
            path=path,
            status=status,
            ms=round(1000 * seconds, 2),
            **facts,
        )
