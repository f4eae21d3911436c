"""MODEL -> PEOPLE: the shapes of what the server says, for its OpenAPI; and how it says what is wrong."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict

Headers = list[tuple[bytes, bytes]]


class SpanReply(BaseModel):
    """Words that together were given a label: `start` and `end` count characters, `words` are first and next."""

    label: str
    start: int
    end: int
    text: str
    words: tuple[int, int]
    probability: float
    depth: int


class ExitReply(BaseModel):
    """What the exit at one depth says of a text.

    A model that tags words has the tag of each word, its probability and the spans, and no distances.
    """

    depth: int
    trained: bool
    label: str | int | None = None
    labels: list[str | int] | None = None
    probabilities: list[float | None]
    distances: list[float] | None = None
    tags: list[str | int | None] | None = None
    spans: list[SpanReply] | None = None


class AnswerReply(BaseModel):
    """What a text was answered, how surely, where it left, and whether a certificate stands behind that.

    A model that gives sets of labels answers with `labels` and the probability of each, one that tags words with
    `words`, a tag, a probability and a depth for each of them (null for a word that was cut off) and `spans`, any other
    with `label`.
    """

    label: str | int | None = None
    labels: list[str | int] | None = None
    probability: float
    depth: int
    certified: bool
    cut: bool
    words: list[str] | None = None
    tags: list[str | int | None] | None = None
    probabilities: list[float | None] | None = None
    depths: list[int | None] | None = None
    spans: list[SpanReply] | None = None
    exits: list[ExitReply] | None = None


class PredictReply(BaseModel):
    """The answers, in the order of the texts. `labels` names the columns of `probabilities` and `distances`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "answers": [
                        {"label": "delivery", "probability": 0.97, "depth": 1, "certified": True, "cut": False},
                    ],
                    "layers": 6,
                }
            ]
        }
    )

    answers: list[AnswerReply]
    layers: int
    labels: list[str | int] | None = None


class PointReply(BaseModel):
    """A point of the dial, as measured on the certification texts."""

    mean_depth: float
    accuracy: float | None
    harms: int
    certified: bool
    promise: str


class DialReply(BaseModel):
    """Points from the best quality, where nobody leaves early, to the highest speed."""

    points: list[PointReply]
    chosen: int
    texts: int


class ScoresReply(BaseModel):
    """What every exit scored, had all texts left there."""

    metric: str
    source: str
    by_exit: dict[str, float]


class ModelReply(BaseModel):
    """The model that answers."""

    name: str
    engine: str
    layers: int
    exits: list[int]
    trained: list[int]
    labels: list[str | int]
    label_sets: bool
    word_tags: bool
    text_pairs: bool | None
    max_tokens: int
    policy: dict[str, Any]
    promise: str | None
    certificate: dict[str, Any] | None
    certificate_state: str
    dial: DialReply | None
    scores: ScoresReply | None
    limits: dict[str, int]
    allow_uncertified: bool


class StateReply(BaseModel):
    """Whether the server is well."""

    status: str


class Problem(BaseModel):
    """What went wrong: what should be, what was found, what to do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "There should be 1 to 64 texts. Found 0."}]})

    error: str


def problem(message: str) -> bytes:
    """The body of an answer that tells what went wrong."""
    return json.dumps({"error": message}).encode()
