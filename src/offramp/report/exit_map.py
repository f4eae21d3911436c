"""DECISIONS -> NUMBERS, PICTURES: a map of what an exit sees: representations and label embeddings on one sheet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offramp.errors import DataError
from offramp.report.canvas import INK, WIDTH, plain, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Vectors = npt.NDArray[np.float32]
LEAST, MOST = 20, 1000  # texts on a map
MOST_NAMED = 15  # labels that are written beside their embeddings


@dataclass(frozen=True)
class ExitMap:
    """Where texts and label embeddings lie when their directions are laid out on a plane."""

    depth: int
    texts: Vectors  # (N, 2)
    labels: list[int]  # of the texts
    anchors: Vectors  # (C, 2)
    names: list[str]  # of the labels
    near: float  # share of the texts whose nearest label embedding, by cosine, is that of their label


def lay_out(
    depth: int, representation: Vectors, label_embeddings: Vectors, labels: list[int], names: list[str], seed: int = 0
) -> ExitMap:
    """t-SNE of the directions of at most `MOST` representations (N, D) and all label embeddings (C, D), together.

    Reference: van der Maaten and Hinton, Visualizing Data using t-SNE; ACL figure 6, LaCon figure 4.
    """
    from sklearn.manifold import TSNE

    if len(representation) < LEAST:
        raise DataError(f"A map should have {LEAST} texts or more. Found {len(representation)}.")
    chosen = np.random.default_rng(seed).permutation(len(representation))[:MOST]
    texts, anchors = _unit(representation), _unit(label_embeddings)
    nearest = (texts @ anchors.T).argmax(axis=1)  # (N,)
    together = np.concatenate([texts[chosen], anchors])  # (M + C, D)
    perplexity = min(30.0, (len(together) - 1) / 4)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(together)  # (M + C, 2)
    return ExitMap(
        depth,
        flat[: len(chosen)],
        [labels[place] for place in chosen],
        flat[len(chosen) :],
        names,
        float(np.mean(nearest == np.asarray(labels))),
    )


def draw_map(found: ExitMap) -> str:
    """Texts as points in the colour of their label, label embeddings as stars."""
    classes = len(found.names)

    def draw(figure: Figure) -> None:
        from matplotlib import colormaps

        axes: Any = figure.subplots()
        wheel = colormaps["tab10"] if classes <= 10 else colormaps["hsv"]
        colours = [wheel(k if classes <= 10 else k / classes) for k in range(classes)]
        for k in range(classes):
            mine = found.texts[np.asarray(found.labels) == k]  # (N_k, 2)
            axes.plot(mine[:, 0], mine[:, 1], "o", color=colours[k], markersize=2.6, markeredgewidth=0.0, alpha=0.6)
        for k, (x, y) in enumerate(found.anchors):
            axes.plot([x], [y], "*", color=colours[k], markersize=11, markeredgecolor=INK, markeredgewidth=0.7)
            if classes <= MOST_NAMED:
                axes.annotate(
                    plain(found.names[k], 18), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7.5
                )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)

    return svg(f"map-{found.depth}", WIDTH, draw)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (V, 1)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def chosen_depth(trained: list[int]) -> int:
    """The exit that a map shows when nobody says which: the middle one of those that were trained.

    >>> chosen_depth([1, 2, 3, 4, 5, 6]), chosen_depth([6])
    (3, 6)
    """
    return trained[math.ceil(len(trained) / 2) - 1]
