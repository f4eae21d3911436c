"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the model, a backbone with an exit after every layer.

A Hugging Face `PreTrainedModel`: `from_pretrained` and `save_pretrained` know it. `offramp.hugging_face` makes it known
to the auto classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from offramp.encoder.layers import Encoder
from offramp.errors import ConfigError, unknown_name
from offramp.exits.base import FIRST, MEAN, Exit
from offramp.exits.heads import narrow
from offramp.exits.kinds import EXITS
from offramp.exits.linear import LinearExit
from offramp.exits.projection import OWN, PROJECTIONS
from offramp.types import Batch, ExitOutput, Label, States

SETS = "multi_label_classification"
"""What Hugging Face calls it when each text has a set of labels."""


class MultiExitConfig(PreTrainedConfig):
    """What a model is made of: the backbone's own configuration, the exits, the labels."""

    model_type = "offramp"
    has_no_defaults_at_init = True
    tags = False  # whether each word has a tag, and not each text a label
    pairs: bool | None = None  # whether it learnt pairs of texts; None where nobody has said

    def __init__(
        self,
        backbone: dict[str, Any] | None = None,
        labels: Sequence[Label] = (),
        exit_kind: str = "mha",
        last_kind: str = "",
        exit_size: int = 64,
        exit_heads: int = 4,
        exit_temperature: float = 0.1,
        exit_window: int = 5,
        exit_reads: str = FIRST,
        exit_projection: str = OWN,
        exit_dropout: float = 0.1,
        layer_heads: Sequence[int] = (),
        trained_exits: Sequence[int] = (),
        max_tokens: int = 256,
        windows: int = 1,
        overlap: int = 0,
        sets: bool = False,
        tags: bool = False,
        pairs: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self.backbone = backbone or {}
        self.labels = list(labels)
        self.exit_kind = exit_kind
        self.last_kind = last_kind or exit_kind
        self.exit_size = exit_size
        self.exit_heads = exit_heads
        self.exit_temperature = exit_temperature
        self.exit_window = exit_window
        self.exit_reads = exit_reads
        self.exit_projection = exit_projection
        self.exit_dropout = exit_dropout
        self.layer_heads = list(layer_heads)  # of each layer, where some were removed; empty: all are there
        self.trained_exits = list(trained_exits)
        self.max_tokens = max_tokens  # of a text, or of each of its windows
        self.windows = windows
        self.overlap = overlap
        if sets:
            kwargs["problem_type"] = SETS  # by which Hugging Face's pipelines know
        if tags:
            self.tags = True  # a folder of any other model does not speak of it
        if pairs is not None:
            self.pairs = pairs
        kwargs.setdefault("architectures", ["MultiExitModel"])
        if self.labels:
            kwargs["id2label"] = {index: str(label) for index, label in enumerate(self.labels)}
            kwargs["label2id"] = {str(label): index for index, label in enumerate(self.labels)}
        super().__init__(**kwargs)

    @property
    def sets(self) -> bool:
        """Whether a text has a set of labels, and not one."""
        return self.problem_type == SETS

    def backbone_config(self) -> PreTrainedConfig:
        """The backbone's configuration as Hugging Face's own class."""
        fields = dict(self.backbone)
        return AutoConfig.for_model(fields.pop("model_type", ""), **fields)


class MultiExitModel(PreTrainedModel):
    """A backbone with one exit per layer.

    `forward` answers as any sequence classifier does: the last exit's logits, and the cross entropy
    where labels are given, so that Hugging Face's `pipeline` and `Trainer` can use it.
    """

    config: MultiExitConfig
    config_class = MultiExitConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    accepts_loss_kwargs = False  # `Trainer` divides the loss by the accumulated batches: it is a mean over one

    def __init__(self, config: MultiExitConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        for name in (config.exit_kind, config.last_kind):
            if name not in EXITS:
                raise unknown_name("exit", name, EXITS)
        if config.exit_reads not in (FIRST, MEAN):
            raise unknown_name("way to read a text", config.exit_reads, (FIRST, MEAN))
        if config.exit_projection not in PROJECTIONS:
            raise unknown_name("projection", config.exit_projection, PROJECTIONS)
        if backbone is None:
            inner = config.backbone_config()
            # DeBERTa-v2 has its own attention and takes no other implementation.
            how = {} if inner.model_type == "deberta-v2" else {"attn_implementation": config._attn_implementation}
            backbone = AutoModel.from_config(inner, **how)
            narrow(backbone, config.layer_heads)
        if getattr(backbone, "pooler", None) is not None:
            backbone.pooler = None  # each exit has its own
        self.encoder = Encoder(backbone)
        kinds = [config.exit_kind] * (self.encoder.depth - 1) + [config.last_kind]
        self.exits = nn.ModuleList([EXITS[name](config, backbone.config) for name in kinds])
        self.read_windows(config.max_tokens if config.windows > 1 else 0)
        # `from_pretrained` makes a model without values and fills it from the file.
        self._drawn = not any(parameter.is_meta for parameter in self.exits.parameters())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Each part initialises itself; Hugging Face's default would overwrite the exits.

        What a file did not hold has no value yet: it is drawn as torch draws a new one.
        """
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if reset is not None and not self._drawn:
            reset()

    def read_windows(self, tokens: int) -> None:
        """Read long texts in windows of so many tokens; 0: no text is longer than the backbone takes."""
        self.encoder.window = tokens
        for exit in self.exits:
            cast(Exit, exit).window = tokens

    @property
    def depth(self) -> int:
        """How many layers, and so exits, there are."""
        return self.encoder.depth

    def width(self, depth: int) -> int:
        """How wide the representations and label embeddings of the exit at this depth are."""
        return int(cast(Exit, self.exits[depth - 1]).label_parameter.shape[1])

    def walk(
        self, batch: Batch, last: int | None = None, change: Callable[[States], States] | None = None
    ) -> Iterator[tuple[int, States]]:
        """The states after each layer, up to depth `last`; `change` is made to the states below the first."""
        states = self.encoder.embed(batch)
        states = change(states) if change else states
        for depth in range(1, (last or self.depth) + 1):
            states = self.encoder.step(depth, states)
            yield depth, states

    def read(self, depth: int, states: States) -> ExitOutput:
        """What the exit at `depth` says of these states."""
        exit = self.exits[depth - 1]
        output: ExitOutput = (
            exit(states.output, states.mask) if states.words is None else exit(states.output, states.mask, states.words)
        )
        return output

    def outputs(
        self,
        batch: Batch,
        depths: Collection[int] | None = None,
        change: Callable[[States], States] | None = None,
    ) -> dict[int, ExitOutput]:
        """The outputs of the exits at these depths, or of all; layers above the deepest are not run."""
        wanted = set(range(1, self.depth + 1) if depths is None else depths)
        if not wanted or not wanted <= set(range(1, self.depth + 1)):
            raise ConfigError(f"Depths should be between 1 and {self.depth}. Found {sorted(wanted)}.")
        walk = self.walk(batch, max(wanted), change)
        return {depth: self.read(depth, states) for depth, states in walk if depth in wanted}

    def batch(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Batch:
        """What Hugging Face's tokenizer gives, as a batch."""
        if self.config.tags:
            raise ConfigError(
                "A model that gives tags should be asked through offramp, which knows where words begin: "
                "`Classifier.load(folder).decide(texts)`."
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return Batch(input_ids, mask, token_type_ids if self.encoder.family.has_token_types else None)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """The last exit's answer, in Hugging Face's terms."""
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        output = self.outputs(batch, [self.depth])[self.depth]
        loss = None
        if labels is not None and self.config.sets:
            loss = nn.functional.binary_cross_entropy_with_logits(output.logits, labels.to(output.logits))
        elif labels is not None:
            loss = nn.functional.cross_entropy(output.logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=output.logits)  # type: ignore[arg-type]


def build(
    backbone: PreTrainedModel, labels: Sequence[Label], kind: type[MultiExitModel] = MultiExitModel, **exits: Any
) -> MultiExitModel:
    """A new model, of this kind, around a loaded backbone; its exits are fresh.

    A backbone that comes with a pooler hands its weights to every linear exit of the same shape.
    """
    pooler = getattr(backbone, "pooler", None)
    fields = backbone.config.to_dict()
    config = MultiExitConfig(backbone=fields, labels=labels, **exits)
    config._attn_implementation = backbone.config._attn_implementation
    model = kind(config, backbone)
    for exit in model.exits:
        if pooler is not None and isinstance(exit, LinearExit) and isinstance(exit.pool, nn.Linear):
            exit.pool.load_state_dict(pooler.dense.state_dict())
    return model
