"""Bands that do not know of the saddles against saddles found by search, and paths with closed forms."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import infonce_jax as ij

# energies of the saddles that set E* and m (SCENARIOS.md, with six decimals or more)
BARRIERS = {"double_well": 3.826976266, "ring5": 6.835086840, "cube": 13.481322, "digit_orbit": 14.377233}


@pytest.fixture(scope="module")
def ring5_path():
    # From a search of its own: between the copies that this one finds, no image happens to lie at the saddle.
    land = ij.landscape.explore(ij.scenarios.ring(5).energy, seed=0, num_quenches=128, num_searches=192)
    return ij.landscape.path(land, 1, 0, detours=0)


def _rotation(angle):
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


@pytest.mark.parametrize("name", BARRIERS)
def test_bands_confirm_the_saddles_that_set_the_barriers(explored, name):
    # On double_well the shortest great circle leads over the second saddle, at 5.03: the long way must be tried.
    table = ij.landscape.check_saddles(explored(name))
    assert len(table.rows) == 1  # one saddle sets both E* and m on all of these
    row = table.rows[0]
    assert row.band_energy == pytest.approx(row.saddle_energy, abs=1e-6)
    assert row.band_energy == pytest.approx(BARRIERS[name], abs=1e-6)
    assert table.agrees
    assert "confirms" in str(table)


def test_saddle_between_copies_that_sets_m_is_among_those_checked(explored):
    # square_keys: E* is set between classes, m between the two copies of the global minimum, by a mirror image that
    # is no relabelling of embeddings
    land = explored("square_keys")
    assert [land.saddles[k].ends for k in ij.landscape.barrier_saddles(land)] == [(0, 0), (0, 1)]
    assert ij.landscape.check_saddles(land).agrees


def test_a_barrier_that_is_too_high_is_reported(explored):
    land = explored("double_well")
    wrong = dataclasses.replace(land.saddles[0], energy=land.saddles[0].energy + 0.1)
    network = nx.Graph()
    network.add_nodes_from(land.network.nodes(data=True))
    network.add_edge(0, 1, height=wrong.energy, saddle=0)
    table = ij.landscape.check_saddles(
        dataclasses.replace(land, saddles=(wrong, land.saddles[1]), network=network), [0]
    )
    assert not table.agrees
    assert table.rows[0].difference == pytest.approx(-0.1, abs=1e-6)
    assert "LOWER" in table.rows[0].statement


def test_rotated_and_relabelled_ends_give_the_same_barrier(explored, ring5_path):
    land = explored("ring5")
    band = ring5_path
    first, last = band.positions[0], band.positions[-1]
    turned, order = ij.landscape.elastic_band(land.energy, first, last @ _rotation(2.0)), np.roll(np.arange(5), 2)
    relabelled = ij.landscape.elastic_band(land.energy, first[order] @ _rotation(-1.0), last[order] @ _rotation(0.4))
    for other in (turned, relabelled):
        assert other.converged
        assert other.negative_modes == 1
        assert other.barrier == pytest.approx(land.critical_depth, abs=1e-8)
    # the last image is the wanted end up to a rotation
    assert turned.positions[-1] @ turned.positions[-1].T == pytest.approx(last @ last.T, abs=1e-9)


def test_energy_rises_to_the_saddle_and_falls_from_it(explored, ring5_path):
    land = explored("ring5")
    for found in (ring5_path, ij.landscape.steepest_descent_path(land, 1)):
        forward = np.diff(found.energies)
        rising = forward > 0
        changes = np.flatnonzero(np.diff(rising.astype(int)))
        assert changes.tolist() == [found.top - 1]
        assert sorted(found.energies[[0, -1]]) == pytest.approx([m.energy for m in land.minima], abs=1e-9)
        assert found.energies[found.top] == pytest.approx(land.saddles[1].energy, abs=1e-8)


def test_arc_length_is_the_sum_of_product_distances(ring5_path):
    band = ring5_path
    with jax.enable_x64(True):
        steps = ij.sphere.product_distance(jnp.asarray(band.positions[:-1]), jnp.asarray(band.positions[1:]))
    assert band.arc_length[0] == 0
    assert np.diff(band.arc_length) == pytest.approx(np.asarray(steps), abs=1e-12)


def test_band_without_a_climbing_image_stays_below_the_saddle(explored, ring5_path):
    land, band = explored("ring5"), ring5_path
    plain = ij.landscape.elastic_band(land.energy, band.positions[0], band.positions[-1], climbing=False)
    assert plain.converged
    assert plain.gradient_norm > 1e-3  # its top is an ordinary image
    assert plain.barrier < land.critical_depth


def test_ends_at_the_antipode_of_each_other():
    # E = -z^2 + x^2/2 on S^2: minima at the poles, saddles at +-y with E = 0, so the barrier is exactly 1
    energy = ij.energies.from_function(lambda x: -(x[0, 2] ** 2) + x[0, 0] ** 2 / 2, shape=(1, 3))
    pole = np.array([[0.0, 0.0, 1.0]])
    band = ij.landscape.elastic_band(energy, pole, -pole)
    assert band.converged
    assert band.barrier == pytest.approx(1, abs=1e-9)
    assert abs(band.positions[band.top, 0, 1]) == pytest.approx(1, abs=1e-6)
    assert band.arc_length[-1] == pytest.approx(math.pi, abs=1e-3)  # chords of 14 pieces of a half circle


def test_path_of_one_angle_has_the_length_between_its_minima(explored):
    # THEORY section 3: minima at 105.795808 and -108.968789 degrees, joined through the saddle at -13.987553
    found = ij.landscape.steepest_descent_path(explored("double_well"), 0)
    assert found.arc_length[-1] == pytest.approx(math.radians(105.795808 + 108.968789), abs=1e-7)
    down = found.arc_length[-1] - found.arc_length[found.top]
    assert down == pytest.approx(math.radians(108.968789 - 13.987553), abs=1e-7)
    assert found.transverse_determinant == pytest.approx(1)


def test_soft_valley_of_the_ring_s_trap(explored):
    """Length and integral of ds/sqrt(det H_perp) of the path over the saddle between two copies of the trap.

    Against .8168454 and .1563241 from Runge-Kutta steps in the angles and finite-difference Hessians, without any of
    this package. THEORY ("soft valleys") has .81483 and .155905: these leave out a first step of .001 radians on each
    side of the saddle, as the same computation does when it starts there without counting it (.814831, .155941).
    """
    land = explored("ring5")
    found = ij.landscape.steepest_descent_path(land, 0)
    assert found.ends == (1, 1)
    assert found.arc_length[-1] == pytest.approx(0.8168454, abs=2e-6)
    assert found.valley_integral() == pytest.approx(0.1563241, abs=1e-6)
    # The valley formula of THEORY with 10 saddles of each kind: 492, 1464, 4299 there, from the shorter path.
    saddle = land.saddles[1]
    assert (land.saddles[0].copies, saddle.copies) == (10, 10)
    valley, width = 10 * found.valley_integral(), math.sqrt(abs(float(np.prod(saddle.eigenvalues))))
    for exponent, mean_time in ((5, 492), (6, 1464), (7, 4299)):
        beta = exponent / land.critical_depth
        rate = abs(saddle.eigenvalues[0]) / (2 * math.pi) * math.sqrt(2 * math.pi / beta) * 10 / width / valley
        assert math.exp(exponent) / rate == pytest.approx(mean_time, rel=0.004)


def test_start_from_the_saddle_finds_it_even_where_its_descent_runs_along_a_ridge(explored):
    # cube: the symmetric descent from the saddle of E* ends at the lower saddle between two copies of the trap
    land = explored("cube")
    number = ij.landscape.barrier_saddles(land)[0]
    assert -1 in ij.landscape.steepest_descent_path(land, number, 51).ends
    band = ij.landscape.path(land, 1, 0, start="saddle")
    assert band.converged
    assert band.energies[[0, -1]] == pytest.approx([land.minima[1].energy, land.minima[0].energy], abs=1e-8)
    assert band.barrier == pytest.approx(land.critical_depth, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"first": np.ones((5, 2))}, ["first", "norm"]),
        ({"last": np.eye(2)}, ["last", "(2, 2)", "(5, 2)"]),
        ({"num_images": 3}, ["num_images", "3", "at least 5"]),
        ({"gradient_below": 0.0}, ["gradient_below", "above zero"]),
        ({"max_iterations": 0}, ["max_iterations", "0"]),
        ({"seed": -1}, ["seed", "-1"]),
    ],
)
def test_bad_ends_and_numbers_are_refused(explored, ring5_path, change, words):
    land, band = explored("ring5"), ring5_path
    arguments = {"first": band.positions[0], "last": band.positions[-1], "symmetry": land.symmetry} | change
    with pytest.raises(ij.InputError) as error:
        ij.landscape.elastic_band(land.energy, **arguments)
    assert all(word in str(error.value) for word in words)


def test_bad_indices_and_starts_are_refused(explored, ring5_path):
    land, x = explored("double_well"), ring5_path.positions[0]
    with pytest.raises(ij.InputError, match="up to a rotation"):
        ij.landscape.elastic_band(explored("ring5").energy, x, x @ _rotation(1.0))
    with pytest.raises(ij.InputError, match="one copy"):
        ij.landscape.path(land, 1, 1)
    with pytest.raises(ij.InputError, match="target: got 2"):
        ij.landscape.path(land, 0, 2)
    with pytest.raises(ij.InputError, match="'geodesic' or 'saddle'"):
        ij.landscape.path(land, 1, 0, start="straight")
    with pytest.raises(ij.InputError, match="no known saddle"):
        ij.landscape.path(explored("ring5"), 0, 0, start="saddle")
    with pytest.raises(ij.InputError, match="saddles: got 7"):
        ij.landscape.check_saddles(land, [7])
    with pytest.raises(ij.InputError, match="saddle: got -1"):
        ij.landscape.steepest_descent_path(land, -1)
    with pytest.raises(ij.InputError, match="odd"):
        ij.landscape.steepest_descent_path(land, 0, 200)
    with pytest.raises(ij.InputError, match="valley floor"):
        # digit_orbit's way from the trap to the global minimum leaves the floor
        ij.landscape.steepest_descent_path(explored("digit_orbit"), 1).valley_integral()
