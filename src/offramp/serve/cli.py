"""MODEL -> PEOPLE: `offramp serve MODEL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offramp.errors import MissingExtra


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `offramp train` or `export` wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 for any that is free.", min=0, max=65535)] = 8000,
    max_batch: Annotated[int, typer.Option(help="Most texts that run together.")] = 32,
    max_wait_ms: Annotated[float, typer.Option(help="How long a text waits for others to join it.")] = 2.0,
    queue: Annotated[int, typer.Option(help="Most texts that wait; more are answered with 503.")] = 1024,
    max_texts: Annotated[int, typer.Option(help="Most texts of a request.")] = 64,
    max_characters: Annotated[int, typer.Option(help="Most characters of a text.")] = 20_000,
    max_bytes: Annotated[int, typer.Option(help="Largest body of a request.")] = 2_000_000,
    timeout: Annotated[float, typer.Option(help="Seconds in which a request is answered or given up.")] = 30.0,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with a key that clients must send: `Authorization: Bearer KEY`.")
    ] = None,
    allow_uncertified: Annotated[
        bool, typer.Option("--allow-uncertified", help="Requests may leave earlier than the certificate lets them.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="Threads to run with; one per core unless given.")] = None,
) -> None:
    """Answer texts over HTTP, and show a page; many clients share batches."""
    from offramp.runtime.onnx_folder import check_any
    from offramp.serve.settings import ServeSettings, read_key

    check_any(model)
    settings = ServeSettings(
        max_batch=max_batch,
        max_wait=max_wait_ms / 1000,
        queue=queue,
        max_texts=max_texts,
        max_characters=max_characters,
        max_bytes=max_bytes,
        answer_seconds=timeout,
        allow_uncertified=allow_uncertified,
        api_key=None if api_key_file is None else read_key(api_key_file),
    )
    try:
        from offramp.serve.server import run
    except ImportError as error:
        raise MissingExtra(str(error.name), "serve") from error
    run(model, host, port, settings, threads)
