"""The speed-quality curve of a model: a policy swept over its thresholds on labelled texts, timed and scored."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from offramp.data.tokens import Tokens
from offramp.reading import alike, answers
from offramp.report.curve import Curve, Point, auroc
from offramp.runtime.certified import Certified
from offramp.runtime.engine import Engine
from offramp.runtime.sweep import Make, Measured, sweep


def speed_curve(
    engine: Engine,
    tokens: Tokens,
    truth: Sequence[int] | Sequence[Sequence[int]],
    name: str,
    make: Make,
    certified: Certified | None,
    batch_size: int,
    sets: bool = False,
) -> Curve:
    """The curve of the policy `name`, which `make` makes with any thresholds; a certified one is a point beside it.

    With `sets`, an answer is right where the whole set of labels is. Where words have tags, the accuracy is that of
    words and the layers are those of texts, each of which runs until its last word has left.
    """
    right = torch.tensor(truth)  # (N,), of sets (N, C)
    found = sweep(engine, tokens, make, None if certified is None else certified.policy(), batch_size)

    def point(kind: str, ran: Measured, threshold: float | None = None) -> Point:
        correct = alike(answers(ran.decision.logits, sets), right).tolist()
        depths = ran.decision.depth if tokens.words is None else tokens.words.deepest(ran.decision.depth.numpy())
        return Point.of(kind, correct, depths.tolist(), ran.seconds, threshold)

    swept = [point(name, ran, limit) for limit, ran in zip(found.thresholds, found.swept, strict=True)]
    calibrated = None
    if certified is not None and found.calibrated is not None:
        calibrated = point(certified.certificate.policy, found.calibrated)
    return Curve(
        policy=name,
        points=sorted(swept, key=lambda p: p.mean_layers),
        full=point("never", found.full),
        truncated=[point("fixed", ran) for ran in found.truncated.values()],
        calibrated=calibrated,
        auroc={
            depth: auroc(found.scores[depth].tolist(), alike(answer, right).tolist()) if depth in found.scores else None
            for depth, answer in found.answers.items()
        },
        layers=engine.depth,
        texts=len(tokens),
        timed=found.timed,
        rounds=found.rounds,
        batch_size=batch_size,
        engine=engine.name,
        threads=getattr(engine, "threads", torch.get_num_threads()),
    )
