"""Two and three embeddings on the circle, in the differences of their angles."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.theory import fokker_planck, rate
from infonce_jax.theory.angle_differences import AngleDifferences
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.torus import fourier_spectrum

# theory.json, "triangle": gaps and their ratios to Eyring-Kramers; its Fourier matrix is good to 5e-7 at beta = 12
TRIANGLE = {
    3: (0.08374316536395854, 0.7008257115443258),
    6: (0.0025354366731596134, 0.8163768240892342),
    9: (7.08070995635391e-05, 0.8771865209739658),
    12: (1.9047624273120098e-06, 0.9078899437310414),
}


@pytest.fixture(scope="module")
def gaps(triangle):
    return {beta: fokker_planck.spectral_gap(triangle.energy, beta) for beta in TRIANGLE}


def test_triangle_gaps(gaps):
    assert gaps == pytest.approx({beta: gap for beta, (gap, _) in TRIANGLE.items()}, rel=1e-6)


def test_triangle_gap_tends_to_eyring_kramers_from_below_and_to_the_spectral_depth(triangle, gaps):
    land = triangle
    assert land.spectral_depth == pytest.approx(1.2166684982385765, rel=1e-7)
    ratios = [gaps[beta] / (2 * rate(land, 0, 0, beta)) for beta in TRIANGLE]
    assert ratios == pytest.approx([ratio for _, ratio in TRIANGLE.values()], rel=1e-5)
    assert ratios == sorted(ratios)
    assert ratios[-1] < 1
    # log gap = c - m beta - a/beta, the form of Eyring-Kramers with its first correction, through the last three
    betas = np.array([6.0, 9.0, 12.0])
    design = np.stack([np.ones(3), -betas, -1 / betas], axis=1)
    _, depth, _ = np.linalg.solve(design, np.log([gaps[beta] for beta in (6, 9, 12)]))
    assert depth == pytest.approx(land.spectral_depth, rel=2e-3)
    # each pair of neighbours alone lies below it, closer and closer
    slopes = [math.log(gaps[a] / gaps[b]) / 3 for a, b in ((3, 6), (6, 9), (9, 12))]
    assert slopes == sorted(slopes)
    assert slopes[-1] < land.spectral_depth


def test_triangle_gap_does_not_depend_on_the_number_of_modes(triangle, gaps):
    assert fourier_spectrum(triangle.energy, 3, 2, modes=24)[1] == pytest.approx(gaps[3], rel=1e-9)


def test_free_differences_have_the_spectrum_of_their_correlated_noise():
    # (2 a^2 + 2 b^2 + 2 a b)/beta for three embeddings, the triangular lattice with its six shortest vectors; for two
    # 2 k^2/beta
    two, three = (ij.energies.from_function(lambda x: 0.0 * x[0, 0], shape=(n, 2)) for n in (2, 3))
    np.testing.assert_allclose(fokker_planck.spectrum(two, 2.0, 5), [0, 1, 1, 4, 4], atol=1e-10)
    np.testing.assert_allclose(fokker_planck.spectrum(three, 2.0, 8), [0, 1, 1, 1, 1, 1, 1, 3], atol=1e-10)


def test_two_embeddings_are_one_angle_at_twice_the_speed():
    pair = ij.energies.uniformity_energy(2, 2, temperature=0.5)
    one = ij.energies.from_function(lambda x: pair(jnp.concatenate([jnp.eye(2)[:1].astype(x.dtype), x])), shape=(1, 2))
    np.testing.assert_allclose(fokker_planck.spectrum(pair, 3.0, 5), 2 * Circle(one).spectrum(3.0, 5), atol=1e-11)


def test_law_on_the_grid_relaxes_at_the_gap(triangle, gaps):
    # second order in the cells: 2.9e-3 at 64 cells a turn, a quarter of that at twice as many
    angles = np.deg2rad([10, 130, 250])
    start = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def left(x):
        return x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0] > 0

    errors = []
    for cells in (32, 48):
        law = fokker_planck.annealed(triangle.energy, ij.schedules.constant(6.0), [50.0, 500.0], start, cells)
        away = law.probability(left) - fokker_planck.stationary(triangle.energy, 6.0, cells).probability(left)
        errors.append(math.log(away[0] / away[1]) / 450 / gaps[6] - 1)
    assert errors[1] < 6e-3
    assert errors[0] / errors[1] == pytest.approx((48 / 32) ** 2, rel=0.05)


def test_energies_with_a_fixed_direction_and_other_shapes_are_refused():
    keys = ij.energies.from_function(lambda x: x[0, 0] + x[0] @ x[1], shape=(2, 2))
    with pytest.raises(ij.InputError, match="rotation"):
        AngleDifferences(keys)
    with pytest.raises(ij.InputError, match="two or three"):
        AngleDifferences(ij.scenarios.ring(5).energy)
