"""The network of minima and saddles, and the two depths of annealing theory that it gives."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
from scipy.spatial import KDTree

__all__ = ["CopyBook", "add_passage", "communicating_height", "critical_depth", "spectral_depth"]

_SAME_COPY = 1e-5


class CopyBook:
    """Numbers the copies of minima: configurations that no rotation maps to each other, by their invariants."""

    def __init__(self) -> None:
        self._known = np.zeros((0, 6))
        self._tree: KDTree | None = None

    def number(self, invariants: np.ndarray) -> list[int]:
        """Numbers of configurations with these invariants, shape (points, 6); new ones are entered."""
        numbers = []
        for row in invariants:
            if self._tree is not None:
                distance, place = self._tree.query(row)
                if distance < _SAME_COPY:
                    numbers.append(int(place))
                    continue
            self._known = np.concatenate([self._known, row[None]])
            self._tree = KDTree(self._known)
            numbers.append(len(self._known) - 1)
        return numbers


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
    tree = nx.minimum_spanning_tree(graph, weight="height")
    if first == second:
        return -math.inf
    if not nx.has_path(tree, first, second):
        return math.inf
    path = nx.shortest_path(tree, first, second)
    return max(tree.edges[a, b]["height"] for a, b in itertools.pairwise(path))


def critical_depth(graph: nx.Graph, energies: list[float]) -> float:
    """E* = max over minima x that are not global of H(x, global) - E(x); node 0 is the global class.

    Hajek 1988, "Cooling schedules for optimal annealing". Zero when there is no other minimum, infinite when one has no
    known passage.
    """
    return max((communicating_height(graph, k, 0) - e for k, e in enumerate(energies) if k > 0), default=0.0)


def spectral_depth(graph: nx.Graph, classes: dict[int, int], energies: list[float], e_star: float) -> float:
    """m = max(E*, highest passage between two copies of the global minimum - min E).

    Args:
        graph: the network of copies, one node per component of minima.
        classes: class of each copy.
        energies: energy of each class.
        e_star: E*.
    """
    copies = [node for node, kind in classes.items() if kind == 0]
    heights = [communicating_height(graph, copies[0], other) for other in copies[1:]]
    return max([e_star, *(height - energies[0] for height in heights)])
