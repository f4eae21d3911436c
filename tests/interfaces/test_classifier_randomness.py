"""The seed decides everything, and nothing but the seed; nobody else's randomness is touched."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from offramp import Classifier

Toy = Callable[..., tuple[list[str], list[str]]]
Quick = Callable[..., Classifier]


def answers(classifier: Classifier, toy: Toy) -> list[list[float]]:
    texts, labels = toy(24)
    found: list[list[float]] = classifier.fit(texts, labels).predict_proba(texts).tolist()
    return found


def test_fitting_leaves_the_global_generators_alone(quick: Quick, toy: Toy) -> None:
    quick().fit(*toy(24)).score(*toy(6))  # imports what it needs: rich draws when it is imported
    torch.manual_seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    answers(quick({"exits.kind": "linear"}), toy)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


def test_the_same_seed_gives_the_same_answers_whatever_was_drawn_before(quick: Quick, toy: Toy) -> None:
    torch.manual_seed(1)
    first = answers(quick(seed=3), toy)
    torch.manual_seed(2)
    assert answers(quick(seed=3), toy) == first


def test_another_seed_gives_other_answers(quick: Quick, toy: Toy) -> None:
    assert answers(quick(seed=3), toy) != answers(quick(seed=4), toy)


def test_a_layer_the_backbone_lacks_comes_from_the_seed_too(
    quick: Quick, toy: Toy, backbone_folder: Path, tmp_path: Path
) -> None:
    """A linear exit begins with the backbone's pooler, which many folders do not hold."""
    for file in backbone_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    make = lambda: quick({"exits.kind": "linear"}, backbone=str(tmp_path), seed=3)  # noqa: E731
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = answers(make(), toy)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert answers(make(), toy) == first
