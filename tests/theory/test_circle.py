"""Exact statements on the double well against independent spectral, quadrature and finite-volume numbers (THEORY 3)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

import infonce_jax as ij
from infonce_jax.theory import Circle

GLOBAL, LOCAL = np.deg2rad(105.79580814457366), np.deg2rad(-108.96878905866609)
HIGH, LOW = np.deg2rad(-176.52545468418643), np.deg2rad(-13.987552870473186)
E_STAR = 0.3298550045447959


@pytest.fixture(scope="module")
def circle():
    return Circle(ij.scenarios.double_well().energy)


@pytest.mark.parametrize(
    ("beta", "gap"), [(5, 3.43288646e-2), (10, 6.8109072e-3), (20, 3.1908798e-4), (40, 5.12042e-7)]
)
def test_gap(circle, beta, gap):
    # the reference's own relative error grows as the gap approaches rounding: 1e-6 at beta = 40
    assert circle.gap(beta) == pytest.approx(gap, rel=2e-6 if beta == 40 else 2e-8)


@pytest.mark.parametrize(
    ("beta", "radius", "time"),
    [
        (5, 0.2, 36.38626786491932),
        (10, 0.2, 154.5688251111312),
        (20, 0.2, 3143.622147081799),
        (40, 0.2, 1952975.6873895847),
        (5, 0.05, 36.846028922182974),
        (40, 0.5, 1952974.6967353777),
    ],
)
def test_mean_first_passage(circle, beta, radius, time):
    assert circle.mean_first_passage(beta, LOCAL, GLOBAL, radius) == pytest.approx(time, rel=1e-10)


def test_passage_from_inside_the_target_takes_no_time(circle):
    assert circle.mean_first_passage(5, GLOBAL + 0.1, GLOBAL, 0.2) == 0.0


def test_free_diffusion_has_closed_forms():
    # no energy: eigenvalues k^2/beta; first passage (x (L - x)) beta/2 on an arc of length L = 2 pi - 2 r
    free = Circle(ij.energies.from_function(lambda x: 0.0 * x[0, 0], shape=(1, 2)), modes=32)
    np.testing.assert_allclose(free.spectrum(3.0, 5), np.array([0, 1, 1, 4, 4]) / 3, atol=1e-12)
    x, arc = np.pi - 0.2, 2 * np.pi - 0.4
    assert free.mean_first_passage(3.0, np.pi, 0.0, 0.2) == pytest.approx(3.0 * x * (arc - x) / 2, rel=1e-12)


@pytest.mark.parametrize("beta", [5, 10, 20])
def test_stationary_share_of_the_local_basin_is_that_of_the_written_out_energy(circle, beta):
    # THEORY section 3's formula integrated adaptively. (The share of its reference data differs by 5e-6 of itself at
    # beta = 5: it counts whole cells of a grid.)
    keys, counts = np.deg2rad([60, -60, 0, 180]), np.array([1, 1, 8, 1])

    def weight(t):
        pull = (0.55 * np.cos(t - keys[0]) + 0.45 * np.cos(t - keys[1])) / 0.3
        return np.exp(-beta * (np.log(np.sum(counts * np.exp(np.cos(t - keys) / 0.3))) - pull - 2.946184453))

    options = {"epsabs": 0, "epsrel": 1e-12, "limit": 400}
    inside, outside = quad(weight, HIGH, LOW, **options)[0], quad(weight, LOW, HIGH + 2 * np.pi, **options)[0]
    theta = np.linspace(HIGH, LOW, 20_001)
    assert np.trapezoid(circle.stationary(beta, theta), theta) == pytest.approx(inside / (inside + outside), rel=1e-8)


def test_annealed_law_is_a_law_and_counts_the_local_basin(circle):
    # P(in the local basin), uniform start, c = 1.5 E*, at T = 1e2, 1e3, 1e4; 720 cells of the reference differ by 2e-4.
    # The whole table stands in test_fokker_planck.
    angles, law = circle.annealed_law(ij.schedules.logarithmic(1.5 * E_STAR), [0, 1e2, 1e3, 1e4])
    assert law.sum(axis=1) == pytest.approx([1, 1, 1, 1], abs=1e-9)
    assert law.min() > -1e-12
    assert law[0] == pytest.approx(np.full(1440, 1 / 1440))
    angles = np.mod(angles + np.pi, 2 * np.pi) - np.pi
    shares = law[1:, (angles > HIGH) & (angles < LOW)].sum(axis=1)
    assert shares == pytest.approx([0.099336, 5.3162e-3, 4.9127e-5], rel=2e-4)


def test_annealed_law_from_one_point(circle):
    # beta = 2 e^{.01 t}, T = 1e4, from the local minimum; the cells at the basin's edges differ by 1e-4 of it
    angles, law = circle.annealed_law(ij.schedules.exponential(0.01, initial=2.0), [1e4], initial=LOCAL)
    angles = np.mod(angles + np.pi, 2 * np.pi) - np.pi
    assert law[0, (angles > HIGH) & (angles < LOW)].sum() == pytest.approx(0.0435469, rel=1e-3)


def test_other_spaces_are_refused():
    with pytest.raises(ij.InputError, match="circle"):
        Circle(ij.scenarios.ring(5).energy)
