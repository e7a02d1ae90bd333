"""Rates between cells, and the elimination that never subtracts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import infonce_jax as ij
from infonce_jax.theory.angle_differences import AngleDifferences
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.finite_volumes import bernoulli, evolve, mean_times
from infonce_jax.theory.two_sphere import TwoSphere


@pytest.fixture(scope="module", params=["circle", "sphere", "one difference", "two differences"])
def grid(request):
    if request.param == "circle":
        return Circle(ij.scenarios.double_well().energy).cells(40)
    if request.param == "sphere":
        pull = np.array([0.3, -1.0, 0.5])
        return TwoSphere(ij.energies.from_function(lambda x: x[0] @ pull + x[0, 2] ** 2, shape=(1, 3))).cells(16)
    n, cells = (2, 24) if request.param == "one difference" else (3, 16)
    return AngleDifferences(ij.energies.uniformity_energy(n, 2)).cells(cells)


def test_gibbs_weights_are_in_detailed_balance_and_probability_is_kept(grid):
    beta = 3.0
    generator = grid.generator(beta).toarray()
    flux = generator * grid.stationary(beta)
    np.testing.assert_allclose(flux, flux.T, atol=1e-14 * np.abs(flux).max())
    np.testing.assert_allclose(generator.sum(axis=0), 0, atol=1e-12 * np.abs(generator).max())
    off = generator - np.diag(np.diag(generator))
    assert off.min() == 0.0
    law = np.random.default_rng(0).dirichlet(np.ones(len(off)))
    np.testing.assert_allclose(grid.flow(beta, law), generator @ law, atol=1e-12 * np.abs(generator).max())


def test_rates_at_the_coldest_schedule_are_the_gradient_flow(grid):
    # upwind: as beta grows all that is left is the way down, at the speed of the slope
    (here, there), rates = grid.pairs, grid.rates(1e30)
    drop = grid.energies[here] - grid.energies[there]
    assert np.all(np.isfinite(rates))
    steep = np.abs(drop) > 1e-9
    expected = grid.conductances / grid.volumes[here] * np.maximum(drop, 0)
    np.testing.assert_allclose(rates[0][steep], expected[steep], rtol=1e-12)


def test_bernoulli_function():
    z = np.array([-800.0, -1.0, -1e-6, 0.0, 1e-6, 1.0, 800.0, 1e300])
    expected = [800.0, 1 / (1 - np.exp(-1)), 1 + 5e-7, 1.0, 1 - 5e-7, 1 / (np.e - 1), 0.0, 0.0]
    np.testing.assert_allclose(bernoulli(z), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(bernoulli(np.array([1.01e-5])), 1 - 1.01e-5 / 2, rtol=1e-10)


def test_mean_times_solve_the_linear_system():
    rng = np.random.default_rng(5)
    size, band = 23, 4
    dense = np.triu(np.tril(rng.uniform(0.1, 1, size=(size, size)), band), -band)
    np.fill_diagonal(dense, 0)
    killing = np.zeros(size)
    killing[-3:] = rng.uniform(0.1, 1, size=3)
    expected = np.linalg.solve(np.diag(dense.sum(axis=1) + killing) - dense, np.ones(size))
    np.testing.assert_allclose(mean_times(sparse.csr_array(dense), killing), expected, rtol=1e-12)


def test_mean_times_keep_their_digits_over_a_barrier_that_a_linear_solver_cannot_see():
    # a birth-death chain climbs: T_0 = sum_k sum_{j<=k} (prod of down/up rates), here 1e40 and more
    up, down = 1e-4, 1.0
    size = 12
    rates = sparse.csr_array(np.diag(np.full(size - 1, up), 1) + np.diag(np.full(size - 1, down), -1))
    killing = np.zeros(size)
    killing[-1] = up
    exact = sum((down / up) ** i / up for k in range(size) for i in range(k + 1))
    assert exact > 1e40
    assert mean_times(rates, killing)[0] == pytest.approx(exact, rel=1e-13)


def test_evolution_at_constant_beta_is_the_matrix_exponential():
    from scipy.linalg import expm

    grid = Circle(ij.scenarios.double_well().energy).cells(32)
    law = np.zeros(32)
    law[5] = 1.0
    times = np.array([0.0, 0.3, 20.0])
    result = evolve(grid, ij.schedules.constant(4.0), times, law)
    expected = [expm(grid.generator(4.0).toarray() * t) @ law for t in times]
    np.testing.assert_allclose(result, expected, atol=2e-6)
