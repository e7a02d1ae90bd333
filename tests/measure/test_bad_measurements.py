"""Bad input to landscapes, measurements and theory, and the one line that it must give; see `test_bad_inputs.py`."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax import energies, landscape, measure, scenarios, schedules, theory
from infonce_jax.measure import reaction_coordinates
from infonce_jax.theory import fokker_planck, master_equation
from tests.refusals import THREE_PARTS, message_of

POINT = [[1.0, 0.0]]
BETA = schedules.constant(5.0)
WELL = scenarios.double_well().energy
CLOCK = [1.0, 2.0]


@functools.cache
def land():
    """The double well, whose two minima and two saddles few searches find."""
    return landscape.explore(WELL, num_quenches=64, num_searches=64)


def hit(betas=(5.0,), **options):
    return measure.hitting_times(WELL, land(), betas, **options)


def split(coordinate=lambda x: x[0, 0], start=POINT, levels=None):
    return measure.splitting(WELL, 5.0, start, coordinate, levels, step_size=0.01, target=measure.EnergyBelow(3.0))


def broken(x):
    raise KeyError("no such view")


# name: (call, message).
BAD = {
    "explore a function": (
        lambda: landscape.explore(lambda x: x[0, 0]),
        "energy: got function; needs an Energy; wrap a function with energies.from_function",
    ),
    "explore, quenches": (
        lambda: landscape.explore(WELL, num_quenches=0),
        "num_quenches: got 0; needs a whole number, at least 1; pass a whole number",
    ),
    "explore, logarithm of a coordinate": (
        lambda: landscape.explore(energies.from_function(lambda x: jnp.log(x[0, 0]), shape=(1, 2))),
        "energy: got NaN or infinite values or slopes at 135 of 256 random configurations; needs a function "
        "finite everywhere on the spheres; check logarithms and roots in it",
    ),
    "explore, cusp": (
        lambda: landscape.explore(energies.from_function(lambda x: jnp.abs(x[0, 0]), shape=(1, 2)), num_quenches=16),
        "energy: got no quench that ended at a smooth minimum; needs a twice differentiable energy; replace "
        "cusps such as abs or max by smooth forms",
    ),
    "basin_of, shape": (
        lambda: land().basin_of(np.ones((2, 3))),
        "points: got shape (2, 3); needs finite entries of shape (..., 1, 2); one row per embedding",
    ),
    "basin_of, NaN": (
        lambda: land().basin_of([[np.nan, 0.0]]),
        "points: got NaN or infinite entries; needs finite entries of shape (..., 1, 2); one row per embedding",
    ),
    "basin_of, a word": (
        lambda: land().basin_of("here"),
        "points: got str; needs an array of numbers; configurations of shape (..., n, d)",
    ),
    "quench a function": (
        lambda: landscape.quench(lambda x: x[0, 0], np.ones((1, 1, 2))),
        "energy: got function; needs an Energy; wrap a function with energies.from_function",
    ),
    "path to nowhere": (
        lambda: landscape.path(land(), 0, 7),
        "target: got 7; needs 0 to 1; an index into landscape.minima",
    ),
    "communicating_height of nowhere": (
        lambda: landscape.communicating_height(land().network, 0, 9),
        "second: got 9; needs one of 2 nodes of the network; an index into landscape.minima",
    ),
    "steepest_descent_path": (
        lambda: landscape.steepest_descent_path(land(), 9),
        "saddle: got 9; needs 0 to 1; an index into landscape.saddles",
    ),
    "disconnectivity of nothing": (
        lambda: landscape.disconnectivity(None),
        "landscape: got NoneType; needs a Landscape; from landscape.explore(energy)",
    ),
    "proportion, more than all": (
        lambda: measure.proportion(3, 2),
        "successes, trials: got (3, 2); needs 0 <= successes <= trials and trials >= 1; count again",
    ),
    "proportion, level": (
        lambda: measure.proportion(1, 2, level=95),
        "level: got 95; needs a number between 0 and 1; for example 0.95",
    ),
    "proportion, method": (
        lambda: measure.proportion(1, 2, method="wald"),
        "method: got 'wald'; needs 'wilson' or 'exact'; see measure.proportion",
    ),
    "kaplan_meier, words": (
        lambda: measure.kaplan_meier(["soon"]),
        "times: got list; needs an array of numbers; one per chain",
    ),
    "kaplan_meier, negative": (
        lambda: measure.kaplan_meier([-1.0]),
        "times: got negative or not finite ones; needs times >= 0; mark what never passed as censored",
    ),
    "exponential_mean, nothing": (
        lambda: measure.exponential_mean([]),
        "times, censored: got shapes (0,), (0,); needs two lists of the same length; one entry per chain",
    ),
    "exponential_test, limits": (
        lambda: measure.exponential_test([1, 2, 3], [False, True, True]),
        "censored: got 2 limits of observation; needs one, beyond every passage seen; watch all chains for the "
        "same time",
    ),
    "exponential_test, seed": (
        lambda: measure.exponential_test([1.0, 2.0], seed=-1),
        "seed: got -1; needs a whole number, at least 0; for example 0",
    ),
    "hitting_times, no landscape": (
        lambda: measure.hitting_times(WELL, None, [5.0]),
        "landscape: got NoneType; needs a Landscape; from landscape.explore(energy)",
    ),
    "hitting_times, another energy": (
        lambda: measure.hitting_times(scenarios.ring(5).energy, land(), [5.0]),
        "energy: got (5, 2); needs shape (1, 2); the energy that the landscape was explored with",
    ),
    "hitting_times, beta zero": (
        lambda: hit(betas=[0.0]),
        "betas: got [0.0]; needs distinct numbers above zero; inverse temperatures, for example [5.0, 10.0]",
    ),
    "hitting_times, a word": (
        lambda: hit(betas="cold"),
        "betas: got str; needs an array of numbers; inverse temperatures, for example [5.0, 10.0]",
    ),
    "hitting_times, source": (
        lambda: hit(source=7),
        "source: got 7; needs 0 to 1; an index into landscape.minima",
    ),
    "hitting_times, target": (
        lambda: hit(target=3.0),
        "target: got float; needs measure.EnergyBelow(level) or measure.Ball(points, radius); wrap the level or "
        "the points",
    ),
    "hitting_times, level above the trap": (
        lambda: hit(target=measure.EnergyBelow(99.0)),
        "target.level: got 99; needs a level from 2.94618 to 3.49712; between the lowest minimum and the one to "
        "start from",
    ),
    "hitting_times, step": (
        lambda: hit(step_size=9),
        "step_size: got 9; needs at most 0.298, 1/L for the largest curvature L; better 0.06, or leave it out",
    ),
    "splitting, start": (
        lambda: split(start=[[1.0, 0.0, 0.0]]),
        "start: got shape (1, 3); needs shape (1, 2); one row per embedding",
    ),
    "splitting, coordinate fails": (
        lambda: split(broken),
        "reaction_coordinate: got one that fails with 'no such view'; needs a JAX function of positions (n, d); "
        "see measure.reaction_coordinates",
    ),
    "splitting, coordinate of many numbers": (
        lambda: split(lambda x: x),
        "reaction_coordinate: got a result of shape (1, 2); needs a scalar; see measure.reaction_coordinates",
    ),
    "splitting, levels fall": (
        lambda: split(levels=[3, 2]),
        "levels: got [3, 2]; needs at least two numbers, increasing; z_A, then z_0, z_1, ...",
    ),
    "splitting, start on a slope": (
        lambda: split(),
        "start: got a configuration that is no minimum; needs a minimum of the trap; pass landscape.minima[k].position",
    ),
    "basin_free_energies, few chains": (
        lambda: measure.basin_free_energies(land(), num_chains=4),
        "num_chains: got 4; needs a whole number, at least 16; pass a whole number",
    ),
    "basin_free_energies, no landscape": (
        lambda: measure.basin_free_energies(None),
        "landscape: got NoneType; needs a Landscape; from landscape.explore(energy)",
    ),
    "distance_to, norm": (
        lambda: reaction_coordinates.distance_to([[3.0, 0.0]]),
        "points: got a row of norm 3; needs rows of norm 1; normalise them with infonce_jax.sphere.project",
    ),
    "logarithmic_exponent, m below E*": (
        lambda: theory.logarithmic_exponent(1.0, 0.5, 0.3, 0.1),
        "critical_depth, spectral_depth: got 0.5 and 0.3; needs 0 <= E* <= m; m is NaN where unknown",
    ),
    "trapping_criterion, horizon": (
        lambda: theory.trapping_criterion(schedules.geometric_to_horizon(1.0, 2.0, 3.0), 1.0, 1.0),
        "schedule: got geometric to horizon, 1 to 2; needs a fixed schedule; use horizon_law for one stretched "
        "to its horizon",
    ),
    "trapping_criterion, a number": (
        lambda: theory.trapping_criterion(2.0, 1.0, 1.0),
        "schedule: got float; needs a Schedule; for example schedules.logarithmic(depth)",
    ),
    "trapping_criterion, prefactor": (
        lambda: theory.trapping_criterion(BETA, 0, 1.0),
        "prefactor: got 0; needs a number above zero; pass a number above zero",
    ),
    "horizon_law, short": (
        lambda: theory.horizon_law(0.5, 0.3, 2.0),
        "horizon: got 2.0; needs a horizon above e; give it in units of the relaxation time 1/kappa",
    ),
    "two_state_law, probability": (
        lambda: theory.two_state_law(BETA, CLOCK, lambda beta: 1.0, lambda beta: 0.5, 1.5),
        "initial: got 1.5; needs a probability; P(in the trap, 0) lies between 0 and 1",
    ),
    "two_state_law, times": (
        lambda: theory.two_state_law(BETA, [2.0, np.nan], lambda beta: 1.0, lambda beta: 0.5, 0.5),
        "times: got [2.0, nan]; needs increasing positive times; the law at 0 is the initial one",
    ),
    "two_state_law, a number for a rate": (
        lambda: theory.two_state_law(BETA, CLOCK, 1.0, lambda beta: 0.5, 0.5),
        "escape: got float; needs a function of beta; for example Circle(energy).gap",
    ),
    "Circle of a ring": (
        lambda: theory.Circle(scenarios.ring(5).energy),
        "energy: got shape (5, 2); needs shape (1, 2); one free embedding on the circle",
    ),
    "Circle of a function": (
        lambda: theory.Circle(lambda x: 1.0),
        "energy: got function; needs an Energy; wrap a function with energies.from_function",
    ),
    "Circle, cold": (
        lambda: theory.Circle(WELL).gap(1e6),
        "modes: got 256 at beta = 1e+06; needs enough modes to resolve exp(-beta E/2); use more modes or a "
        "smaller beta",
    ),
    "Circle, radius": (
        lambda: theory.Circle(WELL).mean_first_passage(5.0, 0.0, 1.0, 4.0),
        "radius: got 4; needs a radius below pi; a larger ball is the whole circle",
    ),
    "Circle, initial": (
        lambda: theory.Circle(WELL).annealed_law(BETA, CLOCK, initial="gauss"),
        "initial: got 'gauss'; needs a number; 'uniform' or an angle in radians",
    ),
    "spectrum of a ring": (
        lambda: fokker_planck.spectrum(scenarios.ring(5).energy, 5.0),
        "energy: got shape (5, 2); needs shape (1, 2), (1, 3), (2, 2) or (3, 2); larger systems need chains: "
        "run_chains",
    ),
    "annealed, cells": (
        lambda: fokker_planck.annealed(WELL, BETA, CLOCK, cells=4),
        "cells: got 4; needs a whole number, at least 16; pass a whole number",
    ),
    "annealed, weights": (
        lambda: fokker_planck.annealed(WELL, BETA, CLOCK, initial=-np.ones(1440)),
        "initial: got weights from -1 to -1; needs finite weights >= 0, some > 0; give probabilities of the "
        "cells or a density",
    ),
    "rate, source": (
        lambda: theory.rate(land(), 5, 0, 5.0),
        "source: got 5; needs 0 to 1; an index into landscape.minima",
    ),
    "rate, half a class": (
        lambda: theory.rate(land(), 0.5, 0, 5.0),
        "source: got 0.5; needs a whole number, at least 0; an index into landscape.minima",
    ),
    "rate, beta": (
        lambda: theory.rate(land(), 1, 0, -2.0),
        "beta: got -2; needs a number above zero; pass a number above zero",
    ),
    "rate_matrix, no landscape": (
        lambda: theory.rate_matrix(None, 5.0),
        "landscape: got NoneType; needs a Landscape; from landscape.explore(energy)",
    ),
    "corrections, no table": (
        lambda: theory.corrections(land(), None),
        "partitions: got NoneType; needs a PartitionTable; for example measure.basin_free_energies(landscape).table",
    ),
    "PartitionTable, falling": (
        lambda: theory.PartitionTable([2.0, 1.0], [[1.0], [2.0]]),
        "betas: got shape (2,); needs increasing inverse temperatures, at least two; sort them",
    ),
    "occupancies, initial": (
        lambda: master_equation.occupancies(land(), BETA, CLOCK, initial=[0.5, 0.4]),
        "initial: got [0.5, 0.4]; needs 'uniform', an index below 2 or 2 probabilities; one probability per "
        "class of minima, summing to 1",
    ),
    "occupancies, a number": (
        lambda: master_equation.occupancies(land(), 5.0, CLOCK),
        "schedule: got float; needs a Schedule; for example schedules.logarithmic(depth)",
    ),
    "mean_hitting_times, no target": (
        lambda: master_equation.mean_hitting_times(land(), 5.0, target=[]),
        "target: got []; needs the index of a class, or several; an index into landscape.minima",
    ),
    "escape_integral, source": (
        lambda: master_equation.escape_integral(land(), BETA, 10.0, 7),
        "source: got 7; needs 0 to 1; an index into landscape.minima",
    ),
    "optimal_schedule, horizon": (
        lambda: theory.optimal_schedule(land(), 0),
        "horizon: got 0; needs a number above zero; num_steps * step_size",
    ),
    "optimal_schedule, no landscape": (
        lambda: theory.optimal_schedule(None, 10.0),
        "landscape: got NoneType; needs a Landscape; from landscape.explore(energy)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_this_line(case):
    call, message = BAD[case]
    assert message_of(call) == message


def test_every_message_is_one_line_of_three_parts():
    assert all(THREE_PARTS.fullmatch(message) for _, message in BAD.values())
    assert len(BAD) >= 40
