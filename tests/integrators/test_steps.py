"""Each scheme against exact laws, with quadrature nodes in the place of its random numbers: no sampling error."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import hermite_e, legendre

from infonce_jax import energies, integrators, sphere
from infonce_jax.checks import InputError
from infonce_jax.integrators import protocol
from infonce_jax.noise import Noise


def gauss_hermite(count, dimension):
    """Nodes (count^dimension, dimension) and weights of the standard normal law."""
    node, weight = hermite_e.hermegauss(count)
    nodes = np.stack([g.ravel() for g in np.meshgrid(*[node] * dimension, indexing="ij")], axis=-1)
    weights = np.prod(np.meshgrid(*[weight / weight.sum()] * dimension, indexing="ij"), axis=0).ravel()
    return nodes, weights


def ends(scheme, energy, x, noise, beta=1.0):
    """Where one step ends from each point of x, (points, n, d), with each row of noise, (points, nodes, n, d)."""

    def one(start, normal):
        return scheme.step(scheme.init(energy, start), normal, jnp.asarray(beta, start.dtype))[0].positions

    return np.asarray(jax.jit(jax.vmap(jax.vmap(one, (None, 0))))(x, noise))


def free(d, n=1):
    return energies.from_function(lambda x: 0.0 * jnp.sum(x), shape=(n, d))


def mean_harmonics(scheme, d, count, beta=1.0):
    """E[C_l(<x', x>)], l = 1, 2, 3, after one step from rest: the factor by which the scheme shrinks harmonic l."""
    x = np.array([0.6, 0.8] + [0.0] * (d - 2))  # no axis, so that the nodes also test the tangent projection
    frame = np.linalg.qr(np.concatenate([x[:, None], np.eye(d)[:, ::-1]], axis=1))[0][:, 1:]
    nodes, weights = gauss_hermite(count, d - 1)
    noise = nodes @ frame.T + 3.0 * x  # what points along x must have no effect
    with jax.enable_x64(True):
        z = ends(scheme, free(d), x[None, None], noise[None, :, None], beta)[0, :, 0] @ x
    if d == 2:
        harmonics = z, 2 * z**2 - 1, 4 * z**3 - 3 * z
    else:  # Gegenbauer polynomials of the sphere S^(d-1), equal to 1 at z = 1
        harmonics = z, (d * z**2 - 1) / (d - 1), ((d + 2) * z**3 - 3 * z) / (d - 1)
    return np.array([weights @ h for h in harmonics])


SCHEMES = {
    "geo": lambda h: integrators.geodesic_euler(h),
    "proj": lambda h: integrators.projected_euler(h),
    "geo_corr": lambda h: integrators.geodesic_euler(h, corrected_noise=True),
    "proj_corr": lambda h: integrators.projected_euler(h, corrected_noise=True),
}
# THEORY section 4, digits of theory.json (integrators/bm): 10 steps of h = .05 at beta = 1, harmonics l = 1, 2, 3.
DECAY = {
    (2, "geo"): (0.606530659712116, 0.13533528323647298, 0.011108996538226761),
    (2, "proj"): (0.6526146978344566, 0.1781984597683115, 0.019206332573324936),
    (2, "geo_corr"): (0.606530659712116, 0.13533528323647298, 0.011108996538226761),
    (2, "proj_corr"): (0.6068975187742519, 0.13198736670125033, 0.009378569269753381),
    (3, "geo"): (0.3615466700030732, 0.047263693459980625, 0.002234385944628995),
    (3, "proj"): (0.4381098722911547, 0.08141872790721218, 0.005965847967935715),
    (3, "geo_corr"): (0.3678383350391086, 0.04977407279537289, 0.002478005579961499),
    (3, "proj_corr"): (0.36998551923232176, 0.04797317651017419, 0.0019169872179419286),
    (5, "geo"): (0.12118402705648629, 0.005116044140061284, 7.5308082961349e-05),
    (5, "proj"): (0.21237607006343148, 0.01943464553074282, 0.0006941433314963949),
    (5, "geo_corr"): (0.1354501164789044, 0.006756228772117051, 0.00012418662719987386),
    (5, "proj_corr"): (0.1406953164135349, 0.00651659844551994, 8.034830477404375e-05),
}


@pytest.mark.parametrize(("d", "name"), DECAY)
def test_brownian_harmonics_decay_as_tabulated(d, name):
    # The step at rest is invariant under rotations, so every harmonic shrinks by one factor per step.
    count = {2: 120, 3: 50, 5: 14}[d]
    factors = mean_harmonics(SCHEMES[name](0.05), d, count)
    # Projection has a pole at |v| = i, where 14 nodes a direction converge more slowly.
    tolerance = 1e-7 if (d, name[:4]) == (5, "proj") else 2e-12
    np.testing.assert_allclose(factors**10, DECAY[d, name], rtol=0, atol=tolerance)


def slope(name, d):
    """Order in h of the error of the slowest harmonic over the time 1/2."""
    exact = np.exp(-(d - 1) / 2)
    errors = [abs(mean_harmonics(SCHEMES[name](h), d, 40)[0] ** round(0.5 / h) - exact) for h in (0.025, 0.0125)]
    return np.log2(errors[0] / errors[1])


@pytest.mark.parametrize(("name", "order"), [("geo", 1), ("proj", 1), ("geo_corr", 2), ("proj_corr", 2)])
def test_brownian_order_is_one_and_two_with_the_correction(name, order):
    assert slope(name, 3) == pytest.approx(order, abs=0.45)  # projection creeps up to its order: theory.json has 2.38


def test_projection_is_biased_more_and_the_other_way():
    # THEORY: the leading errors have the ratio -3(d+2)/(d-2).
    exact = np.exp(-2 * 0.001)
    geodesic, projected = (mean_harmonics(SCHEMES[name](0.001), 3, 40)[0] - exact for name in ("geo", "proj"))
    assert projected / geodesic == pytest.approx(-15, rel=0.03)


@pytest.mark.parametrize("name", SCHEMES)
def test_noise_depends_on_step_and_temperature_through_their_quotient(name):
    first, second = mean_harmonics(SCHEMES[name](0.05), 3, 12), mean_harmonics(SCHEMES[name](0.2), 3, 12, beta=4.0)
    np.testing.assert_allclose(first, second, rtol=1e-13)


@pytest.mark.parametrize("name", SCHEMES)
def test_without_noise_a_step_follows_the_gradient(name):
    h, x = 1e-3, np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]])
    energy = energies.from_function(lambda x: jnp.sum(x[0] * x[1]) + 2 * x[1, 2], shape=(2, 3))
    with jax.enable_x64(True):
        end = ends(SCHEMES[name](h), energy, x[None], np.zeros((1, 1, 2, 3)))[0, 0]
        want = sphere.exp(jnp.asarray(x), -h * sphere.gradient(energy)(jnp.asarray(x)))
    np.testing.assert_allclose(end, want, atol=1e-7)  # projection differs by |v|^3/3


