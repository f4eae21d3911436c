"""MODEL -> PEOPLE: the HTTP application: routes around a model whose lanes share one queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from offramp import __version__
from offramp.classifier import Classifier
from offramp.data.tokens import check_kind
from offramp.errors import UserError
from offramp.serve.answering import Answer, Answerer, Ask, ExitAnswer
from offramp.serve.batcher import Batcher, Closed, QueueFull
from offramp.serve.choice import Bolder, Choice, Choices
from offramp.serve.facts import about
from offramp.serve.guard import Guard
from offramp.serve.metrics import Metrics
from offramp.serve.observe import Observe
from offramp.serve.replies import ModelReply, PredictReply, Problem, StateReply, problem
from offramp.serve.requests import BadRequest, parse, schema
from offramp.serve.settings import ServeSettings
from offramp.types import Example

DESCRIPTION = "Text classification with an exit after every layer: each text leaves where it can be trusted to."
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'"
"""What the page may load: its own files and nothing else."""
TOLD = {
    400: "The body is not JSON in UTF-8.",
    401: "The key is missing or wrong.",
    403: "The policy is bolder than the certificate, and the server does not allow that.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    422: "The request asks for what cannot be.",
    500: "The server failed.",
    503: "The queue is full, or the server is shutting down; `Retry-After` says when to try again.",
}


class Served:
    """A model in service: its queue, its lanes, its metrics."""

    def __init__(self, classifier: Classifier, state: str, settings: ServeSettings, folder: Path | None) -> None:
        self.classifier, self.settings = classifier, settings
        self.about = json.dumps(about(classifier, state, settings, folder)).encode()
        self.choices = Choices(classifier, settings.allow_uncertified)
        self.batcher: Batcher[Ask, Example, Answer] | None = None
        self.metrics = Metrics(classifier.engine_.depth, state, lambda: self.batcher.waiting if self.batcher else 0)
        self.draining = False

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Lanes begin, and end when everything that was accepted is answered."""
        with ExitStack() as stack:
            lane, count = stack.enter_context(self.classifier.engine_.lanes())
            answerer = Answerer(self.classifier, self.choices, lane, count)
            paired = bool(self.classifier.pairs_)
            warm = Example("warm", "warm" if paired else None)
            for number in range(count):  # the first batch of a thread is slow, and nobody should wait for it
                answerer(number, Ask(Choice(), paired), [warm])
            held = self.settings
            self.batcher = Batcher(answerer, count, held.max_batch, held.max_wait, held.queue, self.metrics.ran)
            yield
            self.draining = True
            await asyncio.to_thread(self.batcher.close)

    # --- routes

    async def predict(self, request: Request) -> Response:
        """Answer texts; those of many requests run together."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, "The header `Content-Type` should be application/json.")
        asked = parse(await request.body(), self.settings)
        request.scope["state"]["facts"] |= {"texts": len(asked.texts), "detail": asked.detail}
        self.choices.find(asked.ask.choice)  # what cannot be is refused before it waits
        if self.classifier.pairs_ is not None:
            check_kind(asked.ask.paired, self.classifier.pairs_)
        assert self.batcher is not None
        waiting = asyncio.wrap_future(self.batcher.submit(asked.ask, asked.examples))
        try:
            answers = await asyncio.wait_for(waiting, self.settings.answer_seconds)
        except TimeoutError:
            seconds = self.settings.answer_seconds
            raise HTTPException(503, f"There was no answer within {seconds:g} s.", {"retry-after": "1"}) from None
        self.metrics.answered(answers)
        found: dict[str, Any] = {"answers": [_told(answer) for answer in answers]}
        found["layers"] = self.classifier.engine_.depth
        if asked.detail:
            found["labels"] = list(self.classifier.labels_.names)
        return _json(json.dumps(found).encode())

    async def model(self) -> Response:
        """The labels, the depths, and what is promised."""
        return _json(self.about)

    async def healthz(self) -> Response:
        """Whether the process runs."""
        return _json(b'{"status": "ok"}')

    async def readyz(self) -> Response:
        """Whether texts would be taken now."""
        if self.batcher is None or self.draining:
            raise HTTPException(503, "The server is not ready.", {"retry-after": "1"})
        if self.batcher.waiting >= self.settings.queue:
            raise HTTPException(503, "The queue is full.", {"retry-after": "1"})
        return _json(b'{"status": "ready"}')

    async def show_metrics(self) -> Response:
        """Counters and histograms for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def create_app(
    classifier: Classifier, state: str, settings: ServeSettings | None = None, folder: Path | None = None
) -> FastAPI:
    """The application around a model; `state` is that of its certificate, `folder` where it lies."""
    settings = settings or ServeSettings()
    served = Served(classifier, state, settings, folder)
    app = FastAPI(
        title="offramp",
        version=__version__,
        description=DESCRIPTION,
        lifespan=served.lifespan,
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
        exception_handlers=dict.fromkeys((BadRequest, UserError, QueueFull, Closed, HTTPException), _refused),
    )
    app.state.served = served
    _route(app, "/predict", served.predict, PredictReply, (400, 401, 403, 408, 413, 415, 422, 500, 503), "POST")
    _route(app, "/model", served.model, ModelReply, (401,))
    _route(app, "/healthz", served.healthz, StateReply, ())
    _route(app, "/readyz", served.readyz, StateReply, (503,))
    _route(app, "/metrics", served.show_metrics, None, (401,))
    for path in PAGE:
        app.add_api_route(path, _page(path), include_in_schema=False)
    app.openapi = lambda: _openapi(app, settings, classifier)  # type: ignore[method-assign]
    paths = {*PAGE, "/predict", "/model", "/healthz", "/readyz", "/metrics", "/openapi.json"}
    app.user_middleware = [
        Middleware(Observe, metrics=served.metrics, paths=paths),
        Middleware(Guard, settings=settings),
    ]
    return app


