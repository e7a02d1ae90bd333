"""Hamiltonian Monte Carlo: the leapfrog map is reversible and symplectic, so the accepted chain is in balance."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax import energies, integrators, sphere
from infonce_jax.checks import InputError
from infonce_jax.integrators.hmc import Phase, leapfrog
from infonce_jax.integrators.protocol import flow, gradient_and_energy
from infonce_jax.noise import Noise


def lopsided(x):
    weights = jnp.arange(1.0, x.size + 1, dtype=x.dtype).reshape(x.shape)
    return jnp.sum(jnp.cos(weights * x)) - 1.3 * x[0, -1] + 0.7 * jnp.sum(x[0] * x[-1] ** 2)


ENERGY = energies.from_function(lopsided, shape=(2, 3))


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def phase(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    x = sphere.project(jnp.asarray(rng.normal(size=(2, 3))))
    p = scale * sphere.to_tangent(x, jnp.asarray(rng.normal(size=(2, 3))))
    return Phase(x, p, *gradient_and_energy(ENERGY, x))


@functools.partial(jax.jit, static_argnums=(1, 2))
def move(start, h, steps):
    return leapfrog(ENERGY, start, h, steps)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])  # at 30 every geodesic goes around several times
def test_leapfrog_with_the_momentum_turned_round_leads_back(scale):
    start = phase(1, scale)
    end = move(start, 0.3, 6)
    back = move(end._replace(momentum=-end.momentum), 0.3, 6)
    np.testing.assert_allclose(back.positions, start.positions, rtol=0, atol=1e-11 * (1 + scale))
    np.testing.assert_allclose(-back.momentum, start.momentum, rtol=0, atol=1e-11 * (1 + scale))
    assert np.max(np.abs(end.positions - start.positions)) > 0.05


def test_leapfrog_preserves_the_symplectic_form():
    # omega = <dx_1, dp_2> - <dx_2, dp_1> on vectors tangent to {|x| = 1, <x, p> = 0}; its power is the volume.
    start = phase(2)

    def tangent(seed):
        rng = np.random.default_rng(seed)
        dx = sphere.to_tangent(start.positions, jnp.asarray(rng.normal(size=(2, 3))))
        dp = sphere.to_tangent(start.positions, jnp.asarray(rng.normal(size=(2, 3))))
        return dx, dp - jnp.sum(start.momentum * dx, axis=-1, keepdims=True) * start.positions

    def images(x, p):
        return leapfrog(ENERGY, Phase(x, p, *gradient_and_energy(ENERGY, x)), 0.4, 3)[:2]

    def omega(first, second):
        return float(jnp.sum(first[0] * second[1]) - jnp.sum(second[0] * first[1]))

    at = start.positions, start.momentum
    for seeds in ((3, 4), (5, 6)):
        vectors = [tangent(seed) for seed in seeds]
        moved = [jax.jvp(images, at, v)[1] for v in vectors]
        assert omega(*moved) == pytest.approx(omega(*vectors), abs=1e-11)
        assert abs(moved[0][0] - vectors[0][0]).max() > 0.1


def test_leapfrog_conserves_energy_to_order_two():
    start = phase(7)

    def total(end):
        return float(end.energy + jnp.sum(end.momentum**2) / 2)

    errors = [abs(total(move(start, 0.1 / k, k)) - total(start)) for k in (4, 8)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.1)


@functools.partial(jax.jit, static_argnums=0)
def step(scheme, x, p, uniform, beta):
    state, info = scheme.step(scheme.init(ENERGY, x), Noise(jnp.sqrt(beta) * p, uniform), beta)
    return state.positions, info.acceptance


def test_every_move_and_its_reverse_are_in_detailed_balance():
    # pi(x) N(p) a(x -> y) = pi(y) N(p') a(y -> x) with the momentum that leads back; steps are coarse on purpose.
    scheme, beta, rejected = integrators.hmc(0.5, 3), 1.7, 0
    for seed in range(40):
        start = phase(seed)
        end = move(start, 0.5, 3)
        there, a = step(scheme, start.positions, start.momentum, 0.0, beta)
        back, b = step(scheme, end.positions, -end.momentum, 0.0, beta)
        np.testing.assert_allclose(there, end.positions, atol=1e-12)
        np.testing.assert_allclose(back, start.positions, atol=1e-9)
        a, b = float(a), float(b)
        weights = [float(jnp.exp(-beta * (q.energy + jnp.sum(q.momentum**2) / 2))) for q in (start, end)]
        assert weights[0] * a == pytest.approx(weights[1] * b, rel=1e-9)
        assert max(a, b) == pytest.approx(1, abs=1e-9)
        rejected += a < 0.9
        still, _ = step(scheme, start.positions, start.momentum, 1.0, beta)
        assert (a == 1) or np.array_equal(still, start.positions)
    assert 3 < rejected < 37


def test_without_forces_momenta_turn_with_the_great_circle():
    start = phase(8)
    x, p = start.positions, start.momentum
    y, q = flow(x, p, 0.7)
    np.testing.assert_allclose(y, sphere.exp(x, 0.7 * p), atol=1e-14)
    np.testing.assert_allclose(q, sphere.transport(x, y, p), atol=1e-13)
    np.testing.assert_allclose(jnp.sum(q * y, axis=-1), 0, atol=1e-15)


def test_the_clock_advances_by_the_whole_trajectory():
    assert integrators.hmc(0.2, num_leapfrog=5).step_size == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [0, -1, 2.5, "3", None, True])
def test_a_bad_number_of_leapfrog_steps_is_refused(bad):
    with pytest.raises(InputError, match=r"^num_leapfrog: got .+; needs .+; leapfrog steps per call"):
        integrators.hmc(0.1, num_leapfrog=bad)