def stationary_mean(scheme, d, kappa, grid=36, count=40):
    """Mean of z under the stationary law of the scheme for E = -kappa z, beta = 1, on S^(d-1).

    Rotations about the z axis make z a Markov chain on [-1, 1]; E[f(z') | z] is analytic in z, so polynomials on
    Gauss-Legendre points resolve its transition operator, whose left eigenvector at 1 is the stationary law.
    """
    z, _ = legendre.leggauss(grid)
    radius = np.sqrt(1 - z**2)
    x = np.zeros((grid, d))
    x[:, -1], x[:, 0] = z, radius
    nodes, weights = gauss_hermite(count, d - 1)
    along = np.zeros((grid, d))  # the tangent direction towards growing z
    along[:, -1], along[:, 0] = radius, -z
    noise = nodes[None, :, :1] * along[:, None]
    noise[:, :, 1:-1] += nodes[None, :, 1:]
    energy = energies.from_function(lambda x: -kappa * jnp.sum(x[:, -1]), shape=(1, d))
    with jax.enable_x64(True):
        after = ends(scheme, energy, x[:, None], noise[:, :, None])[:, :, 0, -1]
    # Row i: the mean of every Legendre polynomial at z'; then, by interpolation, as a polynomial of z.
    moments = np.einsum("k,ikl->il", weights, legendre.legvander(np.clip(after, -1, 1), grid - 1))
    transition = np.linalg.solve(legendre.legvander(z, grid - 1), moments)
    values, vectors = np.linalg.eig(transition.T)
    law = np.real(vectors[:, np.argmin(np.abs(values - 1))])  # means of the Legendre polynomials, up to a factor
    return law[1] / law[0]


