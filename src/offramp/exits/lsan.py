"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the label-specific attention exit (LSAN).

    A_s = softmax_t(W2 tanh(W1 s_t)),   M_s = A_s S      each label's own attention
    A_l = softmax_t(l_c . s_t / sqrt(H)),   M_l = A_l S      what resembles the label
    a = sigmoid(M_s w3),   b = sigmoid(M_l w4),   M = (a M_s + b M_l) / (a + b)
    h = mean_c M_c,   logits_c = w6 . relu(W5 M_c)

Reference: Xiao et al., Label-Specific Document Representation for Multi-Label Text Classification, EMNLP-IJCNLP 2019,
as LaCon section 3.2 uses it: softmax over the labels instead of a sigmoid for each.

Differences: the states are the backbone's, not the two directions of an LSTM. The label attention is scaled and is
normalised over the tokens, so that neither padding nor length plays a part; the paper's is the bare product. A label is
scored by its own vector M_c; the mean over the labels is the representation only so that objectives have one per text.

Shapes: S (T, H), M (C, H), W1 and W5 (size, H), W2 (C, size), w3, w4 (H,), w6 (size,).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from offramp.exits.base import Exit
from offramp.exits.label_attention import attend
from offramp.exits.label_embeddings import LabelEmbeddings
from offramp.exits.mean import token_mean
from offramp.types import ExitOutput, wide


class LsanExit(Exit):
    """Self-attention and label attention per label, fused by two gates; one score per label."""

    def __init__(self, hidden: int, classes: int, size: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.labels = LabelEmbeddings(classes, hidden)
        self.down = nn.Linear(hidden, size, bias=False)  # W1
        self.query = nn.Linear(size, classes, bias=False)  # W2
        self.self_gate = nn.Linear(hidden, 1, bias=False)  # w3
        self.label_gate = nn.Linear(hidden, 1, bias=False)  # w4
        self.inner = nn.Linear(hidden, size, bias=False)  # W5
        self.score = nn.Linear(size, 1, bias=False)  # w6

    @property
    def label_parameter(self) -> Tensor:
        """The label embeddings that are learned, (C, H)."""
        return self.labels.weight

    def forward(self, states: Tensor, mask: Tensor) -> ExitOutput:
        """(B, T, H) and (B, T) to the exit's output."""
        states = self.dropout(states)
        own = self.query(torch.tanh(self.down(states))).transpose(1, 2)  # (B, C, T)
        like = functional.linear(states, self.labels.weight).transpose(1, 2) / math.sqrt(states.shape[2])  # (B, C, T)
        by_self = attend(own, states, mask)  # (B, C, H)
        by_label = attend(like, states, mask)  # (B, C, H)
        own_gate = wide(_project(by_self, self.self_gate.weight))  # (B, C)
        label_gate = wide(_project(by_label, self.label_gate.weight))  # (B, C)
        # a / (a + b) of two sigmoids, both of which may round to 0.
        share = torch.sigmoid(functional.logsigmoid(own_gate) - functional.logsigmoid(label_gate))  # (B, C)
        share = share[:, :, None].to(by_self.dtype)  # (B, C, 1)
        fused = share * by_self + (1 - share) * by_label  # (B, C, H)
        logits = _project(torch.relu(self.inner(fused)), self.score.weight)  # (B, C)
        return ExitOutput(fused.mean(dim=1), logits, self.labels.weight)

    def see_names(self, states: Tensor, mask: Tensor) -> Tensor:
        """The mean state of each name, (C, H): the label embeddings look for tokens like themselves."""
        return token_mean(states, mask)


def _project(vectors: Tensor, row: Tensor) -> Tensor:
    """(B, C, W) and (1, W) to (B, C).

    A matrix product with one row is rounded by where the row lies in memory: a model that comes back from
    disk would answer in other bits.
    """
    return (vectors * row).sum(dim=2)
