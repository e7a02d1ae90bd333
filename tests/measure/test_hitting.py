"""Hitting times against exact mean first passage times, and the test of the exponential law against its own claims."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binom

import infonce_jax as ij
from infonce_jax.measure.hitting import slope_in_beta
from infonce_jax.theory import Circle


def on_circle(degrees):
    return np.array([[np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))]])


# THEORY section 3 of the reference calculations: the global minimum of the double well
GLOBAL = on_circle(105.795808)


@pytest.fixture(scope="module")
def ring(ring5):
    return ring5


@pytest.fixture(scope="module")
def times(well):
    """The double well at two temperatures to within .2 rad, at h = .04 and .02, watched for some four mean times."""
    return ij.measure.hitting_times(
        well.energy, well, [5.0, 10.0], 8192, seed=3, target=ij.measure.Ball(GLOBAL, 0.2), step_size=0.04,
        max_steps=15_000,
    )  # fmt: skip


# Mean first passage times from the local minimum to within .2 rad of the global one, THEORY section 3.
@pytest.mark.parametrize(("beta", "exact"), [(5.0, 36.386268), (10.0, 154.568825)])
def test_double_well_times_are_exact_after_the_bias_is_taken_out(times, beta, exact):
    at = times.sel(beta=beta)
    error = float(at["mean_extrapolated_standard_error"])
    assert error < 0.026 * exact
    # three standard errors: false alarm .0027
    assert abs(float(at["mean_extrapolated"]) - exact) < 3 * error
    assert float(at["exact"]) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("beta", [5.0, 10.0])
def test_bias_is_small_and_its_error_is_stated(times, beta):
    at = times.sel(beta=beta)
    mean, halved = float(at["mean"]), float(at["mean_halved"])
    assert float(at["bias"]) == pytest.approx(2 * (mean - halved))
    assert float(at["bias_standard_error"]) == pytest.approx(2 * math.hypot(mean, halved) / math.sqrt(8192), rel=0.03)
    # what is left after the shift of the radius is of order h: -1.4 % at beta 10 and h = .04; three standard errors
    assert abs(float(at["bias"])) < 0.015 * mean + 3 * float(at["bias_standard_error"])


def test_mean_is_that_of_the_discrete_chain(well):
    # Mean time of geodesic Euler at h = .04 without the shift of the radius, by Nystrom: s1_extra.em_hitting in the
    # reference calculations. With the shift passages would be seen earlier, at some 36.0.
    data = ij.measure.hitting_times(
        well.energy, well, [5.0], 32768, seed=5, target=ij.measure.Ball(GLOBAL, 0.2, continuity=False), step_size=0.04,
        halve_step=False,
    )  # fmt: skip
    # the law is narrower than an exponential one: relative standard error below 1/181; three of them, false alarm .0027
    assert float(data["mean"][0]) == pytest.approx(36.243383500852275, rel=3 / 181)


def test_energy_threshold_on_the_circle_has_its_exact_time(well):
    data = ij.measure.hitting_times(well.energy, well, [10.0], 4096, seed=1, halve_step=False, step_size=0.02)
    circle = Circle(well.energy)
    theta = np.linspace(-np.pi, np.pi, 200_001)
    inside = np.rad2deg(theta[circle.energy_at(theta) <= (well.minima[0].energy + well.minima[1].energy) / 2])
    # the set is one arc around the global minimum and one around nothing else: its ends, from the local minimum's side
    low, high = inside.min(), inside.max()
    arc = circle.mean_first_passage(
        10.0, math.radians(-108.968789), math.radians((low + high) / 2), math.radians(high - low) / 2
    )
    assert float(data["exact"][0]) == pytest.approx(arc, rel=1e-4)
    # relative standard error 1/64; three of them and .7 % for the step; false alarm below .003
    assert float(data["mean"][0]) == pytest.approx(arc, rel=3 / 64 + 0.007)


# scenarios.json, hitting_ring5: 1024 chains from the relaxed trap to E <= E_min + Delta/2 at h = .03, with errors
@pytest.fixture(scope="module")
def ring_times(ring):
    return ij.measure.hitting_times(
        ring.energy, ring, np.array([5.0, 6.0]) / ring.critical_depth, 1024, seed=2, step_size=0.03,
        halve_step=False, max_steps=100_000,
    )  # fmt: skip


@pytest.mark.parametrize(("place", "mean", "error"), [(0, 485.158, 15.16), (1, 1409.44, 44.05)])
def test_ring5_times_agree_with_the_reference(ring_times, place, mean, error):
    measured = float(ring_times["mean"][place])
    own = measured / math.sqrt(float(ring_times["passed"][place]))
    # three standard errors of both: false alarm .0027
    assert abs(measured - mean) < 3 * math.hypot(error, own)
    # 3000 time units: e^{-2.1} of the chains have not arrived at the lower temperature, six standard errors
    share = float(ring_times["censored"][place].mean())
    assert share == pytest.approx(math.exp(-3000 / mean), abs=6 * 0.011)


def test_ring5_is_exponential_and_not_what_the_harmonic_formula_says(ring_times):
    # the smaller of two p-values is below .003 with probability .006
    assert float(ring_times["p_value"].min()) > 0.003
    # THEORY, soft valleys: harmonic times 1472, 4002
    assert ring_times["eyring_kramers"].values == pytest.approx([1472, 4002], rel=5e-4)
    # THEORY: slopes lie 4 to 12 % above E*; the bound is three standard errors wide on both sides, false alarm .003
    slope, low, high = (ring_times.attrs[name] for name in ("slope", "slope_low", "slope_high"))
    spread = 3 * (high - low) / (2 * 1.96)
    assert 1.04 - spread / ring_times.critical_depth < slope / ring_times.critical_depth
    assert slope / ring_times.critical_depth < 1.12 + spread / ring_times.critical_depth


def test_a_chain_does_not_depend_on_how_many_there_are_nor_on_other_temperatures(well):
    few = ij.measure.hitting_times(well.energy, well, [5.0], 40, seed=9, halve_step=False)
    many = ij.measure.hitting_times(well.energy, well, [6.0, 5.0], 600, seed=9, halve_step=False)
    assert few["time"].sel(beta=5.0).values.tolist() == many["time"].sel(beta=5.0).values[:40].tolist()


def test_times_agree_with_those_of_run_chains(well):
    h, keys = 0.06, 600
    observer = ij.measure.EnergyBelow((well.minima[0].energy + well.minima[1].energy) / 2)
    data = ij.measure.hitting_times(well.energy, well, [5.0], keys, seed=4, halve_step=False, step_size=h,
                                    target=observer, max_steps=500)  # fmt: skip
    words = [4, int(np.float64(5.0).view(np.uint64)), 1]
    seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
    run = ij.run_chains(
        well.energy, ij.schedules.constant(5.0), ij.integrators.geodesic_euler(h), num_chains=keys, num_steps=500,
        seed=seed, initial=well.minima[1].position, observers=(ij.observers.first_passage(observer.level),),
    )  # fmt: skip
    assert 0 < int(data["censored"].sum()) < keys
    assert data["censored"].values[0].tolist() == run.data["first_passage_censored"].values.tolist()
    assert data["time"].values[0] == pytest.approx(run.data["first_passage_time"].values, abs=1e-9)


def test_censored_times_still_give_the_mean(well):
    # a fifth of the mean time: four in five are cut off, and the mean is that of exponential times after a short start
    data = ij.measure.hitting_times(well.energy, well, [10.0], 8192, seed=6, halve_step=False, step_size=0.02,
                                    max_steps=1500)  # fmt: skip
    share = float(data["censored"].mean())
    exact = float(data["exact"][0])
    assert 0.75 < share < 0.9
    # the start delays the first passages by some 8 time units of the 30 watched: up to a third more
    assert exact < float(data["mean"][0]) * (1 + 3 / math.sqrt(float(data["passed"][0])))
    assert float(data["mean"][0]) < 1.4 * exact
    assert float(data["p_value"][0]) > 0.003  # false alarm .003


def test_corrected_rates_stand_beside_the_harmonic_ones(well):
    data = ij.measure.hitting_times(well.energy, well, [4.0, 5.0], 64, halve_step=False, corrected=[0.05, 0.02])
    assert data["corrected"].values.tolist() == [20.0, 50.0]
    assert data.attrs["slope_corrected"] == pytest.approx(math.log(2.5))
    assert data["eyring_kramers"].values[1] == pytest.approx(17.084844, rel=1e-6)  # THEORY section 3


def test_slope_of_an_exact_line_and_its_interval():
    slope, low, high = slope_in_beta([1.0, 2.0, 3.0], np.exp([0.5, 0.9, 1.3]), [100, 100, 100])
    assert slope == pytest.approx(0.4)
    # variance of the slope: (1/100)/2
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(1 / 200), rel=1e-6)
    assert math.isnan(slope_in_beta([1.0, 2.0], [5.0, np.inf], [3, 0])[0])


@pytest.mark.parametrize("limit", [np.inf, 1.0])
def test_exponential_test_rejects_at_its_level(limit):
    rng = np.random.default_rng(11)
    rejected = 0
    for k in range(400):
        x = rng.exponential(3.0, 150)
        test = ij.measure.exponential_test(np.minimum(x, 3 * limit), x > 3 * limit, seed=k, num_samples=199)
        rejected += test.p_value <= 0.1
    # at most 400 * .1 plus what a binomial exceeds with probability .001 on either side
    low, high = binom.ppf([0.001, 0.999], 400, 0.1)
    assert low <= rejected <= high


@pytest.mark.parametrize("shape", [0.7, 1.4])
def test_exponential_test_sees_a_gamma_law(shape):
    x = np.random.default_rng(12).gamma(shape, 1.0, 1024)
    assert ij.measure.exponential_test(x).p_value <= 0.002
    assert ij.measure.exponential_test(np.minimum(x, 1.0), x > 1.0).p_value <= 0.002


def test_exponential_test_forgets_what_lies_before_the_cut():
    # a delay of 1 before an exponential time: seen from 0, gone beyond 1; p below .003 there is a false alarm
    x = 1 + np.random.default_rng(13).exponential(5.0, 2000)
    assert ij.measure.exponential_test(x).p_value <= 0.002
    beyond = ij.measure.exponential_test(x, cut=1.0)
    assert beyond.p_value > 0.003
    assert beyond.tested == 2000


def test_exponential_test_says_nothing_of_too_few_passages():
    test = ij.measure.exponential_test([1.0, 2.0, 9.0, 9.0], [False, False, True, True])
    assert math.isnan(test.p_value)
    assert (test.tested, test.passed) == (4, 2)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"betas": []}, "betas"),
        ({"betas": [1.0, 1.0]}, "betas"),
        ({"betas": [-1.0]}, "betas"),
        ({"num_chains": 1}, "num_chains"),
        ({"source": 5}, "source"),
        ({"step_size": 2.0}, "step_size"),
        ({"level": 1.0}, "level"),
        ({"max_steps": 0}, "max_steps"),
        ({"target": 3.0}, "target"),
        ({"target": ij.measure.EnergyBelow(9.0)}, "target.level"),
        ({"target": ij.measure.Ball(np.ones((2, 3)) / math.sqrt(3), 0.2)}, "target.points"),
        ({"corrected": [1.0, 2.0]}, "corrected"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_input_is_refused_in_one_line(well, change, word):
    arguments = {"betas": [5.0]} | change
    with pytest.raises(ij.InputError, match=word) as refusal:
        ij.measure.hitting_times(well.energy, well, **arguments)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_landscape_without_a_trap_is_refused(well):
    with pytest.raises(ij.InputError, match="trap"):
        ij.measure.deepest_trap(dataclasses.replace(well, minima=well.minima[:1]))


def test_the_source_is_the_minimum_that_sets_the_critical_depth(well):
    assert ij.measure.deepest_trap(well) == 1
    # levels 0, 1 and 1.5 with passages at 2 and 1.7: depths 1 and 1.7 - 1.5; with the second at 4 it is the deeper
    low, high = well.minima[0], well.minima[1]
    minima = (dataclasses.replace(low, energy=0.0), dataclasses.replace(high, energy=1.0),
              dataclasses.replace(high, energy=1.5))  # fmt: skip
    for height, deepest in ((1.7, 1), (4.0, 2)):
        network = nx.Graph()
        network.add_edge(0, 1, height=2.0)
        network.add_edge(1, 2, height=height)
        assert ij.measure.deepest_trap(dataclasses.replace(well, minima=minima, network=network)) == deepest
