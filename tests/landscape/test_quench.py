"""Quenches follow the gradient flow, and basins are told by where it ends."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.landscape import communicating_height, newton_polish, quench
from infonce_jax.landscape.network import add_passage, critical_depth, spectral_depth


@pytest.fixture(scope="module")
def land(ring5):
    return ring5


@pytest.fixture(scope="module")
def points():
    x = np.random.default_rng(9).normal(size=(200, 5, 2))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_quench_lowers_the_energy_and_ends_where_the_gradient_is_small(land, points):
    before = ij.landscape.energies_of(land.energy, points)
    x, energies, norms = quench(land.energy, points, gradient_below=1e-5)
    assert np.all(energies < before)
    assert np.all(norms < 1e-5)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, atol=1e-12)
    np.testing.assert_allclose(ij.landscape.energies_of(land.energy, x), energies, rtol=1e-12)


def test_basins_are_those_of_the_gradient_flow(land, points):
    @jax.jit
    def flow(x):
        gradient = jax.vmap(ij.sphere.gradient(lambda y: land.energy(y)))

        def step(_, x):
            return ij.sphere.project(x - 2e-3 * gradient(x))

        return jax.lax.fori_loop(0, 20_000, step, x)

    with jax.enable_x64(True):
        ends = np.asarray(flow(jnp.asarray(points)))
    expected = np.where(ij.landscape.energies_of(land.energy, ends) < 5, 0, 1)
    # a start next to the separatrix may fall either way; more than one in 200 would be a wrong descent
    assert np.sum(land.basin_of(points) != expected) <= 1


def test_basins_keep_the_shape_of_the_points(land, points):
    flat = land.basin_of(points[:60])
    np.testing.assert_array_equal(land.basin_of(points[:60].reshape(3, 20, 5, 2)), flat.reshape(3, 20))
    assert land.basin_of(points[0]).shape == ()


def test_points_of_an_unknown_basin_are_minus_one(land, points):
    import dataclasses

    blind = dataclasses.replace(land, minima=land.minima[:1])
    known, partly = land.basin_of(points[:60]), blind.basin_of(points[:60])
    np.testing.assert_array_equal(partly, np.where(known == 0, 0, -1))


def test_minima_and_saddles_stay_where_they_are(land):
    positions = np.stack([m.position for m in land.minima] + [s.position for s in land.saddles])
    polished, derivatives = newton_polish(land.energy, positions)
    np.testing.assert_allclose(polished, positions, atol=1e-9)
    assert np.all(np.linalg.norm(derivatives.gradient, axis=1) < 1e-10)


def test_an_energy_that_cannot_unroll_quenches_the_same(land, points):
    # a sort has no scalar form, so this goes through arrays
    sorted_energy = ij.energies.from_function(
        lambda x: land.energy(x) + 0.0 * jnp.sum(jnp.sort(x, axis=0)), shape=(5, 2)
    )
    plain = quench(land.energy, points[:40], 1e-6)[1]
    np.testing.assert_allclose(quench(sorted_energy, points[:40], 1e-6)[1], plain, atol=1e-9)


def _hand_made():
    # 0 (E=0) -5- 1 (E=1) -3- 2 (E=2), and a high direct passage 0 -7- 2
    graph = nx.Graph()
    graph.add_nodes_from(range(4))
    add_passage(graph, 0, 1, 5.0, 0)
    add_passage(graph, 1, 2, 3.0, 1)
    add_passage(graph, 0, 2, 7.0, 2)
    add_passage(graph, 0, 1, 6.0, 3)
    return graph


def test_communicating_height_is_a_minimax_over_paths():
    graph = _hand_made()
    assert communicating_height(graph, 0, 1) == 5.0
    assert communicating_height(graph, 1, 2) == 3.0
    assert communicating_height(graph, 2, 0) == 5.0
    assert communicating_height(graph, 0, 3) == math.inf


def test_critical_depth_is_the_deepest_trap():
    graph = _hand_made()
    graph.remove_node(3)
    assert critical_depth(graph, [0.0, 1.0, 2.0]) == 4.0  # from 1: 5 - 1; from 2: 5 - 2
    assert critical_depth(graph, [0.0]) == 0.0
    assert critical_depth(_hand_made(), [0.0, 1.0, 2.0, 2.5]) == math.inf


def test_spectral_depth_adds_passages_between_global_copies():
    # two global copies joined only through the trap
    copies = nx.Graph()
    add_passage(copies, 0, 2, 5.0, 0)
    add_passage(copies, 1, 2, 5.0, 0)
    assert spectral_depth(copies, {0: 0, 1: 0, 2: 1}, [1.0, 3.0], e_star=2.0) == 4.0
    assert spectral_depth(copies, {0: 0, 2: 1}, [1.0, 3.0], e_star=2.0) == 2.0
