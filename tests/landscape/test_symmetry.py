"""Symmetries are found by asking the energy, and copies are told apart up to rotations only."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import special_ortho_group

import infonce_jax as ij
from infonce_jax.landscape import find_symmetry


@pytest.mark.parametrize(
    ("name", "permutations", "reflection", "free"),
    [
        ("ring5", 10, True, 2),
        ("ring8", 16, True, 2),
        ("cube", 48, True, 3),
        ("digit_orbit", 4, True, 2),
        ("square_keys", 1, False, 0),
        ("double_well", 1, False, 0),
    ],
)
def test_group_is_found(name, permutations, reflection, free):
    symmetry = find_symmetry(ij.scenarios.get(name).energy)
    assert len(symmetry.permutations) == permutations
    assert symmetry.reflection == reflection
    assert len(symmetry.free) == free
    assert symmetry.complete
    assert symmetry.standard


def test_permutations_keep_the_energy_and_form_a_group():
    energy = ij.scenarios.cube().energy
    group = find_symmetry(energy).permutations
    x = np.random.default_rng(5).normal(size=(8, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    energies = ij.landscape.energies_of(energy, x[group])
    np.testing.assert_allclose(energies, energies[0], rtol=1e-12)
    products = {tuple(a[b]) for a in group for b in group}
    assert products == {tuple(a) for a in group}


def test_keys_in_a_plane_leave_no_rotation_of_the_sphere_but_keys_on_an_axis_leave_one():
    plane = ij.energies.graph_infonce([[0, 1.0, 0, 0]], keys=[[1.0, 0, 0], [0.6, 0.8, 0], [0, 1.0, 0]])
    axis = ij.energies.graph_infonce([[0, 1.0, 0]], keys=[[0, 0, 1.0], [0, 0, -1.0]])
    assert len(find_symmetry(plane).free) == 0
    free = find_symmetry(axis).free
    assert free.shape == (2, 3)
    np.testing.assert_allclose(free[:, 2], 0, atol=1e-6)  # the plane that turns about the axis


@pytest.mark.parametrize(("name", "d"), [("ring5", 2), ("cube", 3)])
def test_invariants_ignore_rotations_and_see_reflections(name, d):
    symmetry = find_symmetry(ij.scenarios.get(name).energy)
    n = len(symmetry.permutations[0])
    x = np.random.default_rng(1).normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    turned = x @ special_ortho_group.rvs(d, random_state=3).T
    mirrored = x * np.array([-1.0] + [1.0] * (d - 1))
    swapped = x[np.r_[1, 0, 2:n]]
    first, same, other, relabelled = symmetry.invariants(np.stack([x, turned, mirrored, swapped]))
    np.testing.assert_allclose(first, same, atol=1e-12)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - relabelled).max() > 1e-3


def test_directions_of_rotation_are_zero_modes():
    energy = ij.scenarios.ring(5).energy
    symmetry = find_symmetry(energy)
    x = np.random.default_rng(2).normal(size=(5, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    (direction,) = symmetry.orbit_basis(x)
    ahead, behind = (x + s * 1e-4 * direction for s in (1, -1))
    moved = [p / np.linalg.norm(p, axis=1, keepdims=True) for p in (ahead, behind)]
    energies = ij.landscape.energies_of(energy, np.stack([x, *moved]))
    np.testing.assert_allclose(energies, energies[0], rtol=1e-13)


def test_copies_along_a_rotation_are_one_minimum(ring5):
    # a pounce-like fault: thousands of starts end on the same orbit at thousands of angles
    assert len(ring5.minima) == 2


def test_a_large_group_is_cut_and_the_spectral_depth_is_not_claimed():
    land = ij.landscape.explore(ij.energies.uniformity_energy(8, 2), num_quenches=64, num_searches=16)
    assert not land.symmetry.complete
    assert np.isnan(land.spectral_depth)
    assert land.minima[0].copies is None
