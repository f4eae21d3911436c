"""What one would write first: FastAPI around Hugging Face's pipeline. `python -m benchmarks.plain_server MODEL`."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

import offramp.exits.model  # noqa: F401 - makes the model known to Hugging Face


class Texts(BaseModel):
    texts: list[str]


def main(folder: str) -> None:
    app, classify = FastAPI(), pipeline("text-classification", folder)

    @app.post("/predict")
    def predict(given: Texts) -> list[dict[str, object]]:
        return [dict(found) for found in classify(given.texts)]

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        place.listen(2048)  # who comes before it runs waits
        print(f"Serving at http://127.0.0.1:{place.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([place])


if __name__ == "__main__":
    main(sys.argv[1])