# THEORY section 4, digits of theory.json (integrators/vmf_S2_kappa2): stationary mean of z for kappa = 2 on S^2.
ON_THE_SPHERE = {
    "geo": {0.1: 0.5031532341460785, 0.05: 0.5206165998236086, 0.025: 0.52905815000522},
    "proj": {0.1: 0.5752711988796637, 0.05: 0.5600665013360149, 0.025: 0.5501323446605385},
}
# integrators/vmf_S1_kappa2_geoEM: the same on the circle.
ON_THE_CIRCLE = {
    0.1: 0.6704684782493459,
    0.05: 0.6845487151983747,
    0.025: 0.6912630259232506,
    0.0125: 0.6945435027019824,
}


@pytest.mark.parametrize(("name", "h"), [(name, h) for name, table in ON_THE_SPHERE.items() for h in table])
def test_stationary_mean_on_the_sphere_is_the_tabulated_one(name, h):
    assert stationary_mean(SCHEMES[name](h), 3, 2.0) == pytest.approx(ON_THE_SPHERE[name][h], abs=1e-10)


@pytest.mark.parametrize("h", ON_THE_CIRCLE)
def test_stationary_mean_on_the_circle_is_the_tabulated_one(h):
    assert stationary_mean(SCHEMES["geo"](h), 2, 2.0) == pytest.approx(ON_THE_CIRCLE[h], abs=1e-10)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_euler_scheme_tends_to_the_gibbs_law(name):
    exact = 1 / np.tanh(2) - 1 / 2  # A_3(2) = .5373147
    coarse, fine = (abs(stationary_mean(SCHEMES[name](h), 3, 2.0) - exact) for h in (0.02, 0.01))
    assert fine < 0.55 * coarse
    assert fine < 0.012


# Metropolis-adjusted Langevin. E has no symmetry, so no error can cancel between the two directions.


def lopsided(x):
    weights = jnp.arange(1.0, x.size + 1, dtype=x.dtype).reshape(x.shape)
    return jnp.sum(jnp.cos(weights * x)) - 1.3 * x[0, -1] + 0.7 * jnp.sum(x[0] * x[-1] ** 2)


H, BETA = 0.4, 1.7


def random_points(count, n, d, seed):
    x = np.random.default_rng(seed).normal(size=(count, n, d))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def acceptance(energy, x, v, uniform=0.5, beta=BETA):
    """Acceptance probability and end of a MALA step from x whose velocity, drift included, is v."""
    scheme = integrators.mala(H)

    def one(x, v):
        drift = -H * sphere.gradient(energy)(x)
        noise = Noise((v - drift) / jnp.sqrt(2 * H / beta), jnp.asarray(uniform, x.dtype))
        state, info = scheme.step(scheme.init(energy, x), noise, beta)
        return info.acceptance, state.positions

    return tuple(np.asarray(out) for out in jax.jit(jax.vmap(one))(x, v))


def log_proposal(energy, x, y):
    """log q(x, y) up to a constant, as a density on the sphere: the exponential map spreads a volume element of the
    tangent space by (sin r/r)^(d-2)."""
    v = sphere.log(x, y)
    drift = -H * sphere.gradient(energy)(x)
    r = jnp.sqrt(jnp.sum(v * v, axis=-1))
    return -BETA / (4 * H) * jnp.sum((v - drift) ** 2) - (x.shape[-1] - 2) * jnp.sum(jnp.log(jnp.sin(r) / r))


@pytest.mark.parametrize(("n", "d"), [(1, 2), (1, 3), (1, 5), (3, 3), (2, 5)])
def test_mala_is_in_detailed_balance_with_the_gibbs_law_at_every_pair(n, d):
    energy = energies.from_function(lopsided, shape=(n, d))
    x, y = random_points(200, n, d, 1), random_points(200, n, d, 2)
    with jax.enable_x64(True):
        x, y = jnp.asarray(x), jnp.asarray(y)
        there, back = acceptance(energy, x, sphere.log(x, y))[0], acceptance(energy, y, sphere.log(y, x))[0]
        log_q = jax.jit(jax.vmap(lambda a, b: log_proposal(energy, a, b)))
        log_pi = -BETA * jax.vmap(energy)(x), -BETA * jax.vmap(energy)(y)
        flow = log_pi[0] + log_q(x, y) + np.log(there), log_pi[1] + log_q(y, x) + np.log(back)
    np.testing.assert_allclose(flow[0], flow[1], rtol=0, atol=1e-9)
    assert np.all(np.maximum(there, back) == 1)  # Metropolis: the largest acceptance that balances
    assert 0.1 < np.mean(there < 1) < 0.9


