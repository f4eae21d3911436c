"""MODEL -> PEOPLE: the process around the application: its address, its signals, its end."""

from __future__ import annotations

import math
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from offramp.errors import UserError
from offramp.serve import log
from offramp.serve.app import Served, create_app
from offramp.serve.facts import load
from offramp.serve.settings import ServeSettings


class _Server(uvicorn.Server):
    """A server that finishes what it accepted before it ends; SIGTERM is then a good end, Ctrl-C an interruption."""

    def __init__(self, config: uvicorn.Config, served: Served, place: str) -> None:
        super().__init__(config)
        self.served, self.place = served, place

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"Serving at {self.place}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.served.draining = True
        super().handle_exit(sig, frame)
        if sig == signal.SIGTERM:
            self._captured_signals.remove(sig)  # it would be raised again at the end


def run(folder: Path, host: str, port: int, settings: ServeSettings, threads: int | None = None) -> None:
    """Serve the model in a folder until a signal ends it."""
    classifier, state = load(folder, threads)
    app = create_app(classifier, state, settings, folder)
    place = listen(host, port)
    log.begin()
    log.event("start", model=folder.resolve().name, engine=classifier.engine_.name, certificate=state)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        # Whoever was accepted has had time to send the body and to be answered.
        timeout_graceful_shutdown=math.ceil(settings.body_seconds + settings.answer_seconds),
    )
    name, number = place.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    server = _Server(config, app.state.served, f"http://{shown}:{number}")
    server.run([place])
    if not server.started:
        sys.exit(1)


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; one that cannot be had is an error that says why."""
    place = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        place = socket.socket(family, kind, protocol)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except OSError as error:
        if place is not None:
            place.close()
        raise UserError(
            f"The server should be able to listen at {host}, port {port}. {error.strerror or error}: choose another "
            "with --host or --port."
        ) from error
    return place
