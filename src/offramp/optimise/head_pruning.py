"""LOSS -> PARAMETERS: attention heads removed by their importance.

    I_h = E_x | dL(x) / d xi_h |

with xi_h a factor of the head's output that is 1, L the cross entropy of a text x at the last exit and its label, and
the mean over the training texts. The importances of a layer are divided by their Euclidean norm.

Reference: Michel et al., Are Sixteen Heads Really Better than One? (2019), section 4. Differences: all heads that go
are chosen at once, not a tenth at a time; each layer keeps its most important head; the weights are really removed, and
what is left is fine-tuned for `compress.epochs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from offramp.data.sampling import sorted_batches
from offramp.data.tokens import Tokens
from offramp.exits.heads import head_counts, keep_heads, masked_heads
from offramp.exits.model import MultiExitModel
from offramp.exits.thinned import thinned
from offramp.optimise.stage import FULL, Lessons, Models, Stage, full

_BATCH = 32  # texts at a time


def importance(model: MultiExitModel, tokens: Tokens) -> list[Tensor]:
    """How much each head matters to the last exit: a tensor (heads,) for each layer."""
    model.train(False)
    counts = head_counts(model)
    found = [torch.zeros(count, device=model.device) for count in counts]
    for rows in sorted_batches(tokens.lengths, _BATCH):
        batch = tokens.batch(rows).to(model.device)
        if batch.labels is None:
            raise ValueError("heads matter to the labels")
        # One factor per text: the gradients of the texts must not cancel before their size is taken.
        masks = [torch.ones(len(batch), count, device=model.device, requires_grad=True) for count in counts]
        with masked_heads(model, masks), torch.enable_grad():
            logits = model.outputs(batch, [model.depth])[model.depth].logits
            loss = functional.cross_entropy(logits, batch.labels, reduction="sum")
        for total, gradient in zip(found, torch.autograd.grad(loss, masks), strict=True):
            total += gradient.abs().sum(dim=0)
    return [total / len(tokens) for total in found]


def survivors(importances: Sequence[Tensor], share: float) -> list[list[int]]:
    """The heads of each layer that stay: each layer's first, and then the most important of all.

    >>> survivors([torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]), torch.tensor([5.0, 12.0])], share=0.7)
    [[0, 1], [1], [1]]
    """
    lengths = [float(scores.norm()) for scores in importances]
    ranked = [  # sorted by what is most wanted; of equals, the lower layer and the lower head
        (place != int(scores.argmax()), -float(score) / (length or 1.0), layer, place)
        for layer, (scores, length) in enumerate(zip(importances, lengths, strict=True))
        for place, score in enumerate(scores)
    ]
    chosen = sorted(ranked)[: max(len(importances), round(share * len(ranked)))]
    return [sorted(place for *_, layer, place in chosen if layer == wanted) for wanted in range(len(importances))]


def stages(lessons: Lessons) -> list[Stage]:
    """The full model; then what is left of it."""
    config = lessons.config

    def begin(models: Models) -> MultiExitModel:
        model = models[FULL]
        made = thinned(model, range(1, model.depth + 1), top=model.depth)
        keep_heads(made, survivors(importance(model, lessons.train), config.compress.heads))
        return made

    return [*full(config), Stage("pruned", replace(config.optimise, epochs=config.compress.epochs), begin)]
