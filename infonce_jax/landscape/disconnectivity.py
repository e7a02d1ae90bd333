"""The disconnectivity tree of a landscape: which minima a rising energy joins, and at which height.

Becker and Karplus 1997, "The topology of multidimensional potential energy surfaces"; Wales, Miller and Walsh 1998.
A leaf is a minimum; a node is a set of minima that paths below its height do not join, and paths up to it do.
"""

from __future__ import annotations

import dataclasses

import networkx as nx

from infonce_jax.checks import instance, refuse
from infonce_jax.landscape.model import SAME_ENERGY, Landscape

__all__ = ["DisconnectivityTree", "TreeNode", "disconnectivity"]


@dataclasses.dataclass(frozen=True)
class TreeNode:
    """A minimum or a merger of minima.

    Attributes:
        energy: of the minimum, or the communicating height at which the children join.
        x: place from left to right; leaves stand at 0, 1, 2, ..., a merger in the middle of its outer children.
        children: indices of the nodes that join here; none for a leaf.
        minimum: class of the leaf, an index into `landscape.minima`; -1 for a merger.
        member: node of `landscape.network` or `landscape.copies` that the leaf is; -1 for a merger.
    """

    energy: float
    x: float
    children: tuple[int, ...] = ()
    minimum: int = -1
    member: int = -1


@dataclasses.dataclass(frozen=True)
class DisconnectivityTree:
    """Nodes, children before their parents.

    Attributes:
        nodes: leaves and mergers.
        roots: indices of nodes without a parent: one, unless some minima have no known passage to the others.
        copies: whether leaves are single copies or classes of minima.
    """

    nodes: tuple[TreeNode, ...]
    roots: tuple[int, ...]
    copies: bool

    @property
    def leaves(self) -> tuple[int, ...]:
        """Indices of the leaves, from left to right."""
        found = [k for k, node in enumerate(self.nodes) if not node.children]
        return tuple(sorted(found, key=lambda k: self.nodes[k].x))

    def height(self, first: int, second: int) -> float:
        """Height at which two leaves join; infinite where no passage is known.

        Args:
            first: index of a leaf in `nodes`.
            second: index of another one.
        """
        parents = {child: k for k, node in enumerate(self.nodes) for child in node.children}
        above = {first}
        while first in parents:
            first = parents[first]
            above.add(first)
        while second not in above:
            if second not in parents:
                return float("inf")
            second = parents[second]
        return self.nodes[second].energy


def disconnectivity(landscape: Landscape, copies: bool = False) -> DisconnectivityTree:
    """The disconnectivity tree of the classes of minima, or of all their copies.

    Args:
        landscape: from `landscape.explore`.
        copies: one leaf for each copy under permutations and reflections instead of one for each class.

    Raises:
        InputError: copies are wanted and were not counted.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    graph = landscape.copies if copies else landscape.network
    if not len(graph):
        raise refuse("copies", "a landscape whose copies were not counted", "counted copies", "use copies=False")
    members = sorted(graph.nodes)
    classes = [graph.nodes[member]["minimum"] if copies else member for member in members]
    nodes = [TreeNode(landscape.minima[k].energy, 0.0, (), k, member)
             for k, member in zip(classes, members, strict=True)]  # fmt: skip
    roots = _merge(nodes, {member: k for k, member in enumerate(members)}, graph)
    _place(nodes, roots)
    return DisconnectivityTree(tuple(nodes), tuple(roots), copies)


def _merge(nodes: list[TreeNode], place: dict[int, int], graph: nx.Graph) -> list[int]:
    """Append the mergers to the leaves, lowest first, those of one height in one node; return the roots, lowest first.

    The tree of least heights holds every communicating height, so its edges are enough (Kruskal).
    """
    edges = nx.minimum_spanning_edges(graph, weight="height", data=True)
    rising = sorted(((data["height"], place[a], place[b]) for a, b, data in edges))
    holder = list(range(len(nodes)))  # of each leaf: the node that holds it now
    done = 0
    while done < len(rising):
        height = rising[done][0]
        last = done
        while last < len(rising) and rising[last][0] - height < SAME_ENERGY * (1 + abs(height)):
            last += 1
        joins = nx.Graph((holder[a], holder[b]) for _, a, b in rising[done:last])
        for group in sorted(sorted(part) for part in nx.connected_components(joins)):
            nodes.append(TreeNode(height, 0.0, tuple(group)))
            holder = [len(nodes) - 1 if h in group else h for h in holder]
        done = last
    lowest = _lowest(nodes)
    return sorted(set(holder), key=lambda k: (lowest[k], k))


def _lowest(nodes: list[TreeNode]) -> list[float]:
    """Energy of the lowest minimum below each node."""
    lowest: list[float] = []
    for node in nodes:
        lowest.append(min((lowest[c] for c in node.children), default=node.energy))
    return lowest


def _place(nodes: list[TreeNode], roots: list[int]) -> None:
    """Lay the leaves out from left to right, in each node the child with the lowest minimum first."""
    lowest = _lowest(nodes)
    order: list[int] = []
    waiting = list(reversed(roots))
    while waiting:
        k = waiting.pop()
        if not nodes[k].children:
            order.append(k)
        waiting += sorted(nodes[k].children, key=lambda c: (-lowest[c], -c))
    for x, k in enumerate(order):
        nodes[k] = dataclasses.replace(nodes[k], x=float(x))
    for k, node in enumerate(nodes):
        if node.children:
            places = [nodes[c].x for c in node.children]
            children = tuple(sorted(node.children, key=lambda c: nodes[c].x))
            nodes[k] = dataclasses.replace(node, x=(min(places) + max(places)) / 2, children=children)
