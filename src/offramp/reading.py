"""Logits to answers: one label of several, or a set of them.

A reading asks questions that have options, and the likelier option answers:

    one label          one question, whose options are the labels: softmax over the C logits
    a set of labels    a question for each label, no or yes: softmax over 0 and its logit, which is the sigmoid

Whatever is asked of an answer, how sure it is or whether two exits agree, is asked of its questions.

Letters in the shapes: B texts, C classes, Q questions, K options of a question.
"""

from __future__ import annotations

import torch
from torch import Tensor

ONE, SET, TAGS = "one", "set", "tags"
"""How `data.labels` names what a text has. A tag is the one label of a word: it is read as `one`."""

GIVEN = 0.5
"""The probability from which a text of a label set is given a label."""


def questions(logits: Tensor, sets: bool) -> Tensor:
    """The logits of every question's options: (B, C) to (B, 1, C), or of sets to (B, C, 2).

    >>> questions(torch.tensor([[1.0, -2.0]]), sets=True).tolist()
    [[[0.0, 1.0], [0.0, -2.0]]]
    """
    return torch.stack([torch.zeros_like(logits), logits], dim=2) if sets else logits[:, None]


def probabilities(logits: Tensor, sets: bool) -> Tensor:
    """Of every label, (B, C): they sum to 1, but those of sets are independent."""
    return torch.sigmoid(logits.float()) if sets else torch.softmax(logits.float(), dim=1)


def answers(logits: Tensor, sets: bool) -> Tensor:
    """The class of each text, (B,) int64; of sets (B, C), 1 where the text is given the label.

    >>> answers(torch.tensor([[0.0, 3.0, -1.0]]), sets=False).tolist()
    [1]
    >>> answers(torch.tensor([[0.0, 3.0, -1.0]]), sets=True).tolist()
    [[1, 1, 0]]
    """
    return (probabilities(logits, sets) >= GIVEN).long() if sets else logits.argmax(dim=1)


def alike(first: Tensor, second: Tensor) -> Tensor:
    """Where two answers are the same, (B,) bool: of sets, in every label."""
    return (first == second).flatten(1).all(dim=1) if first.dim() > 1 else first == second
