"""The disconnectivity tree says of every pair of minima at which energy a path joins them."""

from __future__ import annotations

import dataclasses
import itertools
import math

import networkx as nx
import pytest

import infonce_jax as ij


def test_heights_in_the_tree_are_communicating_heights(ring5):
    land = ring5
    tree = ij.landscape.disconnectivity(land, copies=True)
    assert len(tree.leaves) == 12  # two windings and ten folds
    for a, b in itertools.combinations(tree.leaves, 2):
        wanted = ij.landscape.communicating_height(land.copies, tree.nodes[a].member, tree.nodes[b].member)
        assert tree.height(a, b) == pytest.approx(wanted, abs=1e-6)


def test_minima_that_join_at_one_height_join_in_one_node(ring5):
    # ring5: the ten folds over their ten equal saddles, then both windings and the folds over the saddle of E*
    tree = ij.landscape.disconnectivity(ring5, copies=True)
    mergers = [node for node in tree.nodes if node.children]
    assert [len(node.children) for node in mergers] == [10, 3]
    assert [node.energy for node in mergers] == pytest.approx([6.1768219, 6.835086840], abs=1e-6)


def test_classes_give_e_star(ring5):
    land = ring5
    tree = ij.landscape.disconnectivity(land)
    assert [tree.nodes[k].minimum for k in tree.leaves] == [0, 1]
    assert tree.height(*tree.leaves) - tree.nodes[tree.leaves[1]].energy == pytest.approx(land.critical_depth, abs=1e-9)


@pytest.mark.parametrize("copies", [False, True])
def test_layout_has_no_crossing_lines(ring5, copies):
    tree = ij.landscape.disconnectivity(ring5, copies=copies)
    assert [tree.nodes[k].x for k in tree.leaves] == list(range(len(tree.leaves)))

    def below(k):
        return {tree.nodes[k].x} if not tree.nodes[k].children else set().union(*map(below, tree.nodes[k].children))

    for k, node in enumerate(tree.nodes):
        places = sorted(below(k))
        assert places == list(range(int(places[0]), int(places[-1]) + 1))  # leaves of one node stand together
        assert all(tree.nodes[c].energy < node.energy and c < k for c in node.children)
    assert tree.nodes[tree.leaves[0]].minimum == 0  # the global minimum first


def test_minima_without_a_passage_are_trees_of_their_own(ring5):
    land = ring5
    apart = nx.Graph()
    apart.add_nodes_from(land.network.nodes(data=True))
    tree = ij.landscape.disconnectivity(dataclasses.replace(land, network=apart))
    assert len(tree.roots) == 2
    assert tree.height(*tree.leaves) == math.inf


def test_copies_that_were_not_counted_are_refused(ring5):
    with pytest.raises(ij.InputError, match="copies=False"):
        ij.landscape.disconnectivity(dataclasses.replace(ring5, copies=nx.Graph()), copies=True)
