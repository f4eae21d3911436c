"""MODEL -> PEOPLE: what stands before the routes: the key, and bodies that are too large, too slow or too many.

A body is counted as it arrives and refused as soon as it is too large, so that nothing of that size is ever held.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from offramp.serve.replies import Headers, problem
from offramp.serve.settings import ServeSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCKED = ("/predict", "/model", "/metrics")
"""What a key is needed for; the page itself and whether the server is well are for everybody."""


class _Refusal(Exception):
    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status, self.headers = status, list(headers)


class Guard:
    """Lets through requests with the key and a body within the limits, the body whole."""

    def __init__(self, app: App, settings: ServeSettings) -> None:
        self.app, self.settings, self.open = app, settings, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check_key(scope)
            with self._place(scope):
                body = await self._body(scope, receive)
                if body is not None:
                    await self.app(scope, _replayed(body, receive), send)
        except _Refusal as refusal:
            await refuse(send, refusal.status, str(refusal), refusal.headers)

    def _check_key(self, scope: Scope) -> None:
        wanted = self.settings.api_key
        if wanted is None or scope["path"] not in LOCKED:
            return
        kind, _, given = _header(scope, b"authorization").partition(b" ")
        # The same time for every wrong key, be its first letters right or not.
        right = hmac.compare_digest(given.strip(), wanted)
        if kind.lower() != b"bearer" or not right:
            raise _Refusal(
                401, "The request should have the header `Authorization: Bearer KEY`.", (b"www-authenticate", b"Bearer")
            )

    @contextmanager
    def _place(self, scope: Scope) -> Iterator[None]:
        """One of the places for requests with texts; others, which cost nothing, need none."""
        if scope["path"] != "/predict":
            yield
            return
        if self.open >= self.settings.queue:
            raise _Refusal(503, "Too many requests are open. Try again in 1 s.", (b"retry-after", b"1"))
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client has gone."""
        most, told = self.settings.max_bytes, _header(scope, b"content-length")
        if told.isdigit() and int(told) > most:
            raise _too_large(most)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _too_large(most)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self.settings.body_seconds
            raise _Refusal(408, f"The body should arrive within {seconds:g} s. It did not.") from None


async def refuse(send: Send, status: int, message: str, headers: Headers) -> None:
    """Answer with a reason, and close the connection: some of the body may not have been read."""
    body = problem(message)
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": [*told, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _too_large(most: int) -> _Refusal:
    return _Refusal(413, f"The body should have at most {most} bytes. Found more.")


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
