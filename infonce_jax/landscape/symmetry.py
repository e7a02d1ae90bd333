"""The symmetries of an energy, found by asking it: rotations, reflections and relabellings that leave it alone."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np

from infonce_jax.checks import instance
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import double_precision, energies_of

__all__ = ["Symmetry", "find_symmetry"]

_MOST_ELEMENTS = 4000


@dataclasses.dataclass(frozen=True)
class Symmetry:
    """Symmetries of an energy on (S^{d-1})^n.

    Attributes:
        free: orthonormal rows, shape (k, d), of the subspace V whose rotations SO(V) leave the energy alone; V is all
            of R^d without frozen keys, and has k < 2 rows where no rotation does.
        reflection: whether reversing one direction of V leaves it alone as well.
        permutations: shape (g, n), relabellings that leave it alone, the identity first.
        complete: whether the list of permutations is the whole group, or was cut because it is too large.
        standard: whether the continuous symmetries found are exactly SO(V); otherwise copies cannot be told apart here.
    """

    free: np.ndarray
    reflection: bool
    permutations: np.ndarray
    complete: bool
    standard: bool

    @property
    def generators(self) -> np.ndarray:
        """Antisymmetric matrices, shape (k(k-1)/2, d, d), that span the infinitesimal rotations."""
        k, d = self.free.shape
        pairs = itertools.combinations(range(k), 2)
        planes = [np.outer(self.free[i], self.free[j]) - np.outer(self.free[j], self.free[i]) for i, j in pairs]
        return np.array(planes).reshape(-1, d, d)

    @property
    def order(self) -> int:
        """Number of discrete copies a generic configuration has: permutations, times two with the reflection."""
        return len(self.permutations) * (2 if self.reflection else 1)

    def copies(self, x: np.ndarray) -> np.ndarray:
        """All images of one configuration x, shape (n, d), under the discrete symmetries: shape (order, n, d)."""
        images = x[self.permutations]
        if self.reflection:
            mirror = np.eye(x.shape[1]) - 2 * np.outer(self.free[0], self.free[0])
            images = np.concatenate([images, images @ mirror])
        return images

    def orbit_basis(self, x: np.ndarray) -> np.ndarray:
        """Orthonormal basis, shape (r, n, d), of the directions in which rotations move x."""
        moves = np.einsum("nd,ged->gne", x, self.generators).reshape(-1, x.size)
        if not len(moves):
            return np.zeros((0, *x.shape))
        _, sizes, rows = np.linalg.svd(moves, full_matrices=False)
        return rows[sizes > 1e-6].reshape(-1, *x.shape)

    def invariants(self, x: np.ndarray) -> np.ndarray:
        """Numbers that tell configurations apart up to SO(V) and nothing else: shape (points, 6) for x (points, n, d).

        Random combinations of the inner products within V and of the coordinates outside it, and determinants within V,
        which change sign under a reflection.
        """
        rng = np.random.default_rng(20240229)
        points, n, _ = x.shape
        inside = x @ self.free.T
        if self.free.shape[0] < 2:
            return np.stack([np.sum(x * rng.normal(size=x.shape[1:]), axis=(1, 2)) for _ in range(6)], axis=1)
        outside = x - inside @ self.free
        gram = inside @ np.swapaxes(inside, 1, 2)

        def combine(part: np.ndarray) -> np.ndarray:
            return np.sum(part * rng.normal(size=part.shape[1:]), axis=(1, 2))

        flat = np.stack([combine(gram) + combine(outside) for _ in range(3)], axis=1)
        k = self.free.shape[0]
        volumes = [np.linalg.det(rng.normal(size=(k, n)) @ inside) for _ in range(3)]
        return np.concatenate([flat, np.stack(volumes, axis=1)], axis=1).reshape(points, 6)


def _random_points(rng: np.random.Generator, count: int, shape: tuple[int, int]) -> np.ndarray:
    x = rng.normal(size=(count, *shape))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def find_symmetry(energy: Energy) -> Symmetry:
    """Find the rotations, the reflection and the permutations that leave an energy alone.

    Rotations come from the null space of A -> <grad E(x), A x> over antisymmetric A at random x. Permutations are
    automorphisms of a coloured graph, whose colours are energies of two-point configurations, each verified on random
    configurations.
    """
    instance("energy", energy, Energy, "wrap a function with energies.from_function")
    rng = np.random.default_rng(7)
    free, standard = _free_subspace(energy, rng)
    tests = _random_points(rng, 4, energy.shape)
    values = energies_of(energy, tests)
    scale = 1e-9 * (1 + np.max(np.abs(values)))
    reflection = False
    if len(free):
        mirror = np.eye(energy.shape[1]) - 2 * np.outer(free[0], free[0])
        reflection = bool(np.all(np.abs(energies_of(energy, tests @ mirror) - values) < scale))
    permutations, complete = _permutations(energy, rng, tests, values)
    return Symmetry(free, reflection, permutations, complete, standard)


def _free_subspace(energy: Energy, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    n, d = energy.shape
    pairs = list(itertools.combinations(range(d), 2))
    x = _random_points(rng, len(pairs) + 8, (n, d))
    with jax.enable_x64(True):
        exact = double_precision(energy)
        gradient = np.asarray(jax.vmap(jax.grad(lambda z: exact(z)))(jnp.asarray(x)))
    torque = np.einsum("pni,pnj->pij", gradient, x)
    rows = np.stack([torque[:, i, j] - torque[:, j, i] for i, j in pairs], axis=1)
    _, sizes, directions = np.linalg.svd(rows)
    sizes = np.concatenate([sizes, np.zeros(len(pairs) - len(sizes))])
    null = directions[sizes < 1e-9 * (1 + np.max(np.abs(gradient)))]
    if not len(null):
        return np.zeros((0, d)), True
    algebra = np.zeros((len(null), d, d))
    for column, (i, j) in enumerate(pairs):
        algebra[:, i, j], algebra[:, j, i] = null[:, column], -null[:, column]
    _, moved, axes = np.linalg.svd(algebra.reshape(-1, d))
    free = axes[moved > 1e-6]
    k = len(free)
    return free, len(null) == k * (k - 1) // 2


def _permutations(
    energy: Energy, rng: np.random.Generator, tests: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, bool]:
    n, d = energy.shape
    identity = np.arange(n)[None]
    if n == 1:
        return identity, True
    a, b = _random_points(rng, 2, (1, d))[:, 0]
    pairs = [(i, j) for i in range(n) for j in range(i, n)]
    marked = np.broadcast_to(b, (len(pairs), n, d)).copy()
    for row, (i, j) in enumerate(pairs):
        marked[row, [i, j]] = a
    colours = np.zeros((n, n))
    for (i, j), value in zip(pairs, energies_of(energy, marked), strict=True):
        colours[i, j] = colours[j, i] = value
    tolerance = 1e-9 * (1 + np.max(np.abs(values)))
    graph = nx.Graph()
    graph.add_nodes_from((i, {"colour": colours[i, i]}) for i in range(n))
    graph.add_edges_from((i, j, {"colour": colours[i, j]}) for i, j in itertools.combinations(range(n), 2))

    def same(u: dict[str, float], v: dict[str, float]) -> bool:
        return abs(u["colour"] - v["colour"]) < tolerance

    matcher = nx.algorithms.isomorphism.GraphMatcher(graph, graph, node_match=same, edge_match=same)
    found = list(itertools.islice(matcher.isomorphisms_iter(), _MOST_ELEMENTS + 1))
    group = np.array([[mapping[i] for i in range(n)] for mapping in found])
    images = tests[:, group]  # (tests, g, n, d)
    moved = energies_of(energy, images.reshape(-1, n, d)).reshape(len(tests), -1)
    kept = group[np.all(np.abs(moved - values[:, None]) < tolerance, axis=0)]
    kept = kept[np.argsort(np.any(kept != identity, axis=1), kind="stable")]
    return kept[:_MOST_ELEMENTS], len(found) <= _MOST_ELEMENTS
