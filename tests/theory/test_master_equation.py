"""The Markov chain over classes: against matrix exponentials, closed forms and the exact law of the double well."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate
from scipy.linalg import expm

import infonce_jax as ij
from infonce_jax.checks import InputError
from infonce_jax.theory import Corrections, PartitionTable, master_equation, rate, rate_matrix, two_state_law
from infonce_jax.theory.annealing import trapping_criterion
from infonce_jax.theory.capacity import conductance_ratios


@pytest.fixture(scope="module")
def cube(explored):
    return explored("cube")


@pytest.fixture(scope="module")
def mended(well, exact_log_z):
    """Exact partition functions and conductances of the double well."""
    betas = np.geomspace(0.2, 200.0, 60)
    table = PartitionTable(betas, np.array([exact_log_z(beta) for beta in betas]))
    grid = np.geomspace(9.0, 200.0, 8)
    return Corrections(table, grid, np.stack([conductance_ratios(well, k, grid) for k in range(2)], axis=1))


def test_constant_beta_is_the_matrix_exponential(cube):
    beta, times = 12.0, np.array([0.5, 3.0, 40.0, 1e4])
    law = master_equation.occupancies(cube, ij.schedules.constant(beta), times, initial=1)
    q = rate_matrix(cube, beta)
    exact = [expm(q.T * t)[:, 1] for t in times]
    np.testing.assert_allclose(law, exact, rtol=1e-6, atol=1e-9)


def test_the_stiff_solver_agrees_with_the_exponential(cube):
    flat = ij.schedules.piecewise([0.0, 1e5], [12.0, 12.0])
    times = [1.0, 30.0, 1e3]
    law = master_equation.occupancies(cube, flat, times, initial=1)
    exact = master_equation.occupancies(cube, ij.schedules.constant(12.0), times, initial=1)
    np.testing.assert_allclose(law, exact, atol=2e-6)


def test_sparse_and_dense_generators_give_the_same_law(cube, monkeypatch):
    schedule, times = ij.schedules.logarithmic(0.5), [10.0, 300.0]
    dense = master_equation.occupancies(cube, schedule, times)
    monkeypatch.setattr(master_equation, "_DENSE", 1)
    # pieces of the clock are second order: 1e-5 of what is left
    np.testing.assert_allclose(master_equation.occupancies(cube, schedule, times), dense, rtol=2e-5, atol=1e-9)
    constant = ij.schedules.constant(9.0)
    sparse = master_equation.occupancies(cube, constant, times)
    monkeypatch.undo()
    np.testing.assert_allclose(sparse, master_equation.occupancies(cube, constant, times), rtol=1e-4, atol=1e-7)


def test_long_times_reach_the_gibbs_shares(well):
    beta = 6.0
    law = master_equation.occupancies(well, ij.schedules.constant(beta), [1e6])
    np.testing.assert_allclose(law[0], master_equation.equilibrium(well, beta), rtol=1e-9)


def test_two_classes_are_the_two_state_law(well):
    schedule, times = ij.schedules.logarithmic(1.2 * well.critical_depth), np.array([10.0, 1e3, 1e5])
    law = master_equation.occupancies(well, schedule, times, initial=[0.6, 0.4])

    def escape(beta):
        return rate(well, 1, 0, beta) + rate(well, 0, 1, beta)

    def share(beta):
        return float(master_equation.equilibrium(well, beta)[1])

    # the table of rates is linear in log beta between 240 points: 1e-3 of a share of 1e-5
    np.testing.assert_allclose(law[:, 1], two_state_law(schedule, times, escape, share, 0.4), rtol=2e-3)


def test_corrected_rates_follow_the_exact_law_of_the_double_well(well, mended):
    # THEORY section 3, P(in the local basin at T), uniform start, beta = log(2 + t)/c; a master equation knows nothing
    # of the motion within a basin, so that a tenth is what it can be held to at T >= 1000.
    times = [1e3, 1e4, 1e5]
    initial = [1 - 0.4054, 0.4054]  # the local basin's share of the circle
    for c, exact in ((0.5, [0.402341, 0.402239, 0.402229]), (1.0, [0.138522, 0.078154, 0.042541])):
        schedule = ij.schedules.logarithmic(c * well.critical_depth)
        law = master_equation.occupancies(well, schedule, times, initial, corrections=mended)
        np.testing.assert_allclose(law[:, 1], exact, rtol=0.1)
        harmonic = master_equation.occupancies(well, schedule, times, initial)
        assert abs(law[0, 1] - exact[0]) < abs(harmonic[0, 1] - exact[0])


def test_mean_hitting_time_is_the_area_under_the_hitting_law(cube):
    beta = 14.0
    mean = master_equation.mean_hitting_times(cube, beta)
    assert mean[0] == 0
    times = np.concatenate([[0.0], np.geomspace(1e-3 * mean[1], 40 * mean[1], 4000)])
    survival = master_equation.hitting_law(cube, ij.schedules.constant(beta), times, source=1)
    assert integrate.trapezoid(survival, times) == pytest.approx(mean[1], rel=1e-3)


def test_the_escape_integral_tends_to_its_closed_form(well):
    schedule = ij.schedules.power(0.5, initial=5.0)
    kappa = rate(well, 1, 0, 10.0) * np.exp(10.0 * well.critical_depth)
    over = trapping_criterion(schedule, kappa, well.critical_depth)
    # the high saddle, 1.2 above, adds less than e^{-6}
    found = master_equation.escape_integral(well, schedule, 1e7, source=1)
    assert found == pytest.approx(over.total, rel=5e-3)


@pytest.mark.parametrize("initial", ["gibbs", 7, [0.5, 0.6], [1.0]])
def test_bad_initial_laws_are_refused(well, initial):
    with pytest.raises(InputError, match="initial"):
        master_equation.occupancies(well, ij.schedules.constant(5.0), [1.0], initial)


def test_bad_times_are_refused(well):
    with pytest.raises(InputError, match="times"):
        master_equation.occupancies(well, ij.schedules.constant(5.0), [2.0, 1.0])
