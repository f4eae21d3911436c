"""MODEL -> PEOPLE: what a request to predict may say, checked; and the sentence for one that says something else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from offramp.classifier import Classifier
from offramp.policies import FITTED, POLICIES
from offramp.policies.confidence import Confidence
from offramp.policies.scored import Scored
from offramp.serve.answering import Ask
from offramp.serve.choice import Choice
from offramp.serve.settings import ServeSettings
from offramp.types import Example


def _text(text: str, info: ValidationInfo) -> str:
    most = info.context.max_characters if info.context else len(text)
    if len(text) > most:
        raise PydanticCustomError("too_long", f"A text should have at most {most} characters. Found {len(text)}.")
    if not text.replace("\ufeff", "").strip():
        raise PydanticCustomError("blank", "A text should not be blank. Found one that is.")
    return text


def _texts(texts: list[Any], info: ValidationInfo) -> list[Any]:
    most = info.context.max_texts if info.context else len(texts)
    if not 1 <= len(texts) <= most:
        raise PydanticCustomError("count", f"There should be 1 to {most} texts. Found {len(texts)}.")
    if len({isinstance(text, tuple) for text in texts}) > 1:
        raise PydanticCustomError("mixed", "All texts should be pairs, or none. Found both.")
    return texts


def _whole(number: Any) -> Any:
    """2.0 is a whole number in JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


SEEN = r"[^\s\u001c-\u001f\u0085]"
"""A character that is not blank: what Python calls white space is a little more than what JSON Schema does."""
Text = Annotated[str, AfterValidator(_text), Field(json_schema_extra={"pattern": SEEN})]
Threshold = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_whole)]

EXAMPLES: list[Any] = [
    {"texts": ["where is my parcel", "you charged me twice"]},
    {"texts": ["where is my parcel"], "policy": "never", "detail": True},
    {"texts": ["where is my parcel"], "point": 0},
]


class PredictRequest(BaseModel):
    """Texts to answer. Without `policy`, `threshold`, `depth` and `point`, the policy in force decides who leaves."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": EXAMPLES})

    texts: Annotated[
        list[Text] | list[tuple[Text, Text]],
        AfterValidator(_texts),
        Field(description="The texts, or pairs of texts for a model that was trained on pairs."),
    ]
    policy: Annotated[str | None, Field(description="When a text leaves: `never`, `fixed`, `confidence`, ...")] = None
    threshold: Annotated[
        Threshold | None, Field(description="Score of the policy from which a text leaves; alone: of `confidence`.")
    ] = None
    depth: Annotated[Whole | None, Field(description="Where every text leaves, for `fixed`.")] = None
    point: Annotated[
        Whole | None, Field(description="Place on the dial that `/model` shows, from 0, where nobody leaves early.")
    ] = None
    detail: Annotated[bool, Field(description="Also tell what every exit says; every text then runs all layers.")] = (
        False
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.point is not None and (self.policy, self.threshold, self.depth) != (None, None, None):
            raise PydanticCustomError("both", "`point` should come without policy, threshold and depth. Found both.")
        return self

    @property
    def examples(self) -> list[Example]:
        """The texts as the data stage knows them."""
        return [Example(text) if isinstance(text, str) else Example(*text) for text in self.texts]

    @property
    def ask(self) -> Ask:
        """What the texts of this request have in common."""
        choice = Choice(self.policy, self.threshold, self.depth, self.point)
        return Ask(choice, not isinstance(self.texts[0], str), self.detail)


class BadRequest(Exception):
    """A body that is not a request; `status` is what HTTP says of it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def parse(body: bytes, settings: ServeSettings) -> PredictRequest:
    """The request in a body; what is not JSON is a bad request (400), other JSON one that cannot be processed (422)."""
    try:
        return PredictRequest.model_validate_json(body, context=settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise BadRequest(400, f"The body should be JSON in UTF-8. {first['msg']}.") from None
        raise BadRequest(422, _sentence(first)) from None


def schema(settings: ServeSettings, classifier: Classifier) -> dict[str, Any]:
    """The request as JSON Schema, with the limits of this server and what its model can be asked for."""
    found = PredictRequest.model_json_schema()
    single, paired = found["properties"]["texts"]["anyOf"]
    known = {None: [single, paired], False: [single], True: [paired]}[classifier.pairs_]
    found["properties"]["texts"]["anyOf"] = known
    if classifier.pairs_:
        found["examples"] = [{**each, "texts": [[text, text] for text in each["texts"]]} for each in EXAMPLES]
    for kind in known:
        kind |= {"minItems": 1, "maxItems": settings.max_texts}
        for text in [kind["items"], *kind["items"].get("prefixItems", [])]:
            if text.get("type") == "string":
                text["maxLength"] = settings.max_characters
    return found | {"anyOf": list(_ways(classifier))}


def _ways(classifier: Classifier) -> Iterator[dict[str, Any]]:
    """Which fields go together, and what they may say."""
    absent, certified = {"type": "null"}, classifier.certified_
    depth = {"enum": [None, *classifier.engine_.exits]}
    sure = _between(*Confidence.range)
    for threshold, place in ((sure, absent), (absent, depth)):
        yield {"properties": {"policy": absent, "threshold": threshold, "depth": place, "point": absent}}
    ready = {name for name in POLICIES if name not in FITTED or (certified and certified.tensors_of(name))}
    for name, kind in POLICIES.items():
        if name in ready and (kind.takes_words or not classifier.tags_):
            fields: dict[str, Any] = {"policy": {"const": name}, "threshold": absent, "point": absent}
            fields["depth"] = depth if name == "fixed" else absent
            wanted = ["policy"]
            if issubclass(kind, Scored):
                fields["threshold"] = _between(*kind.range)
                if not kind.range[0] <= classifier.config_.policy.threshold <= kind.range[1]:
                    fields["threshold"] = fields["threshold"]["anyOf"][0]  # the model's own would be none for it
                    wanted.append("threshold")
            yield {"properties": fields, "required": wanted}
    if certified is not None and certified.dial is not None:
        point = {"type": "integer", "minimum": 0, "maximum": len(certified.dial.points) - 1}
        alone = dict.fromkeys(("policy", "threshold", "depth"), absent)
        yield {"properties": {"point": point, **alone}, "required": ["point"]}


def _between(low: float, high: float) -> dict[str, Any]:
    bounds = {name: bound for name, bound in (("minimum", low), ("maximum", high)) if math.isfinite(bound)}
    return {"anyOf": [{"type": "number", **bounds}, {"type": "null"}]}


def _sentence(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("list[", "tuple[")))
    said = error["msg"].rstrip(".") + "."
    return said if error["type"] in ("both", "count", "mixed") or not place else f"`{place}`: {said}"