def _route(app: FastAPI, path: str, handler: Any, reply: Any, refusals: tuple[int, ...], method: str = "GET") -> None:
    told: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem, "description": TOLD[status]} for status in refusals
    }
    if reply is None:
        told[200] = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics."}
    else:
        told[200] = {"model": reply}
    app.add_api_route(path, handler, methods=[method], responses=told, response_class=Response, name=path.strip("/"))


def _openapi(app: FastAPI, settings: ServeSettings, classifier: Classifier) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        content = {"application/json": {"schema": schema(settings, classifier)}}
        made["paths"]["/predict"]["post"]["requestBody"] = {"required": True, "content": content}
        if settings.api_key is not None:
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path in ("/predict", "/model", "/metrics"):
                for operation in made["paths"][path].values():
                    operation["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _page(path: str) -> Any:
    name, kind = PAGE[path]
    content = (files("offramp.serve") / "page" / name).read_bytes()
    headers = {"content-type": kind, "content-security-policy": POLICY, "x-content-type-options": "nosniff"}

    async def show() -> Response:
        return Response(content, headers={**headers, "cache-control": "no-cache", "referrer-policy": "no-referrer"})

    return show


def _told(answer: Answer) -> dict[str, Any]:
    """The answer as JSON has it: with a label, with the labels of a set, or with tags and spans."""
    if answer.tagged is not None:
        told = {name: getattr(answer, name) for name in ("probability", "depth", "certified", "cut")}
        told |= {name: value for name, value in asdict(answer.tagged).items() if name in TAGGED}
        if answer.exits is not None:
            told["exits"] = [_told_exit(exit) for exit in answer.exits]
        return told
    names = ("label",) if answer.labels is None else ("labels", "probabilities")
    told = {name: getattr(answer, name) for name in (*names, "probability", "depth", "certified", "cut")}
    if answer.exits is not None:
        of_exit = ("depth", "trained", names[0], "probabilities", "distances")
        told["exits"] = [{name: getattr(exit, name) for name in of_exit} for exit in answer.exits]
    return told


TAGGED = ("words", "tags", "probabilities", "depths", "spans")


def _told_exit(exit: ExitAnswer) -> dict[str, Any]:
    """What an exit says of the words of a text."""
    found = asdict(exit.tagged) if exit.tagged is not None else {}
    told: dict[str, Any] = {"depth": exit.depth, "trained": exit.trained}
    return told | {name: found[name] for name in ("tags", "probabilities", "spans") if name in found}


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    """What is said of a request that is not answered."""
    status, headers = 422, {}
    if isinstance(error, HTTPException):
        status, headers = error.status_code, dict(error.headers or {})
    elif isinstance(error, BadRequest):
        status = error.status
    elif isinstance(error, Bolder):
        status = 403
    elif isinstance(error, QueueFull | Closed):
        status, headers = 503, {"retry-after": str(getattr(error, "seconds", 1))}
    told = error.detail if isinstance(error, HTTPException) else str(error)
    return Response(problem(told), status, headers, media_type="application/json")
