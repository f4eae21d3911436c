"""DECISIONS -> NUMBERS, PICTURES: a map of what an exit sees: representations and label embeddings on one sheet."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from offramp.errors import DataError
from offramp.report.canvas import INK, WIDTH, Picture, plain
from offramp.report.name_places import PlacedName, place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Vectors = npt.NDArray[np.float32]
LEAST = 20  # texts from which a report has a map that nobody asked for
MOST = 1000  # texts on a map
MOST_CLOSE = 15  # labels up to which a small sheet is enough
STAR, SMALL_STAR = 12.0, 7.0  # points across
EDGE = 12.0  # points between the sheet's edge and what lies outermost


@dataclass(frozen=True)
class ExitMap:
    """Where texts and label embeddings lie when their directions are laid out on a plane."""

    depth: int
    texts: Vectors  # (M, 2)
    labels: list[int]  # (M,), of the texts
    anchors: Vectors  # (C, 2), the label embeddings
    names: list[str]  # (C,), of the labels
    of_label: list[int]  # (C,), how many of all N texts have the label
    near_label: list[int]  # (C,), for how many of these it is the nearest label embedding, by cosine

    @property
    def total(self) -> int:
        """N: the texts of which M are on the map."""
        return sum(self.of_label)

    @property
    def near(self) -> float:
        """Share of all texts whose nearest label embedding is that of their label."""
        return sum(self.near_label) / self.total

    @property
    def side(self) -> float:
        """Points along a side of the sheet."""
        return 72 * WIDTH * (1.0 if len(self.names) <= MOST_CLOSE else 1.5)

    def on_sheet(self) -> tuple[Vectors, Vectors]:
        """Texts and label embeddings in points from the sheet's lower left corner; both axes have one scale."""
        everything = np.concatenate([self.texts, self.anchors])  # (M + C, 2)
        low, high = everything.min(axis=0), everything.max(axis=0)
        span = float((high - low).max()) or 1.0
        placed = (everything - (low + high) / 2) * ((self.side - 2 * EDGE) / span) + self.side / 2
        return placed[: len(self.texts)], placed[len(self.texts) :]

    def placed(self) -> dict[int, PlacedName]:
        """Where the names of the label embeddings are written; those without room are not."""
        texts, anchors = self.on_sheet()
        names = [plain(name, 22) for name in self.names]
        return place(names, anchors, texts, self.side, 8.0 if len(names) <= MOST_CLOSE else 6.5)


def lay_out(
    depth: int, representation: Vectors, label_embeddings: Vectors, labels: list[int], names: list[str], seed: int = 0
) -> ExitMap:
    """t-SNE of the directions of at most `MOST` representations (N, D) and all label embeddings (C, D), together.

    Reference: van der Maaten and Hinton, Visualizing Data using t-SNE; ACL figure 6, LaCon figure 4.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if not len(representation):
        raise DataError("A map should have at least one text. Found none.")
    chosen = np.random.default_rng(seed).permutation(len(representation))[:MOST]  # (M,)
    texts, anchors = _unit(representation), _unit(label_embeddings)
    truth = np.asarray(labels, dtype=np.int64)  # (N,)
    near = (texts @ anchors.T).argmax(axis=1) == truth  # (N,)
    together = np.concatenate([texts[chosen], anchors])  # (M + C, D)
    perplexity = min(30.0, max(1.0, (len(together) - 1) / 4))
    # Principal components start every run alike, but there have to be two of them.
    spread = min(together.shape) > 1 and np.ptp(together, axis=0).max() > 0
    tsne = TSNE(perplexity=perplexity, init="pca" if spread else "random", random_state=seed)
    # Threads add up in an order of their own, which t-SNE makes large: with one, every machine draws the same map.
    with threadpool_limits(limits=1):
        flat = tsne.fit_transform(together)  # (M + C, 2)
    return ExitMap(
        depth,
        flat[: len(chosen)],
        truth[chosen].tolist(),
        flat[len(chosen) :],
        names,
        np.bincount(truth, minlength=len(names)).tolist(),
        np.bincount(truth[near], minlength=len(names)).tolist(),
    )


def draw_map(found: ExitMap) -> str:
    """The map as SVG."""
    return map_picture(found).svg()


def map_picture(found: ExitMap) -> Picture:
    """The map as a picture of its own."""

    def draw(figure: Figure) -> None:
        figure.set_layout_engine("none")
        draw_on(figure.add_axes((0.0, 0.0, 1.0, 1.0)), found)

    inches = found.side / 72
    return Picture(f"map-{found.depth}", inches, draw, inches)


def draw_on(axes: Any, found: ExitMap) -> None:
    """Texts as points in the colour of their label, label embeddings as stars with their names."""
    texts, anchors = found.on_sheet()
    names, colours = found.placed(), _colours(len(found.names))
    size = 3.2 if len(texts) > 200 else 4.5
    axes.set(xlim=(0, found.side), ylim=(0, found.side))
    axes.axis("off")
    for k, colour in enumerate(colours):
        mine = texts[np.asarray(found.labels) == k]  # (M_k, 2)
        axes.plot(mine[:, 0], mine[:, 1], "o", color=colour, markersize=size, markeredgewidth=0.0, alpha=0.55)
    for k, name in names.items():
        if name.far:
            (x, y), edge = anchors[k], name.edge(*anchors[k])
            axes.plot([x, edge[0]], [y, edge[1]], color=INK, linewidth=0.6)
    for k, (x, y) in enumerate(anchors):
        # A star that would cover another is drawn on it.
        star = SMALL_STAR if any(math.dist((x, y), other) < SMALL_STAR / 2 for other in anchors[:k]) else STAR
        edge_of = {"markeredgecolor": INK, "markeredgewidth": 0.8 if star == STAR else 0.0}
        axes.plot([x], [y], "*", color=colours[k], markersize=star, **edge_of)
    for name in names.values():
        axes.text(name.x, name.y, name.text, fontsize=name.size, ha="center", va="center")


def chosen_depth(trained: list[int]) -> int:
    """The exit that a map shows when nobody says which: the middle one of those that were trained.

    >>> chosen_depth([1, 2, 3, 4, 5, 6]), chosen_depth([6])
    (3, 6)
    """
    return trained[math.ceil(len(trained) / 2) - 1]


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (V, 1)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _colours(classes: int) -> list[str]:
    """A colour for each label: neighbours in the order far apart, all readable on white and on near-black."""
    if classes <= 10:
        return [f"C{k}" for k in range(classes)]
    golden = (math.sqrt(5) - 1) / 2
    shades = (colorsys.hls_to_rgb(k * golden % 1, (0.42, 0.52, 0.62)[k % 3], 0.65) for k in range(classes))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in shade) for shade in shades]
