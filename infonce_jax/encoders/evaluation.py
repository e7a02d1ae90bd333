"""What an embedding is good for: nearest neighbours and a linear probe on labels, retrieval across two modalities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from infonce_jax.checks import as_unit_rows, count, numbers, refuse
from infonce_jax.encoders.data import Digits

__all__ = ["Accuracy", "Retrieval", "accuracy", "chance", "linear_probe", "nearest_neighbours", "retrieval"]

# Cosines of float32 rows are uncertain by about this much. Two that differ by less are a tie.
_TIE = 1e-6


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Share of held-out images that are labelled rightly.

    Attributes:
        neighbours: by the vote of the five nearest embeddings.
        probe: by a logistic regression on the embeddings.
        chance: by always naming the most frequent label.
    """

    neighbours: float
    probe: float
    chance: float


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Share of items whose partner is the nearest of the other modality.

    Attributes:
        forward: from the first modality to the second.
        backward: from the second to the first.
        chance: what a guess reaches, 1/n.
    """

    forward: float
    backward: float
    chance: float


def accuracy(embed: Callable[[np.ndarray], Any], digits: Digits) -> Accuracy:
    """What an encoder makes of the held-out digits when the training part is labelled.

    Args:
        embed: maps images, shape (n, height, width), to embeddings, shape (n, d); for example
            `functools.partial(encoder.apply, parameters)`, or `encoder.features` in its place.
        digits: the data and their split.
    """
    rows = embed(digits.images), digits.labels, embed(digits.held_out_images), digits.held_out_labels
    return Accuracy(nearest_neighbours(*rows), linear_probe(*rows), chance(digits.held_out_labels))


def nearest_neighbours(embeddings: Any, labels: Any, held_out: Any, held_out_labels: Any, neighbours: int = 5) -> float:
    """Accuracy of the vote of the nearest labelled embeddings, by Euclidean distance: on the sphere, by angle.

    Embeddings that have all collapsed to one point get the label of whichever rows come first: about 1/classes.

    Args:
        embeddings: shape (n, d), with labels, n >= neighbours.
        labels: shape (n,).
        held_out: shape (m, d), to be labelled.
        held_out_labels: shape (m,), the truth.
        neighbours: how many vote.

    Raises:
        InputError: shapes that do not fit, entries that are not finite.
    """
    from sklearn.neighbors import KNeighborsClassifier

    neighbours = count("neighbours", neighbours)
    embeddings, labels, held_out, held_out_labels = _labelled(embeddings, labels, held_out, held_out_labels)
    if len(embeddings) < neighbours:
        raise refuse("neighbours", neighbours, f"at most {len(embeddings)}", "there are that many labelled embeddings")
    voters = KNeighborsClassifier(neighbours, algorithm="brute").fit(embeddings, labels)
    return float(np.mean(voters.predict(held_out) == held_out_labels))


def linear_probe(embeddings: Any, labels: Any, held_out: Any, held_out_labels: Any) -> float:
    """Accuracy of a logistic regression on the embeddings, which stay as they are.

    The penalty is that of scikit-learn, |w|^2/2 with C = 1; collapsed embeddings score the share of the largest class.

    Args:
        embeddings: shape (n, d), with labels of at least two classes.
        labels: shape (n,).
        held_out: shape (m, d), to be labelled.
        held_out_labels: shape (m,), the truth.

    Raises:
        InputError: shapes that do not fit, entries that are not finite, one class.

    Alain & Bengio 2016.
    """
    from sklearn.linear_model import LogisticRegression

    embeddings, labels, held_out, held_out_labels = _labelled(embeddings, labels, held_out, held_out_labels)
    if len(np.unique(labels)) < 2:
        raise refuse("labels", "one class", "at least two", "there is nothing to tell apart")
    probe = LogisticRegression(max_iter=2000).fit(embeddings, labels)
    return float(np.mean(probe.predict(held_out) == held_out_labels))


def chance(labels: Any) -> float:
    """Accuracy of always naming the most frequent label: what collapsed embeddings are measured against."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise refuse("labels", f"shape {labels.shape}", "shape (n,), n >= 1", "one label per embedding")
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def retrieval(a: Any, b: Any) -> Retrieval:
    """Top-1 retrieval by cosine, both ways: row i of a belongs to row i of b.

    Rows that tie with the partner, to the accuracy of float32, share the hit: it counts 1/(how many tie), what random
    choice among them would score. Collapsed embeddings so score 1/n, not 1.

    Args:
        a: unit rows, shape (n, d), n >= 2.
        b: unit rows, shape (n, d).

    Raises:
        InputError: shapes that differ, rows that are not unit vectors.
    """
    a, b = as_unit_rows("a", a), as_unit_rows("b", b)
    if a.shape != b.shape or len(a) < 2:
        raise refuse("b", f"shape {b.shape} beside a of shape {a.shape}", "the same shape twice, n >= 2",
                     "row i of both belong together")  # fmt: skip
    cosines = a @ b.T
    return Retrieval(_top_one(cosines), _top_one(cosines.T), 1 / len(a))


def _top_one(cosines: np.ndarray) -> float:
    best = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
    return float(np.mean(np.diag(best) / best.sum(axis=1)))


def _labelled(*given: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    embeddings, held_out = numbers("embeddings", given[0]), numbers("held_out", given[2])
    labels, held_out_labels = np.asarray(given[1]), np.asarray(given[3])
    for name, rows, truth in (("embeddings", embeddings, labels), ("held_out", held_out, held_out_labels)):
        if rows.ndim != 2 or truth.shape != rows.shape[:1]:
            raise refuse(name, f"shape {rows.shape} with labels of shape {truth.shape}", "shapes (n, d) and (n,)",
                         "one row and one label per image")  # fmt: skip
        if not np.all(np.isfinite(rows)):
            raise refuse(name, "NaN or infinite entries", "finite entries", "the training diverged; look at its loss")
    if embeddings.shape[1] != held_out.shape[1]:
        raise refuse("held_out", f"rows of {held_out.shape[1]}", f"rows of {embeddings.shape[1]}", "use one encoder")
    return embeddings, labels, held_out, held_out_labels
