"""The model a run begins with: a loaded backbone with its tokenizer, and exits, fresh ones or those it goes on from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

from offramp.config import Config
from offramp.data.labels import Labels
from offramp.encoder.classifiers import load_classifier
from offramp.encoder.load import load_backbone, load_tokenizer
from offramp.exits.label_names import begin_from_names
from offramp.exits.linear import LinearExit
from offramp.exits.model import MultiExitModel, build
from offramp.exits.predecessor import Predecessor
from offramp.optimise.coherence import check_width
from offramp.optimise.static import check_static, full_model
from offramp.preparation import label_texts, token_limit
from offramp.reading import SET, TAGS


def begin(config: Config, labels: Labels, kind: type[MultiExitModel] = MultiExitModel) -> tuple[MultiExitModel, Any]:
    """A model for these labels, and its tokenizer. What is random comes from torch's own generator."""
    before = Predecessor.of(config)
    place = config.encoder.backbone, config.encoder.revision, config.encoder.attention
    tokenizer = load_tokenizer(*place[:2]) if before is None else before.tokenizer
    head = None
    # Loading draws too: a layer the folder lacks begins at random.
    if before is not None:
        backbone = before.model.encoder.backbone
    elif config.optimise.strategy == "grow":
        backbone, head = load_classifier(*place)
    else:
        backbone = load_backbone(*place)
    model = build(
        backbone,
        labels.names,
        kind,
        exit_kind=config.exits.kind,
        last_kind="" if config.exits.last == "same" else config.exits.last,
        exit_size=config.exits.size,
        exit_heads=config.exits.heads,
        exit_temperature=config.exits.temperature,
        exit_window=config.exits.window,
        exit_reads=config.exits.reads,
        exit_projection=config.exits.projection,
        exit_dropout=config.exits.dropout,
        sets=config.data.labels == SET,
        tags=config.data.labels == TAGS,
    )
    if head is not None:
        last = cast(LinearExit, model.exits[-1])
        last.pool = copy.deepcopy(head.pool)
        last.classifier = copy.deepcopy(head.classifier)
    taken = set[int]() if before is None else before.hand_over(model)
    if config.compress.teacher:
        model, tokenizer = full_model(Path(config.compress.teacher), labels.names)
    check_static(config, model)
    check_width(config, last=model.width(model.depth), below=model.width(1))
    model.config.max_tokens = token_limit(model, tokenizer, config.data.max_length)
    model.config.windows, model.config.overlap = config.data.windows, config.data.overlap
    model.read_windows(model.config.max_tokens if config.data.windows > 1 else 0)
    if config.exits.labels == "names" and not config.compress.teacher:
        begin_from_names(model, label_texts(tokenizer, labels, model.config.max_tokens), but=taken)
    return model, tokenizer
