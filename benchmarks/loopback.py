"""A bounded client for servers on this machine: so many at once, so many requests, so long at most."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import quantiles

PATIENCE = 120.0  # seconds for all requests of a call
CONNECTIONS = 128  # that keep a steady rate while some wait for their answer


@dataclass
class Seen:
    """What clients have seen."""

    seconds: list[float] = field(default_factory=list)  # of each request that was answered
    statuses: Counter[int] = field(default_factory=Counter)  # 0: no answer
    texts: int = 0  # that were answered
    took: float = 0.0

    @property
    def throughput(self) -> float:
        """Texts per second."""
        return self.texts / self.took

    @property
    def p95(self) -> float:
        """Seconds within which 95 % of the requests were answered."""
        return quantiles(self.seconds, n=20)[-1] if len(self.seconds) > 1 else self.seconds[0]

    @property
    def failed(self) -> int:
        """Requests that were not answered."""
        return self.statuses.total() - self.statuses[200]


def closed_loop(port: int, texts: Sequence[str], clients: int, requests: int, each: int = 1) -> Seen:
    """Clients that each send a request, wait for its answer and send the next, until all requests are sent."""
    rows = [[texts[(number * each + place) % len(texts)] for place in range(each)] for number in range(requests)]
    bodies = iter([_request(row) for row in rows])

    async def client(seen: Seen) -> None:
        async with _Line(port) as line:
            for body in bodies:
                await line.timed(seen, body, each)

    return _together(client, clients)


def open_loop(port: int, texts: Sequence[str], each: int, per_second: float, seconds: float) -> Seen:
    """Requests of `each` texts at a steady rate, whether the server keeps up or not."""
    numbers: Iterator[int] = iter(range(int(per_second * seconds)))
    body = _request([texts[number % len(texts)] for number in range(each)])
    begun = time.perf_counter()

    async def client(seen: Seen) -> None:
        async with _Line(port) as line:
            for number in numbers:
                await asyncio.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
                await line.timed(seen, body, each)

    return _together(client, CONNECTIONS)


def one(port: int, text: str) -> tuple[int, float]:
    """Status and seconds of a single request."""
    seen = closed_loop(port, [text], 1, 1)
    return next(iter(seen.statuses)), seen.took


def _together(client: Callable[[Seen], Awaitable[None]], clients: int) -> Seen:
    async def run() -> Seen:
        seen, begun = Seen(), time.perf_counter()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(client(seen) for _ in range(clients)))
        seen.took = time.perf_counter() - begun
        return seen

    return asyncio.run(run())


class _Line:
    """A connection that is opened again where the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> _Line:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def timed(self, seen: Seen, request: bytes, texts: int) -> None:
        """Send a request and write down how it ended."""
        begun = time.perf_counter()
        status, closed = await self._ask(request)
        seen.statuses[status] += 1
        if status == 200:
            seen.seconds.append(time.perf_counter() - begun)
            seen.texts += texts
        if closed:
            await self.__aexit__()
            await self.__aenter__()

    async def _ask(self, request: bytes) -> tuple[int, bool]:
        """The status of the reply, which is read and dropped, and whether the connection ends with it."""
        self.writer.write(request)
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            size = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            await self.reader.readexactly(int(size.split(b":")[1]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, True
        return int(head.split(b" ", 2)[1]), b"connection: close" in head


def _request(texts: Sequence[str]) -> bytes:
    body = json.dumps({"texts": list(texts)}).encode()
    head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
