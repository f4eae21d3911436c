"""What a long text says at its end is read, too."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from offramp import Classifier
from offramp.data.tokens import TruncationWarning
from offramp.errors import ConfigError, DataError, ModelError

Toy = Callable[..., tuple[list[str], list[str]]]
LONG = {
    "data.max_length": 16,
    "data.windows": 3,
    "exits.size": 16,
    "optimise.epochs": 14,
    "optimise.batch_size": 16,
    "optimise.lr_backbone": 2e-3,
    "optimise.lr_exit": 2e-3,
    "stage2.epochs": 4,
    "stage2.least_updates": 0,
}


def at_the_end(toy: Toy, n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of about 25 words whose label stands in the last ten."""
    texts, labels = toy(n, seed)
    return [f"{'film plot was is very ' * 3}{text}" for text in texts], labels


@pytest.mark.parametrize("kind", ["mha", "residual", "linear"])
def test_a_label_in_the_second_window_is_learnt(backbone_folder: Path, toy: Toy, tmp_path: Path, kind: str) -> None:
    classifier = Classifier("2st", str(backbone_folder), {**LONG, "exits.kind": kind, "data.overlap": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error", TruncationWarning)  # nothing is cut
        classifier.fit(*at_the_end(toy, 240))
        texts, labels = at_the_end(toy, 60, seed=1)
        assert classifier.score(texts, labels) > 0.6
    classifier.set_params(policy="fixed", depth=1)
    middle = statistics.median(decision.probability for decision in classifier.decide(texts))
    classifier.set_params(policy="confidence", threshold=middle, depth=None)
    together, alone = classifier.decide(texts), [classifier.decide([text])[0] for text in texts[:10]]
    assert [decision.depth for decision in together[:10]] == [decision.depth for decision in alone]
    assert len({decision.depth for decision in together}) > 1
    assert [d.probability for d in together[:10]] == pytest.approx([d.probability for d in alone], abs=1e-5)
    classifier.save(tmp_path / "m")
    again = Classifier.load(tmp_path / "m", policy="confidence", threshold=middle)
    assert again.decide(texts) == together
    assert again.fingerprint() == classifier.fingerprint()
    with pytest.raises(ModelError, match="one window"):
        again.export(tmp_path / "onnx")


def test_without_windows_it_is_cut_off(backbone_folder: Path, toy: Toy) -> None:
    settings = {**LONG, "data.windows": 1, "optimise.epochs": 4}
    with pytest.warns(TruncationWarning, match="longer than 16 tokens"):
        cut = Classifier("ce", str(backbone_folder), settings).fit(*at_the_end(toy, 120))
    with pytest.warns(TruncationWarning):
        assert cut.score(*at_the_end(toy, 60, seed=1)) < 0.5


def test_what_is_beyond_the_windows_is_cut_with_a_warning(backbone_folder: Path, toy: Toy) -> None:
    settings = {**LONG, "data.windows": 2, "optimise.epochs": 1}
    texts, labels = at_the_end(toy, 24)
    with pytest.warns(TruncationWarning, match="1 of 24 texts are longer than 32 tokens"):
        Classifier("ce", str(backbone_folder), settings).fit([*texts[:-1], "film " * 80], labels)


def test_pairs_and_too_much_overlap_are_refused(backbone_folder: Path, toy: Toy) -> None:
    texts, labels = at_the_end(toy, 24)
    with pytest.raises(DataError, match=r"data\.windows=1"):
        Classifier("ce", str(backbone_folder), LONG).fit(list(zip(texts, texts, strict=True)), labels)
    with pytest.raises(ConfigError, match=r"data\.overlap"):
        Classifier("ce", str(backbone_folder), {**LONG, "data.overlap": 14}).fit(texts, labels)
    with pytest.raises(ConfigError, match=r"data\.windows"):
        Classifier("truncated", str(backbone_folder), LONG).fit(texts, labels)
