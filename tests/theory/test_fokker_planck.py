"""The public face of the Fokker-Planck solvers, against the tables of the double well (THEORY section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.theory import fokker_planck, rate

GLOBAL, LOCAL = np.deg2rad(105.79580814457366), np.deg2rad(-108.96878905866609)
HIGH, LOW = np.deg2rad(-176.52545468418643), np.deg2rad(-13.987552870473186)
E_STAR = 0.3298550045447959

# theory.json, s1_fixed: gap and its ratio to Eyring-Kramers, first passage by radius and its ratio at radius .2
FIXED = {
    5: (0.03432886455955883, 0.5537715290817361,
        {0.05: 36.846028922182974, 0.1: 36.68889633842071, 0.2: 36.38626786491932, 0.3: 36.090531621877076,
         0.5: 35.51545423090398}, 2.129739557592547),
    10: (0.006810907200223849, 0.6062410939879374,
         {0.05: 155.04953894540438, 0.1: 154.88227854790213, 0.2: 154.5688251111312, 0.3: 154.2671724580435,
          0.5: 153.6959343512243}, 1.730020350812811),
    20: (0.0003190879816726222, 0.771830478472144,
         {0.05: 3144.1411648283406, 0.1: 3143.9568879177873, 0.2: 3143.622147081799, 0.3: 3143.299434307377,
          0.5: 3142.67156610282}, 1.29960762169447),
    40: (5.120416774305947e-07, 0.9078363493556673,
         {0.05: 1952976.2332090926, 0.1: 1952976.0324869049, 0.2: 1952975.6873895847, 0.3: 1952975.3593794282,
          0.5: 1952974.6967353777}, 1.1015255639546573),
}  # fmt: skip

# theory.json, s1_anneal: P(in the local basin) at 1e2, ..., 1e6 for log schedules with the ratio c/E*, and at 10, ...,
# 1e4 for the fast ones from beta = 2. (It stops cooling at beta = 400, which changes none of these digits.)
ANNEALED = [
    ("log", 0.5, "local", [0.93541, 0.933145, 0.932909, 0.932885, 0.932883]),
    ("log", 0.5, "uniform", [0.403318, 0.402341, 0.402239, 0.402229, 0.402228]),
    ("log", 1, "local", [0.506832, 0.303547, 0.171261, 0.0932207, 0.0496717]),
    ("log", 1, "uniform", [0.231255, 0.138522, 0.0781543, 0.042541, 0.0226676]),
    ("log", 1.5, "local", [0.178376, 0.00879057, 5.09155e-05, 2.8878e-06, 2.05865e-07]),
    ("log", 1.5, "uniform", [0.0993362, 0.00531622, 4.91268e-05, 2.8878e-06, 2.05865e-07]),
    ("log", 2, "local", [0.0797708, 0.00403822, 0.00048913, 6.69514e-05, 9.4792e-06]),
    ("log", 2, "uniform", [0.0635554, 0.00403153, 0.00048913, 6.69514e-05, 9.4792e-06]),
    ("power", 0.25, "local", [0.547934, 0.0789748, 0.00326151, 4.32852e-05]),
    ("power", 0.25, "uniform", [0.29779, 0.0649918, 0.00325665, 4.3285e-05]),
    ("power", 0.5, "local", [0.703326, 0.51061, 0.504361, 0.504361]),
    ("power", 0.5, "uniform", [0.332399, 0.242424, 0.239457, 0.239457]),
    ("power", 1, "local", [0.900947, 0.899284, 0.899284, 0.899284]),
    ("power", 1, "uniform", [0.399644, 0.398864, 0.398864, 0.398864]),
    ("exp", 0.1, "local", [0.566593, 0.493301, 0.493301, 0.493301]),
    ("exp", 0.1, "uniform", [0.303311, 0.265521, 0.265521, 0.265521]),
    ("exp", 0.01, "local", [0.419001, 0.100543, 0.0435469, 0.0435469]),
    ("exp", 0.01, "uniform", [0.2954, 0.100372, 0.0434953, 0.0434953]),
    ("exp", 0.001, "local", [0.407436, 0.24552, 0.0600984, 0.00239779]),
    ("exp", 0.001, "uniform", [0.298484, 0.24552, 0.0600984, 0.00239779]),
]


def at(angle):
    return np.array([[np.cos(angle), np.sin(angle)]])


def local_basin(points):
    angles = np.arctan2(points[:, 0, 1], points[:, 0, 0])
    return (angles > HIGH) & (angles < LOW)


@pytest.fixture(scope="module")
def energy():
    return ij.scenarios.double_well().energy


@pytest.mark.parametrize("beta", list(FIXED))
def test_gap_and_first_passage(energy, beta):
    gap, _, passages, _ = FIXED[beta]
    assert fokker_planck.spectral_gap(energy, beta) == pytest.approx(gap, rel=1e-6)
    for radius, time in passages.items():
        found = fokker_planck.mean_first_passage(energy, beta, at(LOCAL), at(GLOBAL)[0], radius)
        assert found == pytest.approx(time, rel=1e-6)


def test_exact_values_tend_to_eyring_kramers(energy, well):
    # the gap from below and the time from above, as tabulated, and closer the colder
    ratios, times = [], []
    for beta, (_, ratio, _, time_ratio) in FIXED.items():
        there, back = rate(well, 1, 0, beta), rate(well, 0, 1, beta)
        ratios.append(fokker_planck.spectral_gap(energy, beta) / (there + back))
        times.append(fokker_planck.mean_first_passage(energy, beta, at(LOCAL), at(GLOBAL), 0.2) * there)
        assert ratios[-1] == pytest.approx(ratio, rel=2e-6)
        assert times[-1] == pytest.approx(time_ratio, rel=1e-6)
    assert ratios == sorted(ratios)
    assert ratios[-1] < 1 < times[-1]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("family", "parameter", "start", "shares"), ANNEALED)
def test_annealed_table(energy, family, parameter, start, shares):
    schedule = {
        "log": lambda ratio: ij.schedules.logarithmic(ratio * E_STAR),
        "power": lambda exponent: ij.schedules.power(exponent, initial=2.0),
        "exp": lambda rate: ij.schedules.exponential(rate, initial=2.0),
    }[family](parameter)
    times = np.geomspace(100, 1e6, 5) if family == "log" else np.geomspace(10, 1e4, 4)
    initial = "uniform" if start == "uniform" else at(LOCAL)
    law = fokker_planck.annealed(energy, schedule, times, initial, cells=720)
    assert law.weights.shape == (len(times), 720)
    np.testing.assert_allclose(law.weights.sum(axis=1), 1, atol=1e-9)
    assert law.weights.min() > -1e-12
    assert law.probability(local_basin) == pytest.approx(shares, rel=5e-3)


def test_a_schedule_to_its_horizon_does_not_trap(energy):
    # theory.json, s1_anneal, geom_horizon_b1_b100, uniform start
    for horizon, share in ((1e2, 0.14498858148107355), (1e4, 0.0007700773335673698)):
        schedule = ij.schedules.geometric_to_horizon(1.0, 100.0, horizon)
        law = fokker_planck.annealed(energy, schedule, [horizon], cells=720)
        assert law.probability(local_basin) == pytest.approx([share], rel=5e-3)


def test_stationary_law_stays_and_gives_shares(energy):
    fixed = fokker_planck.stationary(energy, 10.0, cells=720)
    assert fixed.points.shape == (720, 1, 2)
    # the share is that of the continuous law up to whole cells at its edges (theory.json: .00437463714)
    assert fixed.probability(local_basin) == pytest.approx(0.00437463714446951, rel=2e-3)
    assert fixed.probability(local_basin(fixed.points)) == fixed.probability(local_basin)
    law = fokker_planck.annealed(energy, ij.schedules.constant(10.0), [0.0, 3.0], fixed.weights, cells=720)
    assert law.weights == pytest.approx(np.stack([fixed.weights] * 2), abs=1e-12)
    density = fokker_planck.annealed(energy, ij.schedules.constant(10.0), [0.0, 3.0], cells=720,
                                     initial=lambda x: fixed.weights / fixed.volumes)  # fmt: skip
    assert density.weights == pytest.approx(law.weights, abs=1e-12)


def test_basins_of_a_landscape_can_be_counted(energy, well):
    law = fokker_planck.stationary(energy, 10.0, cells=360)
    assert law.probability(lambda x: well.basin_of(x) == 1) == pytest.approx(law.probability(local_basin), rel=5e-3)


@pytest.mark.parametrize(("n", "d"), [(1, 2), (1, 3), (2, 2), (3, 2)])
def test_every_geometry_starts_in_the_cell_of_a_configuration(n, d):
    def free(x):
        return 0.0 * x[0, 0]

    rng = np.random.default_rng(n + d)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    law = fokker_planck.annealed(ij.energies.from_function(free, (n, d)), ij.schedules.constant(1.0), [0.0, 200.0], x,
                                 cells=24)  # fmt: skip
    nearest = law.points[np.argmax(law.weights[0])]
    # half the diagonal of a cell is 15/sqrt 2 degrees at most; inner products know nothing of an overall rotation
    bound = np.deg2rad(15 / np.sqrt(2) * (2 if n > 1 else 1))
    reached = np.sum(nearest * x) if n == 1 else (nearest @ nearest.T - x @ x.T)
    assert np.max(np.abs(np.arccos(reached) if n == 1 else reached)) < bound
    assert law.weights[1] == pytest.approx(law.volumes / law.volumes.sum(), abs=1e-6)


def test_bad_arguments_are_refused_by_name(energy):
    schedule = ij.schedules.constant(1.0)
    function: Any = lambda t: 1.0  # noqa: E731
    pair = ij.energies.uniformity_energy(2, 2)
    cases = [
        (lambda: fokker_planck.spectral_gap(ij.scenarios.ring(5).energy, 1.0), "energy: got shape"),
        (lambda: fokker_planck.spectral_gap(function, 1.0), "energy: got function"),
        (lambda: fokker_planck.spectral_gap(energy, -1.0), "beta"),
        (lambda: fokker_planck.spectrum(energy, 1.0, 0), "number"),
        (lambda: fokker_planck.mean_first_passage(pair, 1.0, at(0), at(1), 0.2), "angle differences"),
        (lambda: fokker_planck.mean_first_passage(energy, 1.0, [1.0, 0, 0], at(1), 0.2), "start"),
        (lambda: fokker_planck.mean_first_passage(energy, 1.0, at(1), [2.0, 0.0], 0.2), "target"),
        (lambda: fokker_planck.mean_first_passage(energy, 1.0, at(0), at(1), 3.2), "radius"),
        (lambda: fokker_planck.annealed(energy, function, [1.0]), "schedule"),
        (lambda: fokker_planck.annealed(energy, schedule, [2.0, 1.0]), "times"),
        (lambda: fokker_planck.annealed(energy, schedule, [1.0], "local"), "initial"),
        (lambda: fokker_planck.annealed(energy, schedule, [1.0], -np.ones(1440)), "initial"),
        (lambda: fokker_planck.annealed(energy, schedule, [1.0], [[1.0], [1.0, 0.0]]), "initial"),
        (lambda: fokker_planck.mean_first_passage(energy, 1e4, at(LOCAL), at(GLOBAL), 0.2), "beta"),
        (lambda: fokker_planck.annealed(energy, schedule, [1.0], at(0), cells=8), "cells"),
        (lambda: fokker_planck.stationary(energy, 1.0).probability(np.ones(3, bool)), "where"),
    ]  # fmt: skip
    for call, name in cases:
        with pytest.raises(ij.InputError, match=name):
            call()