@pytest.mark.parametrize("uniform", [0.0, 0.3, 0.999])
def test_mala_moves_where_the_uniform_number_is_below_the_acceptance_and_stays_elsewhere(uniform):
    energy = energies.from_function(lopsided, shape=(2, 3))
    x, y = random_points(100, 2, 3, 3), random_points(100, 2, 3, 4)
    with jax.enable_x64(True):
        a, end = acceptance(energy, jnp.asarray(x), sphere.log(jnp.asarray(x), jnp.asarray(y)), uniform)
    moved = uniform < a
    np.testing.assert_allclose(end[moved], y[moved], atol=1e-12)
    np.testing.assert_array_equal(end[~moved], x[~moved])


@pytest.mark.parametrize(
    ("length", "accepted"), [(np.pi - 1e-6, True), (np.pi + 1e-6, False), (4.0, False), (7.0, False)]
)
def test_mala_rejects_moves_of_pi_and_more(length, accepted):
    # For a flat energy every shorter move is accepted; THEORY: without this rule kappa = 2, d = 3 gives .49967.
    for n, row in ((1, 0), (3, 2)):  # one long velocity among short ones suffices
        x = random_points(20, n, 3, 5)
        v = 0.1 * np.array(sphere.to_tangent(x, random_points(20, n, 3, 6)))
        v[:, row] *= length / np.linalg.norm(v[:, row], axis=-1, keepdims=True)
        with jax.enable_x64(True):
            a, _ = acceptance(free(3, n), jnp.asarray(x), jnp.asarray(v))
        np.testing.assert_allclose(a, float(accepted), atol=1e-9)


def test_mala_carries_the_energy_and_gradient_of_where_it_is():
    energy = energies.from_function(lopsided, shape=(2, 3))
    scheme, x = integrators.mala(0.05), jnp.asarray(random_points(1, 2, 3, 7)[0], jnp.float32)
    state = scheme.init(energy, x)
    accepted = 0
    for step in range(12):
        normal = jnp.asarray(np.random.default_rng(step).normal(size=(2, 3)), jnp.float32)
        before = state
        state, info = scheme.step(state, Noise(normal, jnp.float32(0.4)), jnp.float32(BETA))
        accepted += bool(jnp.any(state.positions != before.positions))
        np.testing.assert_allclose(info.energy, energy(before.positions), rtol=1e-5, atol=1e-6)
        fresh = scheme.init(energy, state.positions)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), state.cache, fresh.cache)
    assert 0 < accepted < 12


def test_mala_with_a_non_finite_ratio_stays_where_it_is():
    wall = energies.from_function(lambda x: jnp.where(x[0, 0] > 0.99, 0.0, jnp.inf) + 0.0 * jnp.sum(x), shape=(1, 2))
    x = np.array([[[1.0, 0.0]]], np.float32)
    a, end = acceptance(wall, x, np.array([[[0.0, 1.0]]], np.float32))
    assert a[0] == 0
    np.testing.assert_array_equal(end, x)


# The exponential map of the inner loop.

LENGTHS = np.concatenate([np.geomspace(1e-8, 50, 60), np.pi * np.array([0.5, 1 - 1e-4, 1, 1 + 1e-4, 2, 3, 5])])


@pytest.mark.parametrize("d", [2, 3, 8])
def test_geodesic_is_the_exponential_map_to_a_few_ulps(d):
    x = random_points(300, 1, d, d)
    t = np.random.default_rng(d + 100).normal(size=x.shape)
    t -= np.sum(t * x, axis=-1, keepdims=True) * x
    t /= np.linalg.norm(t, axis=-1, keepdims=True)
    eps = np.finfo(np.float32).eps
    for length in LENGTHS:
        a, v = x.astype(np.float32), (length * t).astype(np.float32)
        exact, r = a.astype(np.float64), np.linalg.norm(v.astype(np.float64), axis=-1, keepdims=True)
        exact = np.cos(r) * exact + np.sin(r) / r * v
        exact /= np.linalg.norm(exact, axis=-1, keepdims=True)
        bound = 4 * eps * (1 + length / 3)  # rounding the length and its turns moves the point by length * eps
        assert np.max(np.abs(protocol.geodesic(a, v) - exact)) < bound, length
        assert np.max(np.abs(protocol.geodesic(a, v) - sphere.exp(a, v))) < 2 * bound, length


