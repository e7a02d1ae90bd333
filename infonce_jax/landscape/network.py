"""The network of minima and saddles, and the two depths of annealing theory that it gives."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
from scipy.spatial import KDTree

from infonce_jax.checks import refuse

__all__ = ["CopyBook", "add_passage", "communicating_height", "critical_depth", "depths", "spectral_depth"]

_SAME_COPY = 1e-5


class CopyBook:
    """Numbers the copies of minima: configurations that no rotation maps to each other, by their invariants."""

    def __init__(self) -> None:
        self._known = np.zeros((0, 6))

    def number(self, invariants: np.ndarray) -> list[int]:
        """Numbers of configurations with these invariants, shape (points, 6); new ones are entered."""
        numbers = np.full(len(invariants), -1)
        if len(self._known) and len(invariants):
            distance, place = KDTree(self._known).query(invariants)
            numbers = np.where(distance < _SAME_COPY, place, -1)
        fresh: list[np.ndarray] = []
        first = len(self._known)
        for row in np.flatnonzero(numbers < 0):
            apart = np.linalg.norm(np.array(fresh) - invariants[row], axis=1) if fresh else np.zeros(0)
            if len(apart) and apart.min() < _SAME_COPY:
                numbers[row] = first + int(apart.argmin())
            else:
                numbers[row] = first + len(fresh)
                fresh.append(invariants[row])
        self._known = np.concatenate([self._known, np.array(fresh).reshape(-1, 6)])
        return numbers.tolist()


def add_passage(graph: nx.Graph, first: int, second: int, height: float, saddle: int) -> None:
    """Join two minima by a saddle, keeping the lowest one between them."""
    if first == second:
        return
    if not graph.has_edge(first, second) or height < graph.edges[first, second]["height"]:
        graph.add_edge(first, second, height=height, saddle=saddle)


def communicating_height(graph: nx.Graph, first: int, second: int) -> float:
    """H(x, y), the least over paths of the highest saddle on the path; infinite where no path was found.

    On a minimum spanning tree the path between two nodes is a minimax path.
    """
    for name, node in (("first", first), ("second", second)):
        if node not in graph:
            raise refuse(name, node, f"one of {len(graph)} nodes of the network", "an index into landscape.minima")
    tree = nx.minimum_spanning_tree(graph, weight="height")
    if first == second:
        return -math.inf
    if not nx.has_path(tree, first, second):
        return math.inf
    path = nx.shortest_path(tree, first, second)
    return max(tree.edges[a, b]["height"] for a, b in itertools.pairwise(path))


def depths(graph: nx.Graph, energies: list[float], number_global: int = 1) -> list[float]:
    """min over global g of H(x, g) - E(x) for every minimum x that is not global; infinite without a known passage.

    Args:
        graph: classes of minima 0, 1, ... joined by "height".
        energies: of the classes, ascending.
        number_global: how many classes share the lowest energy.
    """
    return [
        min(communicating_height(graph, k, g) for g in range(number_global)) - energies[k]
        for k in range(number_global, len(energies))
    ]


def critical_depth(graph: nx.Graph, energies: list[float], number_global: int = 1) -> float:
    """E*, the largest of the `depths`.

    Hajek 1988, "Cooling schedules for optimal annealing". Zero when there is no other minimum, infinite when one has no
    known passage.

    Args:
        graph: classes of minima 0, 1, ... joined by "height".
        energies: of the classes, ascending.
        number_global: how many classes share the lowest energy.
    """
    return max(depths(graph, energies, number_global), default=0.0)


def spectral_depth(
    graph: nx.Graph, classes: dict[int, int], energies: list[float], e_star: float, number_global: int = 1
) -> float:
    """m = max(E*, highest passage between two copies of a global minimum - min E).

    Args:
        graph: the network of copies, one node per component of minima.
        classes: class of each copy.
        energies: energy of each class, ascending.
        e_star: E*.
        number_global: how many classes share the lowest energy.
    """
    copies = [node for node, kind in classes.items() if kind < number_global]
    heights = [communicating_height(graph, copies[0], other) for other in copies[1:]]
    return max([e_star, *(height - energies[0] for height in heights)])
