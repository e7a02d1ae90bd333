"""The schedule that the master equation finds best."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.checks import InputError
from infonce_jax.study.configuration import standard_schedules
from infonce_jax.theory import master_equation, optimal_schedule


@pytest.fixture(scope="module")
def found(well):
    return optimal_schedule(well, 2000.0)


def test_it_beats_every_schedule_of_a_study(well, found):
    others = {
        name: 1 - master_equation.occupancies(well, schedule, [2000.0])[-1, 0]
        for name, schedule in standard_schedules(well.critical_depth, 2000.0).items()
    }
    assert found.probability < 0.9 * min(others.values())


def test_it_beats_random_variations_of_itself(well, found):
    # A minimum over its knots: none of 8 variations by some ten per cent may lower the loss by more than a hundredth.
    knots = dict(found.parameters)
    rng = np.random.default_rng(0)
    for _ in range(8):
        values = np.array(knots["values"]) * np.exp(0.1 * rng.normal(size=len(knots["values"])))
        fine = np.geomspace(1.0, 2001.0, 200) - 1
        logs = np.interp(np.log1p(fine / 2), np.log1p(np.array(knots["times"]) / 2), np.log(values))
        other = ij.schedules.piecewise(fine, np.exp(logs))
        left = 1 - master_equation.occupancies(well, other, [2000.0])[-1, 0]
        assert left > 0.99 * found.probability


def test_its_probability_is_that_of_the_master_equation(well, found):
    exact = 1 - master_equation.occupancies(well, found, [2000.0])[-1, 0]
    assert found.probability == pytest.approx(exact, rel=0.01)


def test_it_keeps_its_bounds_and_runs(well, found):
    t = np.geomspace(0.01, 4000.0, 200)
    assert np.all((found(t) >= found.bounds[0] * (1 - 1e-9)) & (found(t) <= found.bounds[1] * (1 + 1e-9)))
    assert found(2000.0) == found(4000.0)
    run = ij.run_chains(well.energy, found, ij.integrators.geodesic_euler(0.02), num_chains=64, num_steps=100)
    assert run.data.attrs["schedule_kind"] == "to horizon"


def test_a_longer_budget_leaves_less(well, found):
    assert optimal_schedule(well, 20_000.0, num_iterations=200).probability < found.probability / 2


def test_a_landscape_without_a_trap_is_refused():
    energy = ij.energies.uniformity_energy(3, 2, temperature=0.5, reduction="mean")
    land = ij.landscape.explore(energy, num_quenches=64, num_searches=32)
    with pytest.raises(InputError, match="landscape"):
        optimal_schedule(land, 100.0)


@pytest.mark.parametrize(("horizon", "options"), [(0.0, {}), (10.0, {"num_knots": 1}), (10.0, {"num_iterations": 0})])
def test_bad_numbers_are_refused(well, horizon, options):
    with pytest.raises(InputError):
        optimal_schedule(well, horizon, **options)
