"""MODEL -> FAST MODEL: a model as ONNX segments, from exit to exit.

The first segment holds the embeddings and the layers up to the first exit, each further one the layers up to the next
exit. Between two segments texts that leave are taken out, which no single graph could do: so the layers above run on
fewer and shorter rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save

from offramp.errors import ConfigError, MissingExtra, ModelError
from offramp.exits.model import MultiExitModel
from offramp.runtime.onnx_engine import OnnxEngine
from offramp.runtime.onnx_folder import LABELS, Manifest, segment_name, write
from offramp.runtime.onnx_trace import trace
from offramp.types import Batch

TOLERANCE = 1e-4
"""How far the exported logits may lie from torch's, of their largest; more is a graph that says something else."""


@torch.inference_mode()
def export(model: MultiExitModel, folder: Path, exits: Sequence[int] | None = None) -> None:
    """Write the model's segments; `exits` are the trained ones unless named, and the last is always among them.

    Nothing is written unless every segment was made and answers as torch does.
    """
    manifest = _manifest(model, exits)
    training = model.training
    model.train(False)
    try:
        files = _segments(model, manifest)
        engine = OnnxEngine.of(manifest, files, threads=1)
        _same_answers(model, engine)
    finally:
        model.train(training)
    write(folder, manifest, files)


def _manifest(model: MultiExitModel, exits: Sequence[int] | None) -> Manifest:
    if any(weight.dtype != torch.float32 for weight in model.parameters()):
        raise ModelError("The model should be in float32 to be exported. Call `model.float()` before.")
    depths = range(1, model.depth + 1)
    trained = model.config.trained_exits
    wanted = sorted({*(trained or depths if exits is None else exits), model.depth})
    if not set(wanted) <= set(depths):
        raise ConfigError(f"`exits` should be between 1 and {model.depth}. Found {wanted}.")
    return Manifest(
        family=str(model.encoder.backbone.config.model_type),
        depth=model.depth,
        exits=tuple(wanted),
        trained=tuple(depth for depth in wanted if depth in trained),
        labels=tuple(model.config.labels),
        hidden_size=model.encoder.hidden_size,
        token_types=model.encoder.family.has_token_types,
    )


def _segments(model: MultiExitModel, manifest: Manifest) -> dict[str, bytes]:
    files, first = {}, 1
    for last in manifest.exits:
        names = ["hidden_in", "mask"] if first > 1 else ["ids", "mask", *(["types"] if manifest.token_types else [])]
        try:
            files[segment_name(last)] = trace(model, first, last, names).SerializeToString()
        except MissingExtra:
            raise
        except Exception as error:  # torch's exporter can raise anything
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelError(
                f"The layers {first} to {last} of this `{manifest.family}` backbone cannot be exported: {reason}"
            ) from error
        first = last + 1
    outputs = model.outputs(_sample(model, (2,)), manifest.exits)
    vectors = {str(depth): output.label_embeddings.clone().contiguous() for depth, output in outputs.items()}
    files[LABELS] = save(vectors)
    return files


def _same_answers(model: MultiExitModel, engine: OnnxEngine) -> None:
    for lengths in ((7, 2, 4, 1), (3,)):
        batch = _sample(model, lengths)
        found = engine.outputs(batch.to(torch.device("cpu")))
        for depth, output in model.outputs(batch, engine.exits).items():
            truth = output.logits.cpu()
            apart = (found[depth].logits - truth).abs().max() / truth.abs().max().clamp(min=1.0)
            if not apart <= TOLERANCE:
                raise ModelError(
                    f"The exported exit {depth} should answer as the model does. Their logits differ by "
                    f"{float(apart):.2g} of the largest: this backbone cannot be exported."
                )


def _sample(model: MultiExitModel, lengths: Sequence[int]) -> Batch:
    """Texts of these lengths, of any tokens."""
    config = model.encoder.backbone.config
    width = torch.arange(max(lengths), device=model.device)
    mask = (width < torch.tensor(lengths, device=model.device)[:, None]).long()  # (B, T)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(config.vocab_size, mask.shape, generator=draw).to(model.device)
    ids = ids.where(ids != config.pad_token_id, (config.pad_token_id or 0) + 1)
    types = torch.zeros_like(mask) if model.encoder.family.has_token_types else None
    words = mask if model.config.tags else None
    return Batch(ids.where(mask == 1, config.pad_token_id or 0), mask, types, words=words)
