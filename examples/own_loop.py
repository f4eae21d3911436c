"""Objectives, alignment and policies in a torch loop of one's own: no part of offramp's training is used."""

import torch
from torch import nn

from offramp.objectives import objective
from offramp.optimise.alignment import Rule, align
from offramp.policies import policy
from offramp.types import Batch, ExitOutput

torch.manual_seed(0)
CLASSES, WIDTH = 3, 16
layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4))
exits = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in layers)


def read(depth: int, states: torch.Tensor) -> ExitOutput:
    """What the exit at a depth says: the rows of its classifier are the label embeddings."""
    return ExitOutput(states, exits[depth - 1](states), exits[depth - 1].weight)


centres = torch.randn(CLASSES, WIDTH)
labels = torch.randint(CLASSES, (256,))
inputs = centres[labels] + 1.5 * torch.randn(256, WIDTH)

acl = objective("acl", temperature=0.5, weight=0.1, reduction="mean")
parameters = [*layers.parameters(), *exits.parameters()]
optimiser = torch.optim.AdamW(parameters, lr=1e-2)
dropped = 0
for _ in range(60):
    rows = torch.randint(len(inputs), (32,))
    states = inputs[rows]
    losses = []
    for depth, layer in enumerate(layers, start=1):
        states = layer(states)
        losses.append(acl(read(depth, states), labels[rows]))
    ce = torch.autograd.grad(sum(loss.main for loss in losses), parameters, retain_graph=True)
    contrast = torch.autograd.grad(sum(loss.auxiliary for loss in losses), parameters, allow_unused=True)
    gradients, angle = align(ce, contrast, losses[0].main_weight, losses[0].auxiliary_weight, Rule(threshold=90.0))
    dropped += not angle.kept
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()
print(f"the contrast was left out of {dropped} of 60 steps; the last angle was {angle.degrees:.0f} degrees")

rule = policy("confidence", 0.9)
left = torch.full((len(inputs),), len(layers))
there = torch.arange(len(inputs))  # who has not left yet
with torch.no_grad():
    states = inputs
    state = rule.start(Batch(torch.zeros(len(inputs), 1, dtype=torch.int64), torch.ones(len(inputs), 1)))
    for depth, layer in enumerate(layers[:-1], start=1):
        states = layer(states)
        leaving, state = rule.leave(depth, read(depth, states), state)
        left[there[leaving]] = depth
        there, states, state = there[~leaving], states[~leaving], state[~leaving]
print("left at each depth:", torch.bincount(left, minlength=5)[1:].tolist())
