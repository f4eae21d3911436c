"""TOKENS -> LAYER STATES, and the head above them: a classifier that Hugging Face fine-tuned, taken apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from offramp.encoder.load import explained, locate, pretrained
from offramp.errors import ModelError
from offramp.types import Label


@dataclass(frozen=True)
class Head:
    """What a classifier makes of the first token's state: a dense layer, the family's activation, a linear layer."""

    pool: nn.Linear
    classifier: nn.Linear


HEADS: dict[str, Callable[[Any], Head]] = {
    "bert": lambda model: Head(model.bert.pooler.dense, model.classifier),
    "roberta": lambda model: Head(model.classifier.dense, model.classifier.out_proj),
    "xlm-roberta": lambda model: Head(model.classifier.dense, model.classifier.out_proj),
    "electra": lambda model: Head(model.classifier.dense, model.classifier.out_proj),
    "distilbert": lambda model: Head(model.pre_classifier, model.classifier),
    "deberta-v2": lambda model: Head(model.pooler.dense, model.classifier),
}
"""Hugging Face's `model_type` to where its sequence classifier keeps its head."""


def classifier_labels(backbone: str, revision: str = "") -> tuple[Label, ...]:
    """The labels of a fine-tuned classifier by class number; plain numbers where nobody named them."""
    from transformers import AutoConfig

    place = locate(backbone, revision)
    with explained(backbone):
        config = AutoConfig.from_pretrained(place.name, revision=place.revision, trust_remote_code=False)
    made = (config.architectures or [""])[0]
    if not made.endswith("ForSequenceClassification"):
        raise ModelError(
            f"Exits should be grown on a classifier that Hugging Face fine-tuned. Found `{backbone}`, which is "
            f"`{made or 'unnamed'}`: train it with another recipe, such as acl-multi-exit."
        )
    if config.model_type not in HEADS or getattr(config, "pooler_hidden_act", None) not in (None, "gelu"):
        raise ModelError(
            f"Exits should be grown on a classifier of a known family ({', '.join(HEADS)}). "
            f"Found `{config.model_type}`."
        )
    if config.num_labels < 2 or config.problem_type not in (None, "single_label_classification"):
        raise ModelError(
            "Exits should be grown on a classifier that gives each text one of two labels or more. Found "
            f"{config.num_labels} labels and the problem `{config.problem_type}`."
        )
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    unnamed = names == [f"LABEL_{number}" for number in range(len(names))]
    return tuple(range(len(names))) if unnamed else tuple(names)


def load_classifier(backbone: str, revision: str = "", attention: str = "sdpa") -> tuple[Any, Head]:
    """The backbone of a fine-tuned classifier, in float32, and its head."""
    from transformers import AutoModelForSequenceClassification

    model, lost = pretrained(AutoModelForSequenceClassification, backbone, revision, attention)
    if lost:
        raise ModelError(
            f"The classifier `{backbone}` should hold all its weights. {len(lost)} are missing, such as `{lost[0]}`."
        )
    return model.base_model, HEADS[model.config.model_type](model)
