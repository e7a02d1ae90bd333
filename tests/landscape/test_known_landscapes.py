"""Landscapes found without being told, against two independent optimisers (SCENARIOS.md and its reference data)."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij

# name: energies of the minima, E*, some saddles, spectral depth m (SCENARIOS.md; square_keys and double_well have
# discrete symmetries of their own and m is theory's only for double_well, where it equals E*)
KNOWN = {
    "ring5": ([3.973452766, 6.172038470], 0.66304837, [6.1768219, 6.835086840], 2.861634),
    "ring8": ([7.758188611, 12.058005130], 0.64591438, [12.0896349, 12.703920, 19.1932797], 4.945731),
    "cube": ([9.640212467, 13.121021320, 14.563831318], 0.36030043, [13.288452, 13.481322, 14.578313, 14.586664], None),
    "digit_orbit": ([10.923239778, 13.693702239], 0.68353098, [13.767069, 14.377233, 14.3782299], 3.453993),
    "square_keys": ([3.869245480, 4.575791387], 0.46483501, [5.040626], None),
    "double_well": ([2.946184453, 3.497121262], 0.3298550045, [3.826976266, 5.032133698], 0.3298550045),
}


@pytest.mark.parametrize("name", KNOWN)
def test_minima_are_found_to_1e8(explored, name):
    land = explored(name)
    # the reference gives nine decimals, so it is itself uncertain by 5e-10
    assert [m.energy for m in land.minima] == pytest.approx(KNOWN[name][0], abs=1e-8)
    assert all(m.gradient_norm < 1e-10 for m in land.minima)
    assert sum(m.share for m in land.minima) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", KNOWN)
def test_critical_depth_is_found_to_1e6(explored, name):
    assert explored(name).critical_depth == pytest.approx(KNOWN[name][1], abs=1e-6)


@pytest.mark.parametrize("name", KNOWN)
def test_known_saddles_are_among_those_found(explored, name):
    found = np.array([s.energy for s in explored(name).saddles])
    for energy in KNOWN[name][2]:
        assert np.min(np.abs(found - energy)) < 1e-6
    assert all(s.eigenvalues[0] < 0 < s.eigenvalues[1] for s in explored(name).saddles if len(s.eigenvalues) > 1)


@pytest.mark.parametrize("name", [name for name, known in KNOWN.items() if known[3] is not None])
def test_spectral_depth_counts_passages_between_copies(explored, name):
    land = explored(name)
    assert land.spectral_depth == pytest.approx(KNOWN[name][3], abs=1e-6)
    assert land.spectral_depth >= land.critical_depth


def test_copies_are_counted_up_to_rotations(explored):
    # ring5: two windings; the fold has ten copies under the dihedral group (SCENARIOS, "soft valleys" of THEORY)
    assert [m.copies for m in explored("ring5").minima] == [2, 10]
    assert [m.copies for m in explored("ring8").minima] == [2, 8]


def test_square_keys_has_two_copies_joined_below_the_trap_s_passage(explored):
    # E is symmetric under the reflection that swaps the keys at 0 and 180 degrees
    land = explored("square_keys")
    assert [m.copies for m in land.minima] == [2, 2]
    between = min(s.energy for s in land.saddles if s.ends == (0, 0))
    assert land.spectral_depth == pytest.approx(max(land.critical_depth, between - land.minima[0].energy), abs=1e-9)


def test_one_more_dimension_removes_the_trap():
    # SCENARIOS: the ring's local minimum at d = 2 is an index-1 saddle at d = 3
    land = ij.landscape.explore(ij.scenarios.ring(5, dim=3).energy, num_quenches=256, num_searches=256)
    assert len(land.minima) == 1
    assert land.critical_depth == 0
    assert np.min(np.abs([s.energy - 6.172038470 for s in land.saddles])) < 1e-7


@pytest.mark.parametrize(("n", "d", "energy"), [(6, 3, 1.4195684094053422), (12, 3, 2.6678680)])
def test_uniformity_finds_the_platonic_solids(n, d, energy):
    # THEORY section 5: octahedron log(2d - 2 + e^{-1/tau}) and icosahedron at tau = .5, as means over anchors
    scenario = ij.energies.uniformity_energy(n, d, temperature=0.5, reduction="mean")
    x = np.random.default_rng(0).normal(size=(64, n, d))
    _, energies, _ = ij.landscape.quench(scenario, x / np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
    assert energies.min() == pytest.approx(energy, abs=1e-7)


@pytest.mark.parametrize(("pairs", "d", "tau", "energy"), [(3, 2, 0.5, 0.0949230), (4, 3, 0.3, 0.0346245)])
def test_clip_finds_the_simplex(pairs, d, tau, energy):
    # THEORY section 5: u_i = v_i = simplex, log(1 + (N-1) e^{-N/((N-1) tau)}) for N <= d + 1
    clip = ij.energies.clip_energy(pairs, d, temperature=tau)
    x = np.random.default_rng(1).normal(size=(64, 2 * pairs, d))
    _, energies, _ = ij.landscape.quench(clip, x / np.linalg.norm(x, axis=-1, keepdims=True), 1e-7)
    assert energies.min() == pytest.approx(energy, abs=1e-7)
    assert energies.min() == pytest.approx(np.log1p((pairs - 1) * np.exp(-pairs / ((pairs - 1) * tau))), abs=1e-9)


def test_low_temperature_heptagon_is_not_the_minimum_of_the_anchor_sum():
    # THEORY section 5: n = 7 on the circle at tau = .1: the heptagon has 6.928257, clusters have at most 6.898844
    energy = ij.energies.uniformity_energy(7, 2, temperature=0.1, reduction="mean")
    turn = 2 * np.pi * np.arange(7) / 7
    heptagon = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    x = np.random.default_rng(2).normal(size=(96, 7, 2))
    _, energies, _ = ij.landscape.quench(energy, x / np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
    assert ij.landscape.energies_of(energy, heptagon[None])[0] == pytest.approx(6.928257, abs=1e-6)
    assert energies.min() < 6.898845


def test_twisted_states_of_the_ring_have_their_closed_form():
    # THEORY section 5: E(q) = -cos(2 pi q/n)/tau + log sum_k exp(cos(2 pi q k/n)/tau); n = 9, tau = .3
    energy = ij.scenarios.ring(9, temperature=0.3).energy
    for q, expected in ((1, 0.83889), (2, 2.81355)):
        turn = 2 * np.pi * q * np.arange(9) / 9
        state = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        assert ij.landscape.energies_of(energy, state[None])[0] / 9 == pytest.approx(expected, abs=1e-5)
        _, energies, norms = ij.landscape.quench(energy, state[None], 1e-8)
        assert energies[0] / 9 == pytest.approx(expected, abs=1e-5)  # a stable local minimum
        assert norms[0] < 1e-6


def test_a_search_with_the_same_seed_finds_the_same_bits():
    # The tests of the command line remember landscapes, as it does, and would not see it.
    first, again = (ij.landscape.explore(ij.scenarios.double_well().energy, seed=3, num_quenches=512, num_searches=64)
                    for _ in range(2))  # fmt: skip
    for one, other in zip((*first.minima, *first.saddles), (*again.minima, *again.saddles), strict=True):
        assert (one.energy, one.position.tobytes()) == (other.energy, other.position.tobytes())
    assert (first.critical_depth, first.spectral_depth) == (again.critical_depth, again.spectral_depth)


def test_search_says_when_it_is_not_saturated_and_when_a_passage_is_missing(explored):
    energy = ij.scenarios.ring(5).energy
    few = ij.landscape.explore(energy, num_quenches=12, num_searches=2)
    assert not few.saturated
    assert "search more" in few.statement() or "not saturated" in few.statement()
    assert "upper bound" in explored("ring5").statement()


def test_mirror_images_that_no_symmetry_knows_count_as_copies(explored):
    # square_keys has a mirror through the two positives, which keys at fixed places hide from rotations: both saddles
    # between the two minima stand at 5.040626 (SCENARIOS)
    between = [s for s in explored("square_keys").saddles if s.ends == (0, 1) and abs(s.energy - 5.040626) < 1e-5]
    assert [s.copies for s in between] == [2]
