"""The papers' exits as slow loops: one text, one head, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Output(NamedTuple):
    """What an exit says of B texts."""

    representation: Tensor  # (B, D)
    logits: Tensor  # (B, C)


def mha(weights: Mapping[str, Tensor], heads: int, states: Tensor, mask: Tensor, own: bool = False) -> Output:
    """ACL section 3.2 with the attention of Vaswani et al. 2017, section 3.2.2.

    Every token is taken down to d_e and through tanh; every token attends to all tokens of its text, head by head; the
    first token's vector goes through tanh: the representation, which a linear layer classifies. Padding does not exist
    here: a text is cut to its own length. `weights` are named as in the exit; queries, keys and values lie one below
    the other in `attention.in_proj_*`. With `own`, the first token is a word, whose own vector is added.
    """
    representations = []
    for text in range(len(states)):
        narrow = _narrowed(weights, states[text, : int(mask[text].sum())])
        attended = _attended_by(weights, heads, narrow[0], narrow)
        representations.append(torch.tanh(attended + narrow[0] if own else attended))
    return _classified(weights, representations)


def residual(weights: Mapping[str, Tensor], heads: int, states: Tensor, mask: Tensor, own: bool = False) -> Output:
    """Our own: the mean state, centred and of length sqrt(H), and what the mean of the narrow vectors attends to.

    With `own`, the first token is a word, which stands in the place of both means.
    """
    representations = []
    for text in range(len(states)):
        tokens = states[text, : int(mask[text].sum())]
        narrow = _narrowed(weights, tokens)
        query = narrow[0] if own else sum(narrow, torch.zeros_like(narrow[0])) / len(narrow)
        mean = tokens[0] if own else sum(tokens, torch.zeros_like(tokens[0])) / len(tokens)
        centred = mean - mean.mean()
        spread = math.sqrt(float((centred**2).mean()) + 1e-5)
        added = weights["up.weight"] @ torch.tanh(_attended_by(weights, heads, query, narrow)) + weights["up.bias"]
        representations.append(centred / spread + added)
    return _classified(weights, representations)


def match(weights: Mapping[str, Tensor], temperature: float, states: Tensor, mask: Tensor) -> Output:
    """LaCon eq. 1, 2 and 8: the first token through the projection, and its cosine to each label embedding."""
    representation = [_projected(weights, states[text, 0]) for text in range(len(states))]
    return _matched(weights, temperature, representation)


def fusion(weights: Mapping[str, Tensor], temperature: float, states: Tensor, mask: Tensor) -> Output:
    """LaCon eq. 9 before eq. 8: what the labels attend to, through the projection."""
    fused = [_attended(weights, states[text, : int(mask[text].sum())]) for text in range(len(states))]
    return _matched(weights, temperature, [_projected(weights, z) for z in fused])


def leam(weights: Mapping[str, Tensor], states: Tensor, mask: Tensor) -> Output:
    """Wang et al. 2018 on the states of a backbone: what the labels attend to, and a linear layer."""
    fused = [_attended(weights, states[text, : int(mask[text].sum())]) for text in range(len(states))]
    logits = [weights["classifier.weight"] @ z + weights["classifier.bias"] for z in fused]
    return Output(torch.stack(fused), torch.stack(logits))


def lsan(weights: Mapping[str, Tensor], states: Tensor, mask: Tensor) -> Output:
    """Xiao et al. 2019, label by label, the label attention scaled and normalised over the tokens."""
    labels = weights["labels.weight"]
    classes, hidden = labels.shape
    representations, logits = [], []
    for text in range(len(states)):
        words = [states[text, t] for t in range(int(mask[text].sum()))]
        fused, scores = [], []
        for c in range(classes):
            own = [float(weights["query.weight"][c] @ torch.tanh(weights["down.weight"] @ word)) for word in words]
            like = [float(labels[c] @ word) / math.sqrt(hidden) for word in words]
            by_self, by_label = _weighted(own, words), _weighted(like, words)
            alpha = _sigmoid(float(weights["self_gate.weight"][0] @ by_self))
            beta = _sigmoid(float(weights["label_gate.weight"][0] @ by_label))
            alpha, beta = alpha / (alpha + beta), beta / (alpha + beta)
            fused.append(alpha * by_self + beta * by_label)
            inner = [max(0.0, float(row @ fused[-1])) for row in weights["inner.weight"]]
            scores.append(math.fsum(float(w) * x for w, x in zip(weights["score.weight"][0], inner, strict=True)))
        representations.append(sum(fused) / classes)
        logits.append(torch.tensor(scores, dtype=states.dtype))
    return Output(torch.stack(representations), torch.stack(logits))


def _narrowed(weights: Mapping[str, Tensor], tokens: Tensor) -> list[Tensor]:
    """Every token taken down to d_e and through tanh."""
    return [torch.tanh(weights["down.weight"] @ token + weights["down.bias"]) for token in tokens]


def _attended_by(weights: Mapping[str, Tensor], heads: int, asking: Tensor, narrow: list[Tensor]) -> Tensor:
    """What one vector attends to, head by head."""
    size = len(asking)
    width = size // heads
    query, key, value = weights["attention.in_proj_weight"].split(size)
    query_bias, key_bias, value_bias = weights["attention.in_proj_bias"].split(size)
    parts = []
    for head in range(heads):
        rows = slice(head * width, (head + 1) * width)
        q = query[rows] @ asking + query_bias[rows]
        keys = [key[rows] @ u + key_bias[rows] for u in narrow]
        values = [value[rows] @ u + value_bias[rows] for u in narrow]
        scores = [math.exp(float(q @ k) / math.sqrt(width)) for k in keys]
        shares = [score / sum(scores) for score in scores]
        parts.append(sum((share * v for share, v in zip(shares, values, strict=True)), torch.zeros(width)))
    return weights["attention.out_proj.weight"] @ torch.cat(parts) + weights["attention.out_proj.bias"]


def _classified(weights: Mapping[str, Tensor], representations: list[Tensor]) -> Output:
    logits = [weights["classifier.weight"] @ h + weights["classifier.bias"] for h in representations]
    return Output(torch.stack(representations), torch.stack(logits))


def _projected(weights: Mapping[str, Tensor], vector: Tensor) -> Tensor:
    """A 3-layer MLP with ReLU after each hidden layer; torch counts the two ReLUs as places 1 and 3."""
    for place in (0, 2):
        vector = weights[f"projection.{place}.weight"] @ vector + weights[f"projection.{place}.bias"]
        vector = torch.tensor([max(0.0, float(x)) for x in vector], dtype=vector.dtype)
    return weights["projection.4.weight"] @ vector + weights["projection.4.bias"]


def _matched(weights: Mapping[str, Tensor], temperature: float, representation: list[Tensor]) -> Output:
    rows = [[_cosine(h, label) / temperature for label in weights["labels.weight"]] for h in representation]
    return Output(torch.stack(representation), torch.tensor(rows, dtype=representation[0].dtype))


def _attended(weights: Mapping[str, Tensor], words: Tensor) -> Tensor:
    """LaCon eq. 9 for one text, (T, H) to (H,): cosines, convolution along the tokens, maximum over the labels."""
    labels = weights["labels.weight"]
    kernel, bias = weights["attention.convolution.weight"], weights["attention.convolution.bias"]
    classes, _, window = kernel.shape
    likeness = [[_cosine(label, word) for word in words] for label in labels]
    scores = []
    for t in range(len(words)):
        of_labels = []
        for k in range(classes):
            total = float(bias[k])
            for j in range(classes):
                for step in range(window):
                    place = t + step - window // 2
                    if 0 <= place < len(words):
                        total += float(kernel[k, j, step]) * likeness[j][place]
            of_labels.append(max(0.0, total))
        scores.append(max(of_labels))
    return _weighted(scores, list(words))


def _weighted(scores: list[float], words: list[Tensor]) -> Tensor:
    """The sum of the vectors, weighted by the softmax of the scores."""
    powers = [math.exp(score) for score in scores]
    total = torch.zeros_like(words[0])
    for power, word in zip(powers, words, strict=True):
        total = total + power / math.fsum(powers) * word
    return total


def _cosine(a: Tensor, b: Tensor) -> float:
    """The cosine; a zero vector has no direction, its cosine is 0."""
    lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return float(a @ b) / lengths if lengths else 0.0


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))
