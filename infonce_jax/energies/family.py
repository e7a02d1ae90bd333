"""The named members of the family as energies of free embeddings: each is one choice of graph.

Energies of two views act on one configuration that holds both; `join_views` and `split_views` are the only places that
know how, so that no caller depends on an order.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import as_unit_rows, count, finite, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.energies.contrast import log_sum_exp, similarities
from infonce_jax.energies.graph import GraphInfoNCE, graph_infonce

__all__ = [
    "AlignmentUniformity",
    "alignment_uniformity_energy",
    "clip_energy",
    "decoupled_energy",
    "join_views",
    "nt_xent_energy",
    "one_way_energy",
    "pair_sum_energy",
    "queue_energy",
    "split_views",
    "sup_con_energy",
    "uniformity_energy",
]


def join_views(a: Any, b: Any) -> Any:
    """Both views, each of shape (N, d), as one configuration of shape (2N, d)."""
    if np.shape(a) != np.shape(b):
        raise refuse("a, b", f"shapes {np.shape(a)}, {np.shape(b)}", "the same shape", "row i of both is one pair")
    return jnp.concatenate([jnp.asarray(a), jnp.asarray(b)])


def split_views(x: Any) -> tuple[Any, Any]:
    """The two views, each of shape (N, d), of a configuration made by `join_views`."""
    if np.ndim(x) != 2 or len(x) % 2:
        raise refuse("x", f"shape {np.shape(x)}", "shape (2N, d)", "join two views with join_views")
    return x[: len(x) // 2], x[len(x) // 2 :]


def _pairs(num_pairs: int) -> np.ndarray:
    n = count("num_pairs", num_pairs, least=2, mend="a contrast needs at least two pairs")
    return np.kron([[0.0, 1.0], [1.0, 0.0]], np.eye(n))


def one_way_energy(num_pairs: int, dim: int, temperature: float = 0.5) -> GraphInfoNCE:
    """One-way InfoNCE of N pairs: anchors are the first view, candidates the second (van den Oord et al. 2018).

    Args:
        num_pairs: N, at least 2.
        dim: d >= 2.
        temperature: tau > 0.
    """
    pairs = _pairs(num_pairs)
    first = np.repeat([1.0, 0.0], num_pairs)
    across = np.kron([[0.0, 1.0], [1.0, 0.0]], np.ones((num_pairs, num_pairs)))
    return graph_infonce(pairs, temperature, "mean", dim=dim, multiplicity=across, form="single", anchors=first)


def clip_energy(num_pairs: int, dim: int, temperature: float = 0.5) -> GraphInfoNCE:
    """CLIP's symmetric loss of N pairs, half rows and half columns (Radford et al. 2021).

    Arguments as `one_way_energy`.
    """
    pairs = _pairs(num_pairs)
    across = np.kron([[0.0, 1.0], [1.0, 0.0]], np.ones((num_pairs, num_pairs)))
    return graph_infonce(pairs, temperature, "mean", dim=dim, multiplicity=across, form="single")


def nt_xent_energy(num_pairs: int, dim: int, temperature: float = 0.5) -> GraphInfoNCE:
    """NT-Xent over all 2N views, an anchor itself left out (Chen et al. 2020). Arguments as `one_way_energy`."""
    return graph_infonce(_pairs(num_pairs), temperature, "mean", dim=dim, form="single")


def decoupled_energy(num_pairs: int, dim: int, temperature: float = 0.5) -> GraphInfoNCE:
    """Decoupled contrastive loss: NT-Xent without the positive in the denominator (Yeh et al. 2022).

    Arguments as `one_way_energy`.
    """
    pairs = _pairs(num_pairs)
    negatives = 1 - np.eye(len(pairs)) - pairs
    return graph_infonce(pairs, temperature, "mean", dim=dim, multiplicity=negatives)


def sup_con_energy(labels: Any, dim: int, temperature: float = 0.5, form: str = "out") -> GraphInfoNCE:
    """Supervised contrastive loss (Khosla et al. 2020): the positives of a view are the others with its label.

    Args:
        labels: shape (n,); every label at least twice.
        dim: d >= 2.
        temperature: tau > 0.
        form: "out", equation 2 of the paper, or "in", equation 3.

    Raises:
        InputError: a label that stands once only has no positive, and no finite "in" term.
    """
    names = np.asarray(labels)
    if names.ndim != 1 or not len(names):
        raise refuse("labels", f"shape {names.shape}", "shape (n,)", "one label per view")
    same = (names[:, None] == names[None]) & ~np.eye(len(names), dtype=bool)
    alone = ~same.any(axis=1)
    if alone.any():
        name = names[alone][0].item()
        raise refuse("labels", f"label {name!r} once", "every label at least twice", "leave such views out")
    return graph_infonce(same / same.sum(axis=1, keepdims=True), temperature, "mean", dim=dim, form=form)


def queue_energy(keys: Any, queue: Any, temperature: float = 0.5) -> GraphInfoNCE:
    """InfoNCE of free queries against frozen keys and a queue of negatives (MoCo, He et al. 2020), mean over queries.

    Args:
        keys: the positive of each query, shape (N, d), unit rows.
        queue: the K negatives, shape (K, d), unit rows.
        temperature: tau > 0.
    """
    k, q = as_unit_rows("keys", keys), as_unit_rows("queue", queue)
    if not len(k) or not len(q):
        raise refuse("keys, queue", f"{len(k)} and {len(q)} rows", "at least one of each", "without negatives there is "
                     "nothing to contrast")  # fmt: skip
    if k.shape[1] != q.shape[1]:
        raise refuse("keys, queue", f"dimensions {k.shape[1]}, {q.shape[1]}", "the same dimension", "embed both alike")
    n, size = len(k), len(q)
    positives = np.concatenate([np.zeros((n, n)), np.eye(n), np.zeros((n, size))], axis=1)
    candidates = positives + np.concatenate([np.zeros((n, 2 * n)), np.ones((n, size))], axis=1)
    return graph_infonce(
        positives, temperature, "mean", keys=np.concatenate([k, q]), multiplicity=candidates, form="single"
    )


def uniformity_energy(n: int, dim: int, temperature: float = 0.5, reduction: str = "sum") -> GraphInfoNCE:
    """Per-anchor uniformity: sum_i log sum_{j != i} exp(<z_i, z_j>/tau), InfoNCE without positives.

    Args:
        n: embeddings, at least 2.
        dim: d >= 2.
        temperature: tau > 0.
        reduction: "sum" or "mean" over anchors.
    """
    n = count("n", n, least=2, mend="uniformity needs two embeddings")
    return graph_infonce(np.zeros((n, n)), temperature, reduction, dim=dim)


def pair_sum_energy(n: int, dim: int, temperature: float = 0.5) -> GraphInfoNCE:
    """log sum_{i != j} exp(<z_i, z_j>/tau), whose minima are the universally optimal configurations where they exist.

    (Wang and Isola 2020 for the loss; Cohn and Kumar 2007 for the optima.) Arguments as `uniformity_energy`.
    """
    n = count("n", n, least=2, mend="a pair sum needs two embeddings")
    return graph_infonce(np.zeros((n, n)), temperature, dim=dim, form="pairs")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class AlignmentUniformity(Energy):
    """mean |a - b|^2 + weight * (uniformity(a) + uniformity(b))/2; see `alignment_uniformity_energy`."""

    t: Any
    weight: Any
    num_pairs: int = dataclasses.field(metadata={"static": True})
    dim: int = dataclasses.field(metadata={"static": True})

    gradient_shows_failure: ClassVar[bool] = True  # a polynomial and two log-sum-exps, as in `GraphInfoNCE`

    @property
    def shape(self) -> tuple[int, int]:
        return 2 * self.num_pairs, self.dim

    def __call__(self, x: jax.Array) -> jax.Array:
        if x.shape != self.shape:
            raise refuse("x", f"shape {x.shape}", f"one configuration of shape {self.shape}", "use jax.vmap for many")
        a, b = split_views(x)
        t, weight = jnp.asarray(self.t, x.dtype), jnp.asarray(self.weight, x.dtype)
        upper = np.triu(np.ones((self.num_pairs, self.num_pairs)), 1)

        def spread(z: jax.Array) -> jax.Array:
            # log mean_{i<j} exp(-t |z_i - z_j|^2), with |z_i - z_j|^2 = 2 - 2 s on the sphere
            total = log_sum_exp(2 * t * (similarities(z, z) - 1), jnp.asarray(upper, x.dtype), axis=(0, 1))
            return total - jnp.log(jnp.asarray(upper.sum(), x.dtype))

        return jnp.mean(jnp.sum((a - b) ** 2, axis=-1)) + weight * (spread(a) + spread(b)) / 2


def alignment_uniformity_energy(num_pairs: int, dim: int, t: float = 2.0, weight: float = 1.0) -> AlignmentUniformity:
    """Alignment plus uniformity of N pairs (Wang and Isola 2020): mean |a - b|^2 + weight (u(a) + u(b))/2.

    u(z) = log mean_{i<j} exp(-t |z_i - z_j|^2).

    Args:
        num_pairs: N, at least 2.
        dim: d >= 2.
        t: > 0, how sharply close pairs repel.
        weight: of uniformity, >= 0.
    """
    n = count("num_pairs", num_pairs, least=2, mend="uniformity needs two pairs")
    if finite("weight", weight) < 0:
        raise refuse("weight", weight, "a weight >= 0", "a negative one would reward collapse")
    return AlignmentUniformity(np.asarray(positive("t", t)), np.asarray(float(weight)), n, count("dim", dim, least=2))
