"""Kinetic Langevin: its bias on the sphere by simulation, its order on the circle by quadrature, its momentum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.polynomial import hermite_e

import infonce_jax as ij
from infonce_jax.checks import InputError

EXACT = 1 / np.tanh(2) - 1 / 2  # A_3(2)
ZONAL = ij.energies.from_function(lambda x: -2 * jnp.sum(x[:, -1]), shape=(1, 3))


# THEORY section 4, theory.json mc_checks/baoab_3_*: stationary errors of <z> at kappa = 2, gamma = 1, by simulation.
# (The third, -.0016 at h = .25, is no larger than a few of its own standard errors; order 2 is tested on the circle.)
@pytest.mark.parametrize(("h", "error", "tolerance"), [(1.0, -0.0448, 2e-3), (0.5, -0.0086, 1.5e-3)])
def test_stationary_error_on_the_sphere_is_the_tabulated_one(h, error, tolerance):
    # 2048 chains, 3000 units of time: standard error below 2.7e-4; with one of the table of about the same size
    # tolerances are 4 deviations and more, a false-alarm rate below 1e-4.
    watch = [ij.observers.average(lambda x, energy: x[0, -1], "z", skip_steps=40)]
    run = ij.run_chains(ZONAL, ij.schedules.constant(1.0), ij.integrators.kinetic(h), num_chains=2048,
                        num_steps=round(3000 / h), seed=5, observers=watch)  # fmt: skip
    z = run.data["z"].values
    assert np.std(z) / np.sqrt(len(z)) < 2.7e-4
    assert np.mean(z) - EXACT == pytest.approx(error, abs=tolerance)


def circle_mean(h, normal_nodes, waves=10, degree=14):
    """Stationary mean of cos(theta) for E = -2 cos(theta), beta = gamma = 1, by Galerkin: Fourier x Hermite."""
    thetas = 2 * np.pi * np.arange(2 * waves + 2) / (2 * waves + 2)
    p, weight = hermite_e.hermegauss(degree + 10)
    nodes, node_weights = normal_nodes(12, 2)
    energy = ij.energies.from_function(lambda x: -2 * x[0, 0], shape=(1, 2))
    scheme = ij.integrators.kinetic(h)

    def one(theta, p, normal):
        x = jnp.stack([jnp.cos(theta), jnp.sin(theta)])[None]
        state = scheme.init(energy, x)
        motion = state.cache._replace(momentum=p * jnp.stack([-x[:, 1], x[:, 0]], axis=-1), drawn=jnp.ones((), bool))
        new = scheme.step(state._replace(cache=motion), normal[None], jnp.ones(()))[0]
        y, q = new.positions[0], new.cache.momentum[0]
        return jnp.arctan2(y[1], y[0]), q[1] * y[0] - q[0] * y[1]

    with jax.enable_x64(True):
        grid = jax.vmap(jax.vmap(jax.vmap(one, (None, None, 0)), (None, 0, None)), (0, None, None))
        ends = [np.asarray(out) for out in jax.jit(grid)(thetas, p, nodes)]
    norms = np.sqrt([np.prod(np.arange(1.0, m + 1)) for m in range(degree)])

    def basis(theta, p):
        trig = np.stack([np.ones_like(theta), *(np.cos(k * theta) for k in range(1, waves + 1)),
                         *(np.sin(k * theta) for k in range(1, waves + 1))], axis=-1)  # fmt: skip
        values = trig[..., :, None] * (hermite_e.hermevander(p, degree - 1) / norms)[..., None, :]
        return values.reshape(*values.shape[:-2], -1)

    after = np.stack([np.einsum("k,pkf->pf", node_weights, basis(*rows)) for rows in zip(*ends, strict=True)])
    here = basis(*np.broadcast_arrays(thetas[:, None], p[None]))
    mass = np.broadcast_to(weight / weight.sum() / len(thetas), here.shape[:2])
    gram, moved = (np.einsum("tp,tpf,tpg->fg", mass, here, values) for values in (here, after))
    values, vectors = np.linalg.eig(np.linalg.solve(gram, moved).T)
    law = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return law[degree] / law[0]


def test_stationary_error_on_the_circle_is_of_order_two(normal_nodes):
    exact = 0.697774657964008  # A_2(2), theory.json
    errors = [circle_mean(h, normal_nodes) - exact for h in (0.2, 0.1)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.06)
    assert 1e-6 < abs(errors[1]) < 1e-4  # more than the error of the quadrature, 1e-9


def random_points(count, n, d, seed):
    x = np.random.default_rng(seed).normal(size=(count, n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def free_steps(count, friction, beta, chains=4096):
    """Momenta of chains on (S^2)^2 without forces after `count` steps, and where they are."""
    flat = ij.energies.from_function(lambda x: 0.0 * jnp.sum(x), shape=(2, 3))
    scheme = ij.integrators.kinetic(0.3, friction=friction)
    states = jax.vmap(lambda x: scheme.init(flat, x))(random_points(chains, 2, 3, 1))
    step = jax.jit(jax.vmap(lambda s, xi: scheme.step(s._replace(energy=flat), xi, jnp.float32(beta))[0]))
    for k in range(count):
        states = step(states, np.random.default_rng(k).normal(size=(chains, 2, 3)).astype(np.float32))
    return np.asarray(states.positions), np.asarray(states.cache.momentum)


@pytest.mark.parametrize(("count", "friction"), [(1, 0.01), (1, 5.0), (6, 1.0)])
def test_the_momentum_is_drawn_in_the_first_step_whatever_the_friction(count, friction):
    # beta |p|^2 of (S^2)^2 is chi-square with 4 degrees; Kolmogorov-Smirnov on 4096 chains, false-alarm rate 1e-6.
    x, p = free_steps(count, friction, 2.5)
    np.testing.assert_allclose(np.sum(x * p, axis=-1), 0, atol=2e-6)
    assert scipy.stats.kstest(2.5 * np.sum(p**2, axis=(1, 2)), "chi2", args=(4,)).pvalue > 1e-6


def test_friction_alone_decides_what_a_later_step_forgets():
    # Without forces and with noise zero, momentum shrinks by e^{-gamma h} and turns with its great circle.
    flat = ij.energies.from_function(lambda x: 0.0 * jnp.sum(x), shape=(1, 3))
    scheme = ij.integrators.kinetic(0.2, friction=3.0)
    state = scheme.init(flat, jnp.array([[1.0, 0.0, 0.0]]))
    state = scheme.step(state, jnp.array([[0.3, 1.0, 0.0]]), jnp.float32(1.0))[0]
    speeds = []
    for _ in range(3):
        speeds.append(float(jnp.linalg.norm(state.cache.momentum)))
        state = scheme.step(state, jnp.zeros((1, 3)), jnp.float32(1.0))[0]
    np.testing.assert_allclose(speeds, np.exp(-0.6 * np.arange(3)), rtol=1e-5)


def test_another_energy_renews_the_force_and_keeps_the_momentum():
    first, second = (ij.scenarios.ring(3, temperature=t).energy for t in (0.5, 0.3))
    scheme = ij.integrators.kinetic(0.1)
    state = scheme.init(first, jnp.asarray(random_points(1, 3, 2, 2)[0]))
    state = scheme.step(state, jnp.ones((3, 2)), jnp.float32(1.0))[0]
    new = scheme.under(state, second)
    fresh = scheme.init(second, state.positions)
    np.testing.assert_array_equal(new.cache.momentum, state.cache.momentum)
    assert np.any(new.cache.momentum != 0)
    assert bool(new.cache.drawn)
    np.testing.assert_array_equal(new.cache.gradient, fresh.cache.gradient)
    np.testing.assert_array_equal(new.cache.energy, fresh.cache.energy)


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, "low", None])
def test_a_bad_friction_is_refused(bad):
    with pytest.raises(InputError, match=r"^friction: got .+; needs .+; a rate, for example"):
        ij.integrators.kinetic(0.1, friction=bad)
