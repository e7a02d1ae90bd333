"""Eyring-Kramers rates with symmetry, and the statements about schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.theory import merged_classes, orbit_volume, rate, rate_matrix
from infonce_jax.theory.annealing import horizon_law, logarithmic_exponent, trapping_criterion, two_state_law


@pytest.fixture(scope="module")
def ring(ring5):
    return ring5


@pytest.mark.parametrize(("beta", "time"), [(5, 17.084844), (10, 89.345091), (20, 2418.90098), (40, 1772973.55)])
def test_double_well_formula(well, beta, time):
    # THEORY section 3, column "Eyring-Kramers"
    assert 1 / rate(well, 1, 0, beta) == pytest.approx(time, rel=1e-7)


@pytest.mark.parametrize(("scaled", "time"), [(5, 1472), (6, 4002), (7, 10879)])
def test_ring5_harmonic_time_counts_orbits_and_copies(ring, scaled, time):
    # THEORY, "soft valleys": harmonic column, times from the trap at beta E* = 5, 6, 7
    assert 1 / rate(ring, 1, 0, scaled / 0.66304837) == pytest.approx(time, rel=5e-4)


@pytest.mark.parametrize(
    ("beta", "gap"),
    [(3, 0.11949214188991973), (6, 0.003105718582822578), (9, 8.072068809826206e-05), (12, 2.098010271469961e-06)],
)
def test_triangle_gap_is_twice_the_rate_between_its_two_copies(triangle, beta, gap):
    # THEORY section 2: n = 3 on the circle, mean over anchors, tau = .5; three saddles between two mirror images
    land = triangle
    assert (land.minima[0].copies, land.saddles[0].copies) == (2, 3)
    assert 2 * rate(land, 0, 0, beta) == pytest.approx(gap, rel=1e-6)


def test_kinetic_rate_is_slower_and_reaches_the_overdamped_one_at_high_friction(well):
    slow = rate(well, 1, 0, 20.0, friction=1.0)
    over = rate(well, 1, 0, 20.0)
    assert slow < over
    # gamma times the kinetic rate tends to the overdamped one, with an error lambda/gamma^2 = 1e-4 here
    assert 100.0 * rate(well, 1, 0, 20.0, friction=100.0) == pytest.approx(over, rel=3e-4)


def test_classes_are_merged_where_a_few_kt_join_them(explored):
    land = explored("cube")
    # SCENARIOS: the third minimum, 14.563831, is joined by a saddle at 14.578313, .0145 higher; the trap lies .36 deep
    assert merged_classes(land, 3 / 0.0150) == [(0,), (1, 2)]
    assert merged_classes(land, 3 / 0.0140) == [(0,), (1,), (2,)]
    assert merged_classes(land, 3 / 0.0140, multiple=80) == [(0, 1, 2)]


def test_a_barrier_is_measured_from_the_higher_of_its_minima(well):
    # THEORY section 3: the saddle stands .32986 above the local minimum and .88079 above the global one
    assert merged_classes(well, 3 / 0.35) == [(0, 1)]
    assert merged_classes(well, 3 / 0.31) == [(0,), (1,)]


def test_rates_obey_detailed_balance_with_harmonic_weights(ring):
    beta = 9.0
    q = rate_matrix(ring, beta)
    weights = []
    for m in ring.minima:
        volume, k = orbit_volume(ring.symmetry, m.position)
        log_weight = math.log(m.copies * volume) + k / 2 * math.log(beta / (2 * math.pi)) - beta * m.energy
        weights.append(log_weight - np.sum(np.log(m.eigenvalues)) / 2)
    assert q.sum(axis=1) == pytest.approx([0, 0], abs=1e-18)
    assert math.log(q[0, 1] / q[1, 0]) == pytest.approx(weights[1] - weights[0], abs=1e-8)


@pytest.mark.parametrize(("n", "d"), [(4, 2), (5, 3), (2, 3), (6, 4), (2, 4)])
def test_orbit_volume_is_the_integral_over_the_group(n, d):
    # Weyl's way: the Gram determinant of the generators at x is constant on the orbit, so volume = vol(SO(d)) times it,
    # vol(SO(d)) = prod vol(S^l) when the generators of unit rotation speed are orthonormal
    rng = np.random.default_rng(d)
    energy = ij.energies.uniformity_energy(n, d)
    symmetry = ij.landscape.find_symmetry(energy)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    moves = np.einsum("nd,ged->gne", x, symmetry.generators).reshape(-1, n * d)
    volume, k = orbit_volume(symmetry, x)
    sizes = np.linalg.svd(moves, compute_uv=False)
    rank = int(np.sum(sizes > 1e-9))
    assert k == rank
    if rank == d * (d - 1) // 2:
        spheres = math.prod(2 * math.pi ** ((s + 1) / 2) / math.gamma((s + 1) / 2) for s in range(1, d))
        assert volume == pytest.approx(spheres * np.prod(sizes), rel=1e-9)
    if d == 2:
        assert volume == pytest.approx(2 * math.pi * math.sqrt(n), rel=1e-12)


def test_exponents_of_the_logarithmic_schedule():
    slow = logarithmic_exponent(c=2.0, critical_depth=1.0, spectral_depth=1.5, delta=0.8)
    assert (slow.converges, slow.bound, slow.sharp) == (True, 0.25, 0.4)
    between = logarithmic_exponent(c=1.2, critical_depth=1.0, spectral_depth=1.5, delta=0.8)
    assert between.converges
    assert math.isnan(between.sharp)
    fast = logarithmic_exponent(c=0.5, critical_depth=1.0, spectral_depth=1.5, delta=0.8)
    assert (fast.converges, fast.bound) == (False, 0.0)


@pytest.mark.parametrize(
    ("schedule", "traps"),
    [
        (ij.schedules.logarithmic(0.5), True),
        (ij.schedules.logarithmic(1.0), False),
        (ij.schedules.logarithmic(2.0), False),
        (ij.schedules.power(0.5, initial=2.0, t0=3.0), True),
        (ij.schedules.exponential(0.1, initial=2.0), True),
        (ij.schedules.linear(0.3, initial=2.0), True),
        (ij.schedules.constant(3.0), False),
    ],
)
def test_trapping_criterion_is_the_integral_of_the_rate(schedule, traps):
    result = trapping_criterion(schedule, prefactor=0.3, depth=1.0)
    assert result.traps == traps
    if traps:
        clock = np.linspace(0, np.log1p(1e9), 400_001)
        t = np.expm1(clock)
        rates = 0.3 * np.exp(-np.asarray(schedule(t))) * (1 + t)
        tail = 0.3 * 2.0 / 1e9 if schedule.family == "logarithmic" else 0.0
        assert result.total == pytest.approx(np.trapezoid(rates, clock) + tail, rel=1e-5)


def test_trapping_criterion_refuses_what_it_does_not_cover():
    with pytest.raises(ij.InputError, match="horizon_law"):
        trapping_criterion(ij.schedules.geometric_to_horizon(1, 10, 100), 1.0, 1.0)
    with pytest.raises(ij.InputError, match="two_state_law"):
        trapping_criterion(ij.schedules.piecewise([0, 1], [1, 2]), 1.0, 1.0)


def test_horizon_law_falls_with_the_horizon():
    values = [horizon_law(0.55, 0.33, T) for T in (1e2, 1e4, 1e6)]
    assert values == sorted(values, reverse=True)
    assert values[1] == pytest.approx((math.log(1e4) / 1e4) ** (0.55 / 0.33))


def test_two_state_law_at_constant_beta_is_an_exponential():
    t = np.array([0.5, 1.0, 10.0])
    p = two_state_law(ij.schedules.constant(2.0), t, escape=lambda b: 0.3 * b, trapped=lambda b: 0.1 * b, initial=0.9)
    assert p == pytest.approx(0.2 + 0.7 * np.exp(-0.6 * t), rel=1e-7)


def test_two_state_law_with_the_exact_gap_is_close_to_the_exact_law():
    # THEORY section 1: 2-3 % accurate, 7 % in fast quenches; reference 0.078154 at T = 1e4, c = E*, uniform start
    from infonce_jax.theory import Circle

    circle = Circle(ij.scenarios.double_well().energy, modes=128)
    e_star = 0.3298550045
    betas = np.geomspace(1.5, 40, 40)
    gaps = np.array([circle.gap(b) for b in betas])
    theta = np.linspace(np.deg2rad(-176.525455), np.deg2rad(-13.987553), 4001)
    shares = np.array([np.trapezoid(circle.stationary(b, theta), theta) for b in betas])
    p = two_state_law(
        ij.schedules.logarithmic(e_star), np.array([1e4]),
        escape=lambda b: float(np.exp(np.interp(b, betas, np.log(gaps)))),
        trapped=lambda b: float(np.exp(np.interp(b, betas, np.log(shares)))),
        initial=0.4514,
    )  # fmt: skip
    assert p[0] == pytest.approx(0.078154, rel=0.04)
