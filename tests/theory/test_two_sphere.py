"""One embedding on S^2: gaps from harmonics, passages from circles around the target."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import spsolve

import infonce_jax as ij
from infonce_jax.theory import fokker_planck, rate_matrix
from infonce_jax.theory.two_sphere import TwoSphere


def double_well_on_the_sphere(below):
    """The keys of the double well in the plane z = 0, and a negative (0, 0, -1) of weight `below`."""
    angles = np.deg2rad([60, -60, 0, 180])
    keys = np.concatenate([np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1), [[0, 0, -1.0]]])
    return ij.energies.graph_infonce([[0, 0.55, 0.45, 0, 0, 0]], temperature=0.3, keys=keys,
                                     multiplicity=[[0, 1, 1, 8, 1, below]])  # fmt: skip


@pytest.fixture(scope="module")
def tilted():
    return TwoSphere(double_well_on_the_sphere(0.5))


@pytest.fixture(scope="module")
def tilted_gaps(tilted):
    return {beta: tilted.spectrum(beta, 3) for beta in (5, 10, 20)}


def test_tilted_gaps(tilted_gaps):
    # theory.json, s2_fixed, tilted_mult0.5: from fewer harmonics of the same operator
    reference = {
        5: [0.1391769195009756, 0.5178180826563302],
        10: [0.0679298614333733, 0.34921486661386],
        20: [0.025591609438118397, 0.37055658790283325],
    }
    for beta, values in reference.items():
        assert tilted_gaps[beta][1:] == pytest.approx(values, rel=1e-8)


def test_gaps_do_not_depend_on_the_degree(tilted, tilted_gaps):
    assert tilted.spectrum(5, 3, degree=44) == pytest.approx(tilted_gaps[5], rel=1e-10, abs=1e-12)


def test_tilted_gap_tends_to_eyring_kramers_from_above(tilted, tilted_gaps):
    land = ij.landscape.explore(tilted.energy, num_quenches=64, num_searches=64)
    assert land.critical_depth == pytest.approx(0.09004273438613142, rel=1e-6)
    # two states: the gap is the sum of both rates
    ratios = [tilted_gaps[beta][1] / -np.trace(rate_matrix(land, beta)[:2, :2]) for beta in (5, 10, 20)]
    assert ratios == pytest.approx([1.1985819185318263, 1.0958882121091693, 1.0276974857579992], rel=1e-6)
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] > 1


@pytest.mark.parametrize(
    ("beta", "gap", "rel"),
    [(5, 0.034053397885270245, 1e-8), (10, 0.0014008003793525023, 1e-8), (20, 2.4627354167037547e-06, 1e-6)],
)
def test_mirror_gaps(beta, gap, rel):
    # theory.json, s2_fixed, mirror, whose rounding is 1e-12: 7e-7 of the last gap
    assert fokker_planck.spectral_gap(double_well_on_the_sphere(0.0), beta) == pytest.approx(gap, rel=rel)


def test_free_diffusion_has_the_eigenvalues_of_the_sphere_and_a_passage_in_closed_form():
    free = TwoSphere(ij.energies.from_function(lambda x: 0.0 * x[0, 0], shape=(1, 3)))
    np.testing.assert_allclose(free.spectrum(4.0, 9) * 4, [0, 2, 2, 2, 6, 6, 6, 6, 6], atol=1e-10)
    # beta u'' + ... = -1: u = 2 beta log(sin(angle/2)/sin(radius/2))
    target = np.array([0.36, 0.48, 0.8])
    for radius in (0.3, 0.01):
        start = np.array([0.8, -0.6, 0.0])
        exact = 2 * 3.0 * math.log(math.sin(np.arccos(start @ target) / 2) / math.sin(radius / 2))
        assert free.mean_first_passage(3.0, start, target, radius, resolution=32) == pytest.approx(exact, rel=1e-5)
    assert free.mean_first_passage(3.0, target, target, 0.3) == 0.0


def one_dimensional_time(beta, angle, radius):
    """Quadrature for E = -cos^2 t - .2 cos t, in z = cos t: int beta e^{beta E}/(1 - z^2) int_{-1}^z e^{-beta E}."""
    start, rim = np.cos(angle), np.cos(radius)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    edges = np.unique(np.concatenate([np.linspace(-1, start, 1001), np.linspace(start, rim, 2001)]))
    width = np.diff(edges)[:, None]
    z, w = edges[:-1, None] + width * (nodes + 1) / 2, width * weights / 2
    inside = edges[:-1, None, None] + (z - edges[:-1, None])[..., None] * (nodes + 1) / 2

    def boltzmann(y):
        return np.exp(-beta * (0.8 - y**2 - 0.2 * y))

    before = np.concatenate([[0.0], np.cumsum(np.sum(w * boltzmann(z), axis=1))])[:-1, None]
    within = (z - edges[:-1, None]) / 2 * np.sum(weights * boltzmann(inside), axis=-1)
    rate = beta * (before + within) / boltzmann(z) / (1 - z**2)
    return np.sum((w * rate)[edges[:-1] >= start])


@pytest.mark.parametrize(
    ("beta", "time", "rel"),
    [(10, 1192.6690098502254, 1e-10), (20, 2568650.753782827, 1e-7), (40, 19084354624452.71, 1e-7)],
)
def test_quadrature_agrees_with_the_reference(beta, time, rel):
    # theory.json, morsebott, B1. (At beta = 80 its adaptive quadrature is off by 8.7e-4.)
    assert one_dimensional_time(beta, np.pi, 0.3) == pytest.approx(time, rel=rel)


@pytest.mark.parametrize("axis", [[0, 0, 1.0], [2 / 7, 3 / 7, 6 / 7]])
@pytest.mark.parametrize("beta", [10, 40, 80])
def test_passage_in_a_rotationally_symmetric_landscape(beta, axis):
    # from the far pole, where the coordinates are singular, and from between; the time is e^{62} at beta = 80
    axis = np.array(axis)
    space = TwoSphere(ij.energies.from_function(lambda x: -((x[0] @ axis) ** 2) - 0.2 * (x[0] @ axis), shape=(1, 3)))
    across = np.cross(axis, [1.0, 0, 0]) / np.linalg.norm(np.cross(axis, [1.0, 0, 0]))
    for angle in (np.pi, 2.0):
        start = np.cos(angle) * axis + np.sin(angle) * across
        time = space.mean_first_passage(beta, start, axis, 0.3, resolution=64)
        assert time == pytest.approx(one_dimensional_time(beta, angle, 0.3), rel=1e-3 if beta == 80 else 2e-4)


def test_passage_across_a_landscape_without_symmetry(tilted):
    # against the grid of latitudes, whose jagged rim makes an error of first order: .5 % here
    target = np.array([-0.14634846, 0.17567434, 0.97350945])
    start = np.array([-0.01289751, 0.73953970, -0.67298936])
    target, start = target / np.linalg.norm(target), start / np.linalg.norm(start)
    grid = tilted.cells(96)
    x = grid.points[:, 0]
    outside = np.arccos(np.clip(x @ target, -1, 1)) > 0.3
    matrix = sparse.csr_array(grid.generator(10.0).T)[outside][:, outside]
    times = np.asarray(spsolve(sparse.csc_matrix(matrix), -np.ones(len(x))[outside]))
    rough = times[np.argmax(x[outside] @ start)]
    coarse, fine = (tilted.mean_first_passage(10.0, start, target, 0.3, resolution=n) for n in (48, 96))
    assert fine == pytest.approx(rough, rel=1e-2)
    assert coarse == pytest.approx(fine, rel=1e-3)


def test_law_on_the_grid_relaxes_at_the_gap(tilted, tilted_gaps):
    # second order in the cells: 2e-3 at 96 meridians
    errors = []
    for cells in (32, 48):
        law = fokker_planck.annealed(tilted.energy, ij.schedules.constant(10.0), [40.0, 60.0], [0, 0, -1.0], cells)
        fixed = fokker_planck.stationary(tilted.energy, 10.0, cells)
        away = law.probability(lambda x: x[:, 0, 2] < 0) - fixed.probability(lambda x: x[:, 0, 2] < 0)
        errors.append(math.log(away[0] / away[1]) / 20 / tilted_gaps[10][1] - 1)
    assert abs(errors[1]) < 1e-2
    assert errors[0] / errors[1] == pytest.approx((48 / 32) ** 2, rel=0.1)


def test_bad_arguments_are_refused_by_name(tilted):
    pole = np.array([0, 0, 1.0])
    with pytest.raises(ij.InputError, match="sphere"):
        TwoSphere(ij.scenarios.double_well().energy)
    with pytest.raises(ij.InputError, match="degree"):
        tilted.spectrum(5.0, 2, degree=100)
    with pytest.raises(ij.InputError, match="resolution"):
        tilted.mean_first_passage(5.0, -pole, pole, 0.3, resolution=34)
    with pytest.raises(ij.InputError, match="beta"):
        tilted.mean_first_passage(1e5, -pole, pole, 0.3, resolution=32)
    with pytest.raises(ij.InputError, match="radius"):
        tilted.mean_first_passage(5.0, -pole, pole, 4.0)