def test_geodesic_in_double_precision_is_the_exponential_map():
    with jax.enable_x64(True):
        x = jnp.asarray(random_points(100, 2, 3, 8))
        for length in LENGTHS:
            v = sphere.to_tangent(x, length * random_points(100, 2, 3, 9))
            np.testing.assert_allclose(protocol.geodesic(x, v), sphere.exp(x, v), rtol=0, atol=1e-15 * (2 + length))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_geodesic_without_velocity_stays(dtype):
    with jax.enable_x64(dtype == np.float64):
        x = random_points(100, 2, 3, 10).astype(dtype)
        np.testing.assert_allclose(protocol.geodesic(x, np.zeros_like(x)), x, rtol=0, atol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("length", [1e-3, 0.1, 3.0, 20.0])
def test_a_long_chain_of_geodesics_keeps_its_norms(length):
    x = jnp.asarray(random_points(50, 2, 3, 11), jnp.float32)
    push = length * jnp.asarray(random_points(50, 2, 3, 12), jnp.float32)

    def step(_, y):
        return jax.vmap(protocol.geodesic)(y, sphere.to_tangent(y, push))

    end = np.asarray(jax.lax.fori_loop(0, 20_000, step, x), np.float64)
    assert np.max(np.abs(np.linalg.norm(end, axis=-1) - 1)) < 3e-7


def test_renormalise_squares_the_error_of_the_norm():
    x = random_points(1, 1, 3, 13)[0]
    with jax.enable_x64(True):
        for error in (1e-2, -1e-2, 1e-4):
            norm = np.linalg.norm(protocol.renormalise(jnp.asarray(x * (1 + error))))
            assert abs(norm - 1) == pytest.approx(1.5 * error**2, rel=0.02)


# What every scheme promises.

ALL = [build(0.05) for build in SCHEMES.values()] + [integrators.mala(0.05)]


@pytest.mark.parametrize("scheme", ALL, ids=lambda s: s.name)
@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e30])
def test_steps_stay_on_the_sphere_from_the_hottest_to_the_coldest(scheme, beta):
    energy = energies.from_function(lopsided, shape=(2, 3))
    x = jnp.asarray(random_points(1, 2, 3, 14)[0], jnp.float32)
    state = scheme.init(energy, x)
    for step in range(50):
        normal = jnp.asarray(np.random.default_rng(step).normal(size=(2, 3)), jnp.float32)
        noise = Noise(normal, jnp.float32(0.5)) if scheme.needs_uniform else normal
        state, info = scheme.step(state, noise, jnp.float32(beta))
        assert np.all(np.isfinite(info.energy))
    assert state.positions.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(state.positions, axis=-1), 1, rtol=0, atol=3e-7)


@pytest.mark.parametrize("scheme", ALL, ids=lambda s: s.name)
def test_a_step_reports_the_energy_of_where_it_started(scheme):
    energy = energies.from_function(lopsided, shape=(2, 3))
    x = jnp.asarray(random_points(1, 2, 3, 15)[0], jnp.float32)
    noise = Noise(jnp.ones((2, 3)), jnp.float32(0.5)) if scheme.needs_uniform else jnp.ones((2, 3))
    info = scheme.step(scheme.init(energy, x), noise, jnp.float32(1.0))[1]
    np.testing.assert_allclose(info.energy, energy(x), rtol=1e-6)
    assert 0 <= float(info.acceptance) <= 1
    assert scheme.needs_uniform or float(info.acceptance) == 1


@pytest.mark.parametrize("build", [integrators.geodesic_euler, integrators.projected_euler, integrators.mala])
@pytest.mark.parametrize("bad", [0, -0.1, np.nan, np.inf, "small", None, [0.1]])
def test_a_bad_step_size_is_refused_in_one_line(build, bad):
    with pytest.raises(InputError, match=r"^step_size: got .+; needs .+; a time step, for example") as caught:
        build(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("build", [integrators.geodesic_euler, integrators.projected_euler, integrators.mala])
def test_the_same_scheme_is_one_object_however_it_is_written(build):
    # The compiled loop is cached by the scheme: another object would compile again.
    assert (
        len(
            {id(build(h)) for h in (0.5, np.float64(0.5), np.float32(0.5), jnp.float32(0.5))}
            | {id(build(step_size=0.5))}
        )
        == 1
    )


def test_different_schemes_are_different():
    schemes = [build(h) for build, h in itertools.product(SCHEMES.values(), (0.1, 0.2))]
    assert len(set(schemes)) == len(schemes)
    assert len({s.name for s in schemes}) == len(SCHEMES)
